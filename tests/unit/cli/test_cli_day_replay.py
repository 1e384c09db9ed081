"""A server's decision log, decided again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoshift.policy.autoscale import AutoscalePolicy, FleetState, ReplicaSettings, ReplicaState
from twoshift.policy.scale_journal import scale_entry, scale_header

Run = Callable[[str], Any]
RATES = [50.0] * 5 + [150.0] * 5 + [10.0] * 60


@pytest.fixture
def log(folder: Path) -> Path:
    """A minute and ten seconds: a burst that needs a second replica, and the cool-down after it."""
    policy, present = AutoscalePolicy(ReplicaSettings(max_replicas=4, cooldown_s=30.0), None, 4, shared=True), 1
    lines = [scale_header(policy)]
    for number, rate in enumerate(RATES, start=1):
        state = FleetState(ReplicaState(present, live_rows_per_s=rate, replica_rows_per_s=100.0))
        scale = policy.decide(state, float(number))
        lines.append(scale_entry(number, f"12:00:{number:02d}", float(number), state, scale))
        present = scale.target
    path = folder / "decisions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_recorded_day_replays_to_the_same_decisions(twoshift: Run, log: Path) -> None:
    ran = twoshift(f"sim day --replay {log} --json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["decisions"], ran.json["identical"]) == (70, True)
    assert [(change["at"], change["decided"]) for change in ran.json["changes"]] == [("12:00:06", 2), ("12:00:41", 1)]
    shown = twoshift(f"sim day --replay {log}").out
    assert "70 decisions over 69 s, all identical to the recorded ones." in shown
    assert "150 rows/s need 2" in shown


def test_a_decision_that_differs_is_shown_and_the_exit_code_says_so(twoshift: Run, log: Path) -> None:
    log.write_text(log.read_text().replace('"live_rows_per_s": 150.0', '"live_rows_per_s": 350.0', 1))
    ran = twoshift(f"sim day --replay {log}")
    assert ran.code == 1
    assert "decisions differ" in ran.out
    assert "350 rows/s need 4" in " ".join(ran.out.split())


def test_other_settings_show_what_would_have_been_decided(twoshift: Run, log: Path) -> None:
    ran = twoshift(f"sim day --replay {log} --max-replicas 1 --json")
    assert (ran.code, ran.json["identical"]) == (0, False)
    assert {each["decided"] for each in ran.json["differences"]} == {1}
    assert ran.json["replica_hours"]["decided"] < ran.json["replica_hours"]["recorded"]
    assert "With cooldown_s 5, " in twoshift(f"sim day --replay {log} --cooldown 5s").out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sim day --replay decisions.jsonl --peak 10", "--peak"),
        ("sim day --max-replicas 3", "without --replay FILE"),
        ("sim day --replay decisions.jsonl --min-replicas 3 --max-replicas 2", "--max-replicas"),
        ("sim day --replay nowhere.jsonl", "--replay"),
        ("sim replay decisions.jsonl", "to replay a decision log, use `twoshift sim day --replay`"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(twoshift: Run, log: Path, line: str, said: str) -> None:
    ran = twoshift(line)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_log_that_is_cut_off_or_is_none_is_told_so(twoshift: Run, log: Path) -> None:
    whole = log.read_text()
    log.write_text(whole[: len(whole) // 2])
    assert "the log is truncated here" in twoshift(f"sim day --replay {log}").err
    log.write_text("\n".join(whole.splitlines()[3:]))
    assert "begins with a twoshift-scale header" in twoshift(f"sim day --replay {log}").err
    log.write_text('["twoshift-lanes", 2]\n')
    assert twoshift(f"sim day --replay {log}").code == 2
