"""What a device's slots learn from their own calls, from each other's, and from silence."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.policy.admission import AdmissionPolicy, Admit, Try
from twoshift.policy.cost import CallCost
from twoshift.policy.journal import RecordedAdmission, RecordedLanes, replay
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.types import CallSize, Item

COST = CallCost.line(0.0035, 0.00014)
SLO_S = 0.2
LIMITS = LaneLimits(slo_s=SLO_S, lanes=2)
ROW = CallSize.uniform(1, 100)
IN_LANE = 1.75  # times as long as with the whole device


class Device:
    """A policy with admission before it, under a virtual clock; its calls take what `slow` says of the moment."""

    def __init__(self, policy: LanePolicy, true: CallCost = COST, admission: AdmissionPolicy | None = None) -> None:
        self.policy, self.true = policy, true
        self.admission = admission or AdmissionPolicy(policy)
        self.slow: Callable[[float], float] = lambda now_s: 1.0
        self.now_s = 0.0
        self.refused = self.late = self.answered = 0
        self._calls: list[tuple[float, int, Call, float]] = []
        self._key = 0

    def ask(self, tokens: int = 100) -> bool:
        """One row arrives now; whether it is taken."""
        self._key += 1
        item = Item(self._key, self.now_s + SLO_S, tokens)
        answer = self.admission.decide([item], self.now_s)
        if isinstance(answer, Admit):
            self.policy.submit(item, self.now_s)
        elif isinstance(answer, Try):
            self.policy.submit(item._replace(deadline_s=answer.until_s), self.now_s)
        else:
            self.refused += 1
        self._launch()
        return isinstance(answer, Admit | Try)

    def until(self, then_s: float) -> None:
        while self._calls and self._calls[0][0] <= then_s:
            self.now_s, _, call, elapsed_s = heapq.heappop(self._calls)
            self.policy.finished(call, elapsed_s)
            self.answered += len(call.live)
            self.late += sum(item.deadline_s < self.now_s for item in call.live)
            self._launch()
        self.now_s = then_s
        self._launch()

    def _launch(self) -> None:
        while not isinstance(decision := self.policy.decide(self.now_s), Idle):
            if isinstance(decision, Drop):
                self.late += len(decision.live)
                continue
            call = decision.call
            elapsed_s = self.true.seconds(call.size) * self.slow(self.now_s)
            elapsed_s *= IN_LANE if call.slot is Slot.SHARED else 1.0
            heapq.heappush(self._calls, (self.now_s + elapsed_s, call.number, call, elapsed_s))

    def serve(self, until_s: float, gap_s: float, rows: int = 1) -> None:
        """Rows by the clock, so many at a time."""
        while self.now_s + gap_s <= until_s:
            self.until(self.now_s + gap_s)
            for _ in range(rows):
                self.ask()
        self.until(until_s)


def predictions(policy: LanePolicy) -> tuple[float, float]:
    return policy.curves.predict_s(ROW, Slot.WHOLE), policy.curves.predict_s(ROW)


def test_a_burst_is_admitted_by_what_lone_rows_have_shown() -> None:
    device = Device(LanePolicy(COST.scaled(2.5), LIMITS))  # a profile of a busy moment
    for _ in range(12):
        device.ask()
        device.until(device.now_s + 0.5)
    assert all(device.ask() for _ in range(8)), "these take 130 ms of the 200 that they have"
    device.until(device.now_s + 1.0)
    assert device.late == 0


def test_a_row_alone_is_predicted_by_what_bursts_have_shown() -> None:
    policy = LanePolicy(COST.scaled(4.0), LIMITS)
    device = Device(policy)
    device.serve(20.0, 0.5, rows=2)
    assert policy.curves.predict_s(ROW, Slot.WHOLE) <= 1.1 * IN_LANE * COST.seconds(ROW)


@settings(max_examples=examples(30))
@given(st.floats(1.0, 9.0), st.floats(0.05, 40.0), st.integers(1, 6))
def test_a_device_that_was_slow_for_a_minute_is_itself_a_minute_later(factor: float, gap_s: float, rows: int) -> None:
    policy = LanePolicy(COST, LIMITS)
    device, gap_s = Device(policy), gap_s * rows  # at most 0.4 of what it can do
    device.serve(60.0, gap_s, rows)
    usual = predictions(policy)
    device.slow = lambda now_s: factor if 60.0 <= now_s < 120.0 else 1.0
    device.serve(180.0, gap_s, rows)
    policy.curves.age(device.now_s)
    for before_s, after_s in zip(usual, predictions(policy), strict=True):
        assert after_s <= 1.3 * before_s
    device.until(device.now_s + 1.0)
    device.late = 0
    assert all(device.ask() for _ in range(6))
    device.until(device.now_s + 1.0)
    assert device.late == 0


def test_what_is_only_refused_is_taken_again_within_a_minute() -> None:
    policy = LanePolicy(COST, LIMITS)
    device = Device(policy)
    device.slow = lambda now_s: 12.0 if now_s < 60.0 else 1.0
    device.serve(60.0, 0.05)
    assert device.refused, "such calls take longer than the SLO"
    device.serve(75.0, 0.5)
    device.refused = device.late = 0
    device.serve(120.0, 0.5, rows=4)
    assert (device.refused, device.late) == (0, 0)


@settings(max_examples=examples(20))
@given(st.integers(0, 10_000), st.floats(2.0, 20.0))
@pytest.mark.slow
def test_a_few_scattered_stalls_move_neither_the_curve_nor_its_caution(seed: int, stall: float) -> None:
    policy = LanePolicy(COST, LIMITS)
    device, rng, calls = Device(policy), np.random.default_rng(seed), itertools.count(seed)
    device.slow = lambda now_s: rng.uniform(0.95, 1.05) * (stall if next(calls) % 25 == 0 else 1.0)
    worst = [0.0, 0.0]
    for burst in range(200):
        device.serve(device.now_s + 1.0, 0.25, 1 + 2 * (burst % 2))
        worst = [max(pair) for pair in zip(worst, predictions(policy), strict=True)]
    assert worst[0] <= 1.35 * COST.seconds(ROW)
    assert worst[1] <= 2 * 1.35 * COST.seconds(ROW)
    assert predictions(policy)[0] <= 1.2 * COST.seconds(ROW)


@pytest.mark.parametrize("true", [COST.scaled(3.0), COST.scaled(1 / 3)])
def test_what_is_so_for_minutes_is_usual_and_survives_a_silence(true: CallCost) -> None:
    policy = LanePolicy(COST, LIMITS)
    Device(policy, true).serve(600.0, 0.5)
    policy.curves.age(1000.0)
    assert policy.curves.predict_s(ROW, Slot.WHOLE) == pytest.approx(true.seconds(ROW), rel=0.15)
    assert policy.curves.usual_pace(ROW) == pytest.approx(true.seconds(ROW) / COST.seconds(ROW), rel=0.15)


def test_a_slow_minute_is_not_usual() -> None:
    policy = LanePolicy(COST, LIMITS)
    device = Device(policy)
    device.slow = lambda now_s: 4.0 if 60.0 <= now_s < 120.0 else 1.0
    device.serve(600.0, 0.5)
    assert policy.curves.usual_pace(ROW) == pytest.approx(1.0, rel=0.1)


def test_a_device_found_busy_is_so_for_now_only() -> None:
    policy = LanePolicy(COST, LIMITS)
    policy.slow_down(3.0, 0.0)
    assert predictions(policy)[0] == pytest.approx(3 * COST.seconds(ROW))
    policy.curves.age(20.0)
    assert predictions(policy)[0] == pytest.approx(3 * COST.seconds(ROW))
    policy.curves.age(31.0)
    assert predictions(policy)[0] == pytest.approx(COST.seconds(ROW))


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(1, 12), st.floats(0.3, 6.0), st.booleans()), max_size=40),
    st.integers(1, 2),
)
def test_a_journal_replays_whoever_looked_at_the_curves(
    events: list[tuple[float, int, float, bool]], lanes: int
) -> None:
    lines: list[str] = []
    limits = LaneLimits(slo_s=SLO_S, lanes=lanes)
    policy = RecordedLanes(COST, limits, lambda entry: lines.append(json.dumps(entry)))
    device = Device(policy, admission=RecordedAdmission(policy))
    policy.slow_down(1.5, 0.0)
    for gap_s, rows, factor, looks in events:
        device.slow = lambda now_s, factor=factor: factor
        device.until(device.now_s + gap_s)
        if looks:  # nobody records this
            policy.curves.age(device.now_s)
            assert policy.curves.whole_cost.seconds(ROW) > 0
        for _ in range(rows):
            device.ask()
    entries: list[Any] = [json.loads(line) for line in lines]
    assert replay(entries).difference is None


def test_a_call_of_a_lane_teaches_only_what_calls_take_under_load() -> None:
    policy = LanePolicy(COST, LIMITS)
    long = CallSize.uniform(8, 100)

    def teaches(size: CallSize, slot: Slot, device_s: float | None) -> bool:
        call = Call(0, (), (), size, policy.curves.predict_s(size, slot), slot)
        return policy.curves.tells(call, 0.1, device_s)

    assert teaches(long, Slot.SHARED, 0.05)  # another ran beside it all the time
    assert not teaches(long, Slot.SHARED, 0.1)  # none did
    assert not teaches(CallSize.uniform(1), Slot.SHARED, 0.05)
    assert teaches(CallSize.uniform(1), Slot.WHOLE, 0.1)
    assert LanePolicy(COST, LaneLimits(slo_s=SLO_S)).curves.tells(Call(0, (), (), ROW, 0.1), 0.1, 0.1)


def test_a_lane_of_which_only_others_say_that_it_is_slow_is_told_as_usual() -> None:
    policy = LanePolicy(COST, LIMITS)
    curves = policy.curves
    before_s = curves.cost.seconds(ROW)
    for at in range(20):
        curves.slots.observed(Slot.WHOLE, ROW, 3 * COST.seconds(ROW), 0.1 * at)
    assert curves.slots.learners[Slot.SHARED].cost.seconds(ROW) > 1.9 * before_s  # decisions are cautious
    assert curves.cost.seconds(ROW) == before_s
