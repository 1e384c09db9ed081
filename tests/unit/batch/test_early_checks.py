"""What a user can be told before a model is loaded is told then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twoshift.batch.settings import JobSettings
from twoshift.errors import Broken, InvalidInput, TwoshiftError
from twoshift.wiring import job_workers


@pytest.fixture
def language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name of one: nothing of it is there to be loaded."""
    monkeypatch.setattr(job_workers, "LocalPool", _no_pool)
    monkeypatch.setattr(job_workers, "check_named", lambda *_: None)
    monkeypatch.setattr(job_workers, "is_llm", lambda *_: True)
    return str(tmp_path / "llm")


def _no_pool(*_: Any) -> Any:
    pytest.fail("workers are prepared for a job that cannot run")


def settings(model: str, **options: Any) -> JobSettings:
    return JobSettings(inputs=("in.jsonl",), output="out", model=model, prompt="{q}", **options)


def evaluation(folder: Path, **row: Any) -> str:
    path = folder / "eval.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("row", "options", "field"),
    [
        (None, {"eval_file": "nowhere.jsonl", "at_least": 0.5}, "eval_file"),
        ({"prompt": "a"}, {"at_least": 0.5}, "eval_file"),
        ({"prompt": "a", "answer": "b"}, {"at_least": 0.5, "metric": "bleu"}, "metric"),
        ({"prompt": "a", "answer": "b"}, {"at_least": 0.5, "metric": "nowhere.py:score"}, "metric"),
        (None, {"adapter": "nowhere"}, "adapter"),
    ],
)
def test_settings_of_a_language_model_are_checked_before_it_is_loaded(
    language_model: str, tmp_path: Path, row: dict[str, str] | None, options: dict[str, Any], field: str
) -> None:
    given = options if row is None else {"eval_file": evaluation(tmp_path, **row), **options}
    with pytest.raises(InvalidInput) as raised:
        job_workers.job_for(settings(language_model, **given))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("config", "kind"), [({"peft_type": "LORA"}, Broken), ({"peft_type": "IA3", "r": 8}, InvalidInput)]
)
def test_the_folder_of_an_adapter_is_read_before_its_base(
    language_model: str, tmp_path: Path, config: dict[str, Any], kind: type[TwoshiftError]
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(kind):
        job_workers.job_for(settings(language_model, adapter=str(tmp_path)))
