"""What a language model is judged by before a job starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.evaluation import evaluation_requests, read_evaluation, sampled_requests
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.errors import InvalidInput
from twoshift.generation import Message
from twoshift.runtime.llm.options import LlmOptions
from twoshift.runtime.llm.quality import QualityGate
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.llm_loading import built_in_requests, gate_of, load_gated

ROWS = [{"prompt": "What is 2 + 2?", "answer": "4"}, {"prompt": "Name a colour.", "answer": "red"}]


def job(tmp_path: Path, **more: Any) -> JobSettings:
    given = {"inputs": [str(tmp_path / "in")], "output": str(tmp_path / "in/out"), "model": "smollm", "prompt": "q"}
    return make_settings({**given, **more})


def lines(path: Path, rows: list[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_an_evaluation_set_is_lines_or_parquet(tmp_path: Path) -> None:
    expected = [(row["prompt"], row["answer"]) for row in ROWS]
    found, mark = read_evaluation(lines(tmp_path / "e.jsonl", ROWS), blobs_for)
    assert found == expected
    pq.write_table(pa.Table.from_pylist([{**row, "more": 1} for row in ROWS]), tmp_path / "e.parquet")
    assert read_evaluation(str(tmp_path / "e.parquet"), blobs_for) == (expected, mark)
    assert read_evaluation(lines(tmp_path / "f.jsonl", ROWS[:1]), blobs_for)[1] != mark


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "`prompt` and `answer`"),
        ([{"prompt": "x"}], "`answer`"),
        ([ROWS[0], {"prompt": "x", "answer": None}], "in row 2, `prompt` or `answer` is not a text"),
        ([{"prompt": 1, "answer": 2}], "with texts in the columns"),
    ],
)
def test_rows_without_a_prompt_or_an_answer_are_refused(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        read_evaluation(lines(tmp_path / "e.jsonl", rows), blobs_for)
    assert refused.value.field == "eval_file"


def test_a_file_of_another_kind_or_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("prompt,answer\na,b\n")
    for name in ("e.csv", "none.jsonl"):
        with pytest.raises(InvalidInput, match="eval") as refused:
            read_evaluation(str(tmp_path / name), blobs_for)
        assert refused.value.field == "eval_file"


def test_it_is_asked_as_the_job_asks(tmp_path: Path) -> None:
    settings = job(tmp_path, system="Be short.", max_tokens=7, temperature=0.3)
    [first, _] = evaluation_requests([(each["prompt"], each["answer"]) for each in ROWS], settings.prompting)
    assert first.prompt == (Message("system", "Be short."), Message("user", "What is 2 + 2?"))
    assert (first.params.max_tokens, first.params.temperature) == (7, 0.3)
    per_row = job(tmp_path, system="About {topic}.")
    assert evaluation_requests([("a", "b")], per_row.prompting)[0].prompt == (Message("user", "a"),)
    assert evaluation_requests([("a", "b")], None)[0].params.temperature == 0.0


def test_a_sample_is_of_several_files_and_not_of_the_output(tmp_path: Path) -> None:
    for name in ("a", "b", "out/part-0"):
        lines(tmp_path / f"in/{name}.jsonl", [{"q": f"{name} {k}" if k else None} for k in range(20)])
    found = sampled_requests(job(tmp_path), blobs_for, 6)
    assert [each.prompt[0].content for each in found] == ["a 1", "a 2", "a 3", "b 1", "b 2", "b 3"]  # type: ignore[union-attr]


def test_metrics_by_name_and_of_the_users_own(tmp_path: Path) -> None:
    given = {"eval_file": lines(tmp_path / "e.jsonl", ROWS), "at_least": 0.5}
    (tmp_path / "m.py").write_text("def has(expected, text):\n    return expected in text\nbad = 3\n")

    def scored(metric: str) -> float:
        made = gate_of(job(tmp_path, **given, metric=metric), list).evaluation
        assert made is not None
        return made.score("red", "It is red")

    assert scored("exact") == 0.0
    assert scored("rouge") == pytest.approx(0.5)
    assert scored(f"{tmp_path}/m.py:has") == 1.0
    for metric, said in (("bleu", "exact, rouge, or file.py:function"), (f"{tmp_path}/m.py:bad", "a function that")):
        with pytest.raises(InvalidInput, match=said) as refused:
            scored(metric)
        assert refused.value.field == "metric"
    (tmp_path / "m.py").write_text("def has(expected, text):\n    return 'much'\n")
    with pytest.raises(InvalidInput, match="returns a number; this function returned 'much'"):
        scored(f"{tmp_path}/m.py:has")


def test_an_evaluation_is_another_one_with_other_rows_metric_or_parameters(tmp_path: Path) -> None:
    given = {"eval_file": lines(tmp_path / "e.jsonl", ROWS), "at_least": 0.5}
    marks = set[str]()
    for more in ({}, {"metric": "rouge"}, {"max_tokens": 9}):
        settings = job(tmp_path, **given, **more)
        made = gate_of(settings, list, settings.prompting).evaluation
        assert made is not None
        marks.add(made.fingerprint)
    assert len(marks) == 3


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"eval_file": "e.jsonl"}, "at_least"),
        ({"metric": "rouge"}, "metric"),
        ({"eval_file": "e.jsonl", "at_least": 0.5, "reference": "full"}, "reference"),
        ({"at_least": 1.5}, "at_least"),
        ({"tensor_parallel": 0}, "tensor_parallel"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, more: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        job(tmp_path, **more)
    assert refused.value.field == field


@pytest.mark.parametrize("more", [{"at_least": 0.5}, {"tensor_parallel": 2}, {"batch_invariant": True}])
def test_only_language_models_have_them(tmp_path: Path, more: dict[str, Any]) -> None:
    settings = make_settings({"inputs": ["a"], "output": "b", "model": "minilm", "text": "t", **more})
    with pytest.raises(InvalidInput, match="minilm is not a language model") as refused:
        settings.check_model(is_llm=False)
    assert refused.value.field == next(iter(more))


def test_what_cannot_be_compared_with_full_precision_says_what_to_give() -> None:
    gate = QualityGate(list, at_least=0.9)
    with pytest.raises(InvalidInput, match=r"without --eval, because .* runs on another server"):
        load_gated("http://127.0.0.1:9/v1#m", LlmOptions(), gate)


def test_the_built_in_prompts_are_of_many_kinds() -> None:
    assert len(built_in_requests()) > 16
    assert len({each.prompt for each in built_in_requests()}) == len(built_in_requests())
