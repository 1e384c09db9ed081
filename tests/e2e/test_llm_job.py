"""A job over a language model, as its users have it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from real_smollm import MARKS
from tiny_llm import tiny_llama

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

pytestmark = MARKS
PROGRAM = [sys.executable, "-m", "twoshift"]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "known": {"type": "boolean"}},
    "required": ["city", "known"],
    "additionalProperties": False,
}


def test_a_job_writes_answers_their_json_and_every_error_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    tiny_llama(tmp_path / "tiny")
    countries = ["France", "Italy", None, "Spain", "a word " * 2000, "Japan"]
    pq.write_table(pa.table({"id": range(6), "country": countries}), tmp_path / "asked.parquet")
    (tmp_path / "city.json").write_text(json.dumps(CITY))
    options = ["--prompt", "Name a city in {country}.", "--system", "You answer in JSON.", "--max-tokens", "80"]
    options += ["--json-schema", "city.json", "--keep", "id", "--model", "tiny", "-o", "out", "--shard-rows", "4"]
    (tmp_path / "known.jsonl").write_text('{"prompt": "Name a city in Peru.", "answer": "city"}\n')
    options += ["--price", "1", "--eval", "known.jsonl", "--metric", "rouge"]
    ran = _ran(tmp_path, *options, "--at-least", "0.01")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    parts = sorted((tmp_path / "out").glob("part-*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    assert len(parts) == 2
    assert [row["id"] for row in rows] == list(range(6))
    assert [row["error"] is None for row in rows] == [True, True, False, True, False, True]
    assert rows[2]["error"].endswith(", row 3: column country, which the prompt uses, is null")
    assert "tokens" in rows[4]["error"]
    for row in (rows[0], rows[1], rows[3], rows[5]):
        assert json.loads(row["text"]) == {"city": row["city"], "known": row["known"]}
        assert row["finish_reason"] == "stop"
    assert told["output_tokens"] == sum(row["output_tokens"] for row in rows if row["error"] is None)
    assert told["tokens"] > told["cached_tokens"] >= 0
    assert 0.01 <= told["quality"]["figure"] < 0.99
    of_input, of_output = told["usd_per_million_input_tokens"], told["usd_per_million_output_tokens"]
    paid = (of_input * told["tokens"] + of_output * told["output_tokens"]) / 1e6
    assert paid == pytest.approx(told["usd"])
    report = json.loads((tmp_path / "out/_twoshift/report.json").read_text())
    assert (report["output_tokens"], report["errors"]) == (told["output_tokens"], 2)
    # A prompt by itself may be answered in other words than among others: which, depends on the processor's arithmetic
    assert (report["parity"]["rows"], report["parity"]["problem"]) == (4, None)
    assert told["parity"]["passed"] is (report["parity"]["unequal"] == 0)
    assert (report["parity"]["agreeing_tokens"] == report["parity"]["tokens"]) is told["parity"]["passed"]


def _ran(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, "run", "asked.parquet", *options, "--json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
