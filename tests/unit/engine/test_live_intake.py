"""Live requests that come together: one look at the plan where it holds them all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from twoshift.engine.live_intake import LiveIntake
from twoshift.engine.waiting import LiveRows, Waiting
from twoshift.errors import Late, TryLater
from twoshift.policy.admission import AdmissionPolicy, Answer
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.lanes import LanePolicy
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.encoder.tokens import TokenRows
from twoshift.types import Item

ROW_S = 0.010  # of a row of ten tokens, alone or with others


class CountedAdmission(AdmissionPolicy):
    """Counts its looks at single requests."""

    looks = 0

    def decide(self, items: Sequence[Item], now_s: float, since_s: float | None = None, spare_s: float = 0.0) -> Answer:
        self.looks += 1
        return super().decide(items, now_s, since_s, spare_s)


class Intake:
    def __init__(self) -> None:
        policy = LanePolicy(CallCost.line(0.0, ROW_S / 10), LaneLimits(slo_s=1.0, max_rows=1))
        self.admission = CountedAdmission(policy)
        changed = threading.Condition()
        self._intake = LiveIntake(
            policy, self.admission, Waiting(policy), changed, changed, clock=lambda: 0.0, check_open=lambda: None
        )

    def take_kinds(self, *columns: str) -> list[list[int] | Exception]:
        """A request of one row with that column each."""
        rows = [ColumnRows({name: np.zeros(1)}) for name in columns]
        return self._intake.submit_together([LiveRows(each, 0, [cast(Any, object())], 0.5) for each in rows])

    def take(self, *deadlines_s: float) -> list[list[int] | Exception]:
        count = len(deadlines_s)
        rows = TokenRows(np.zeros(10 * count, np.int32), np.arange(0, 10 * count + 1, 10), np.zeros(count, np.bool_))
        sinks: list[Any] = [object() for _ in deadlines_s]
        asked = [LiveRows(rows, at, [sinks[at]], deadline_s) for at, deadline_s in enumerate(deadlines_s)]
        return self._intake.submit_together(asked)


def test_requests_out_of_the_order_of_their_deadlines_are_admitted_by_one_look() -> None:
    intake = Intake()
    found = intake.take(0.045, 0.011, 0.033, 0.022)
    assert all(isinstance(each, list) for each in found)
    assert intake.admission.looks == 0  # one by one


def test_where_not_all_are_in_time_those_that_are_get_in() -> None:
    intake = Intake()
    found = intake.take(0.011, 0.022, 0.022)
    assert [isinstance(each, list) for each in found] == [True, True, False]
    assert isinstance(found[2], TryLater)


def test_who_has_no_more_time_than_one_refused_before_costs_no_look() -> None:
    intake = Intake()
    first, second, third, fourth = intake.take(0.015, 0.016, 0.014, 0.040)
    assert isinstance(first, list)
    assert isinstance(second, TryLater)
    assert third is second
    assert isinstance(fourth, list)
    assert intake.admission.looks == 3


def test_requests_whose_rows_share_no_call_are_admitted_by_one_look_at_the_plan() -> None:
    intake = Intake()
    found = intake.take_kinds("a", "b", "a")
    assert sorted(key for keys in found if isinstance(keys, list) for key in keys) == [0, 1, 2]
    assert intake.admission.looks == 0  # one by one


@pytest.mark.parametrize("late_s", [0.0, -1.0])
def test_who_is_too_late_already_is_told_so_beside_the_others(late_s: float) -> None:
    found = Intake().take(0.020, late_s)
    assert isinstance(found[0], list)
    assert isinstance(found[1], Late)
