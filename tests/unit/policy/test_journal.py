from __future__ import annotations

import json
from typing import Any

import pytest

from twoshift.errors import Broken
from twoshift.policy.background_queue import Block
from twoshift.policy.cost import CallCost
from twoshift.policy.journal import RecordedAdmission, RecordedLanes, replay
from twoshift.policy.lane_values import Drop, LaneLimits, Run
from twoshift.types import Item, Lane


def recorded() -> list[list[Any]]:
    """A short, busy hour: every kind of event, through JSON as a file would hold it."""
    lines: list[str] = []
    limits = LaneLimits(max_rows=8, slo_s=0.05, min_share=0.2)
    lanes = RecordedLanes(CallCost.line(0.004, 0.00025), limits, lambda entry: lines.append(json.dumps(entry)))
    admission = RecordedAdmission(lanes)
    lanes.submit_block(Block(1000, [1, 1, 2, 900, 1], Lane.MICRO, deadline_s=4.0), 0.0)
    lanes.submit_block(Block(1001, [1] * 50, owed=True), 0.0)
    now_s = 0.0
    for key in range(60):
        now_s += 0.0007
        item = Item(key, now_s + 0.03)
        admission.decide([item], now_s)
        lanes.submit(item, now_s)
        if key % 7 == 3:
            lanes.cancel(key)
        if key == 30:
            lanes.cancel_block(1001)
        if key % 5 == 0:
            while isinstance(decision := lanes.decide(now_s), Drop):
                pass
            if isinstance(decision, Run):
                now_s += 0.006
                lanes.finished(decision.call, 0.006 + 0.0001 * key)
    return [json.loads(line) for line in lines]


def test_a_recorded_journal_replays_to_identical_decisions() -> None:
    result = replay(recorded())
    assert result.difference is None
    assert result.decisions > 60


def test_a_changed_event_is_noticed_at_the_decision_it_changes() -> None:
    journal = recorded()
    for entry in journal:
        if entry[0] == "finished":
            entry[2] *= 3
    result = replay(journal)
    assert result.difference is not None
    assert "recorded" in result.difference


@pytest.mark.parametrize(
    "journal",
    [
        [],
        [["something else", 1]],
        [["twoshift-lanes", 99, {}, {}]],
        [*recorded()[:1], ["no such event"]],
        [*recorded()[:1], ["finished", 0, 0.1, False, None]],
        [*recorded()[:1], ["submit", 0.0]],
        [["twoshift-lanes", 2, {}, {}]],
        [["twoshift-lanes", 2, CallCost.line(1, 1).to_dict(), {"no_such_limit": 1}]],
    ],
)
def test_a_journal_that_cannot_be_read_says_so(journal: list[list[Any]]) -> None:
    with pytest.raises(Broken, match="cannot be replayed"):
        replay(journal)
