"""The command that goes on with a server's job says all that the job was asked for."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from twoshift.cli import _parser
from twoshift.cli.batch import _lines
from twoshift.cli.job_command import local_command
from twoshift.cli.jobs import job_lines

ASKED: dict[str, Any] = {
    "prompt": "Is {text} good? 'yes' or \"no\"",
    "system": "You are brief, {name}",
    "max_tokens": 7,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 3,
    "stop": ["\n", "a b"],
    "keep": ["id", "name"],
    "types": {"zip": "string"},
    "shard_rows": 5,
    "max_errors": "1%",
    "window": "2h",
}


def test_the_command_of_a_language_models_job_parses_back_to_its_settings() -> None:
    settings = {**ASKED, "inputs": ["in.parquet"], "output": "out"}
    command = local_command({"settings": settings, "progress": {"loaded": {"model": "smollm", "precision": "bf16"}}})
    assert command is not None
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("twoshift", "run")
    parsed = _parser().commands["run"].make_context("run", words).params
    for name in ("prompt", "system", "max_tokens", "temperature", "top_p", "seed", "shard_rows", "window"):
        assert parsed[name] == ASKED[name], name
    assert list(parsed["stop"]) == ASKED["stop"]
    assert (parsed["keep"], parsed["types"], parsed["output"]) == ("id,name", "zip=string", "out")


@pytest.mark.parametrize(("reason", "shown"), [("expired", "b: expired"), ("cancelled", "b: cancelled")])
def test_a_job_whose_window_has_passed_was_cancelled_by_nobody(reason: str, shown: str) -> None:
    settings = {"model": "m", "inputs": ["a"], "output": "b"}
    assert (
        job_lines({"id": "b", "state": "cancelled", "reason": reason, "settings": settings, "progress": None})[0]
        == shown
    )


def test_a_batch_says_when_it_was_created_and_when_it_expires() -> None:
    counts, usage = {"completed": 1, "failed": 0, "total": 2}, {"total_tokens": 3}
    batch = {"id": "b", "status": "in_progress", "model": "m", "endpoint": "/v1/embeddings", "completion_window": "1h"}
    more = {"request_counts": counts, "usage": usage, "errors": None, "created_at": 1e9, "expires_at": 1e9 + 3600}
    more |= {"left_s": 90.0}
    assert any(line.startswith("created 2001-09-0") and ", expires 2001-09-0" in line for line in _lines(batch | more))
    assert "1 of 2 requests done, 0 failed, 1m30s left" in _lines(batch | more)
