from __future__ import annotations

import json
from pathlib import Path

import pytest

from twoshift.cli import main


def test_the_scenarios_are_a_table_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sim", "rollout", "--runs", "1", "--scenario", "broken", "--scenario", "low-traffic", "--no-shadow"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "rolled back" in out
    assert "broken (fails 20 % of its requests): worse than the stable version: failed" in out
    assert "low-traffic" in out


def test_a_candidate_of_ones_own_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sim", "rollout", "--runs", "2", "--candidate-failures", "0.5", "--ladder", "10%,100%", "--json"]
    assert main(words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["yours"]["rolled_back"] == 1
    assert data["yours"]["first"]["stage"] == "rolled_back"


def test_a_record_replays_and_its_page_has_the_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, page, again = tmp_path / "rollout.jsonl", tmp_path / "one.html", tmp_path / "two.html"
    words = ["sim", "rollout", "--runs", "1", "--scenario", "slow", "--record", str(record), "--html", str(page)]
    assert main(words) == 0
    assert main(["sim", "rollout", "--replay", str(record), "--report", str(again)]) == 0
    assert "all identical" in capsys.readouterr().out
    for each in (page, again):
        text = each.read_text(encoding="utf-8")
        assert "Evidence that the candidate is worse" in text
        assert "slower in the shadow" in text
        assert "rolled back at a sum of 100" in text


def test_a_record_that_was_changed_is_told_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "rollout.jsonl"
    assert main(["sim", "rollout", "--runs", "1", "--scenario", "broken", "--record", str(record)]) == 0
    record.write_text(record.read_text().replace('"roll_back"', '"promote"'))
    assert main(["sim", "rollout", "--replay", str(record)]) == 1
    assert "1 of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--scenario", "brocken"], "--scenario"),
        (["--ladder", "5%,many"], "--ladder"),
        (["--ladder", "50%,10%"], "--ladder"),
        (["--alpha", "0.7"], "--alpha"),
        (["--record", "all.jsonl"], "--record"),
        (["--replay", "nothing-there.jsonl"], "--replay"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(
    words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sim", "rollout", "--runs", "1", *words]) == 2
    assert named in capsys.readouterr().err
