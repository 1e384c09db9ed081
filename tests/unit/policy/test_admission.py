from __future__ import annotations

import bisect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.admission import AdmissionPolicy, Admit, Never, Refuse, Try
from twoshift.policy.background_queue import Block
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.planned_calls import ends
from twoshift.types import CallSize, Item

COST = CallCost.line(0.004, 0.00025)
SLO_S = 0.05


class Device:
    """A lane policy with admission before it, on a device that does exactly what the curve says."""

    def __init__(self, max_rows: int, background: bool, lanes: int = 1) -> None:
        self.lanes = LanePolicy(COST, LaneLimits(max_rows=max_rows, max_tokens=200, slo_s=SLO_S, lanes=lanes))
        self.admission = AdmissionPolicy(self.lanes)
        self.now_s = 0.0
        self.calls: list[tuple[float, int, Call]] = []  # with their ends, the next one first
        self.late: list[int] = []
        self.answered: set[int] = set()
        for signature in range(2) if background else ():
            self.lanes.submit_block(Block(-1 - signature, [1] * 50_000, signature=signature), 0.0)

    def until(self, then_s: float) -> None:
        while True:
            self.launch()
            if not self.calls or self.calls[0][0] > then_s:
                self.now_s = then_s
                return
            self.finish()

    def launch(self) -> None:
        while not isinstance(decision := self.lanes.decide(self.now_s), Idle):
            if isinstance(decision, Drop):
                self.late += [item.key for item in decision.live]
            else:
                call = decision.call
                blocks = {-1 - part.block for part in call.background}  # the signatures of blocks
                assert len({item.signature for item in call.live} | blocks) == 1
                bisect.insort(self.calls, (self.now_s + self.takes_s(call), call.number, call))

    def takes_s(self, call: Call) -> float:
        slow = self.lanes.limits.lanes if call.slot is Slot.SHARED else 1
        return slow * COST.seconds(call.size)

    def finish(self) -> None:
        self.now_s, _, call = self.calls.pop(0)
        self.late += [item.key for item in call.live if self.now_s > item.deadline_s + 1e-7]
        self.answered |= {item.key for item in call.live}
        self.lanes.finished(call, self.takes_s(call))


arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 0.004),
        st.lists(st.integers(1, 60), min_size=1, max_size=6),
        st.floats(0.2, 1.0),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=60,
)


@given(arrivals, st.integers(1, 32), st.booleans(), st.integers(1, 3))
@pytest.mark.slow
def test_nothing_admitted_misses_its_deadline(
    requests: list[tuple[float, list[int], float, int]], max_rows: int, background: bool, lanes: int
) -> None:
    device = Device(max_rows, background, lanes)
    admitted: set[int] = set()
    key = 0
    for gap_s, lengths, haste, signature in requests:
        device.until(device.now_s + gap_s)
        items = [Item(key + i, device.now_s + SLO_S * haste, n, signature) for i, n in enumerate(lengths)]
        key += len(items)
        answer = device.admission.decide(items, device.now_s)
        if isinstance(answer, Admit):
            assert answer.finish_s <= items[0].deadline_s + 1e-6
            admitted |= {item.key for item in items}
            for item in items:
                device.lanes.submit(item, device.now_s)
    device.until(device.now_s + 2.0)
    assert device.late == []
    assert device.answered == admitted


@given(arrivals, st.integers(1, 32), st.booleans(), st.integers(1, 3))
@pytest.mark.slow
def test_what_is_refused_is_admitted_after_the_retry_time_if_nothing_else_arrives(
    requests: list[tuple[float, list[int], float, int]], max_rows: int, background: bool, lanes: int
) -> None:
    device = Device(max_rows, background, lanes)
    key = 0
    for gap_s, lengths, haste, signature in requests:
        device.until(device.now_s + gap_s)
        items = [Item(key + i, device.now_s + SLO_S * haste, n, signature) for i, n in enumerate(lengths)]
        key += len(items)
        answer = device.admission.decide(items, device.now_s)
        if isinstance(answer, Admit):
            for item in items:
                device.lanes.submit(item, device.now_s)
        alone_s = sum(call.predicted_s for call in device.lanes.live.cut(items, device.now_s))
        # With an endless backlog some call always runs: only what leaves room for one can be promised.
        promised = not background or alone_s + device.lanes.limits.budget_s <= SLO_S * haste
        if isinstance(answer, Refuse) and promised:
            assert answer.retry_after_s > 0
            device.until(device.now_s + answer.retry_after_s + 1e-7)
            again = [item._replace(deadline_s=device.now_s + SLO_S * haste) for item in items]
            size = CallSize.of(item.tokens for item in again)
            doubtful = device.admission.unlikely(again, size, SLO_S * haste, device.now_s) is not None
            assert isinstance(device.admission.decide(again, device.now_s), Try | Never if doubtful else Admit)
            return


def test_an_idle_device_admits() -> None:
    lanes = LanePolicy(COST, LaneLimits(slo_s=SLO_S))
    assert AdmissionPolicy(lanes).decide([Item(1, SLO_S)], 0.0) == Admit(COST.overhead_s + COST.per_token_s)


def test_a_row_longer_than_any_call_is_refused_for_good() -> None:
    lanes = LanePolicy(COST, LaneLimits(max_tokens=100, slo_s=SLO_S))
    answer = AdmissionPolicy(lanes).decide([Item(1, SLO_S, tokens=101)], 0.0)
    assert isinstance(answer, Never)
    assert "101 tokens" in answer.reason


def served(device: Device, items: list[Item]) -> float:
    """When the last of them was answered."""
    for item in items:
        device.lanes.submit(item, device.now_s)
    device.launch()
    while device.calls:
        device.finish()
        device.launch()
    return device.now_s


def test_a_deadline_that_an_idle_device_cannot_meet_is_refused_for_good_once_calls_have_shown_it() -> None:
    device = Device(32, background=False)
    for key in range(3):
        item = Item(key, device.now_s + 0.002)
        tried = device.admission.decide([item], device.now_s)
        assert isinstance(tried, Try), "nothing but a prediction speaks against it"
        served(device, [item._replace(deadline_s=tried.until_s)])
    answer = device.admission.decide([Item(9, device.now_s + 0.002)], device.now_s)
    assert isinstance(answer, Never)
    assert "idle device" in answer.reason
    device.now_s += 61
    assert isinstance(device.admission.decide([Item(9, device.now_s + 0.002)], device.now_s), Try), "that was long ago"


def test_what_no_device_could_do_needs_no_trial() -> None:
    lanes = LanePolicy(COST, LaneLimits(slo_s=SLO_S))
    assert isinstance(AdmissionPolicy(lanes).decide([Item(1, 0.0004)], 0.0), Never)


def test_a_request_is_not_tried_while_others_wait() -> None:
    device = Device(32, background=False)
    device.lanes.submit(Item(1, SLO_S), 0.0)
    answer = device.admission.decide([Item(2, 0.002)], 0.0)
    assert isinstance(answer, Refuse)
    device.until(answer.retry_after_s + 1e-7)
    assert isinstance(device.admission.decide([Item(2, device.now_s + 0.002)], device.now_s), Try)


@given(st.floats(1.2, 9.0), st.integers(1, 60), st.integers(1, 2))
def test_a_curve_from_a_busy_moment_heals_by_what_it_doubts(slow: float, rows: int, lanes: int) -> None:
    device = Device(32, background=False, lanes=lanes)
    true = COST.scaled(1 / slow)
    device.takes_s = lambda call: true.seconds(call.size)  # the curve is `slow` times too slow
    left_s = 1.5 * sum(call.predicted_s for call in LanePolicy(true, device.lanes.limits).live.cut(_rows(rows, 0.0), 0))
    for _ in range(40):
        device.until(device.now_s + 2.0)
        items = _rows(rows, device.now_s + left_s)
        answer = device.admission.decide(items, device.now_s)
        if isinstance(answer, Admit):
            assert served(device, items) <= items[0].deadline_s
            return
        if isinstance(answer, Try):
            served(device, [item._replace(deadline_s=answer.until_s) for item in items])
        else:
            device.now_s += 61.0  # refused for good, for a minute
    raise AssertionError("it never heals")


def _rows(count: int, deadline_s: float) -> list[Item]:
    return [Item(1000 + at, deadline_s) for at in range(count)]


def test_time_that_was_lost_elsewhere_makes_no_request_one_for_never() -> None:
    admission = AdmissionPolicy(LanePolicy(CallCost.line(0.01, 1e-3), LaneLimits(slo_s=0.1)))
    late = [Item(0, 0.1, 20)]  # takes 30 ms
    assert isinstance(admission.decide(late, 0.098), Never)
    assert isinstance(admission.decide(late, 0.098, 0.0), Refuse)
    assert isinstance(admission.decide([Item(0, 0.1, 2000)], 0.098, 0.0), Never)


def test_the_queue_is_bounded_even_where_callers_are_patient() -> None:
    lanes = LanePolicy(COST, LaneLimits(max_rows=8, slo_s=SLO_S))
    admission = AdmissionPolicy(lanes, max_waiting=10)
    for key in range(10):
        lanes.submit(Item(key, 100.0), 0.0)
    answer = admission.decide([Item(99, 100.0)], 0.0)
    assert isinstance(answer, Refuse)
    assert "10 rows are already waiting" in answer.reason
    assert isinstance(admission.decide([Item(100 + i, 100.0) for i in range(11)], 0.0), Never)


def test_after_a_slow_spell_an_idle_device_is_tried_again() -> None:
    lanes = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=SLO_S))
    admission = AdmissionPolicy(lanes)
    now_s = 0.0
    for key in range(40):
        lanes.submit(Item(key, now_s + 1000.0), now_s)
        decision = lanes.decide(now_s)
        assert isinstance(decision, Run)
        now_s += 0.064
        lanes.finished(decision.call, 0.064)  # fifteen times too slow
    assert isinstance(admission.decide([Item(99, now_s + SLO_S)], now_s), Refuse), "for now, and not for ever"
    assert isinstance(admission.decide([Item(99, now_s + 6 + SLO_S)], now_s + 6), Admit)


def test_the_retry_time_is_not_longer_than_it_must_be() -> None:
    device = Device(32, background=False)
    key = 0
    while True:
        items = [Item(key + i, SLO_S, 1) for i in range(8)]
        key += 8
        answer = device.admission.decide(items, 0.0)
        if isinstance(answer, Refuse):
            break
        for item in items:
            device.lanes.submit(item, 0.0)
    now = [Item(item.key, SLO_S + 0.001, 1) for item in items]
    assert isinstance(device.admission.decide(now, 0.001), Refuse), "a millisecond is not enough"
    assert answer.retry_after_s < SLO_S


def test_a_request_of_no_rows_is_admitted() -> None:
    assert AdmissionPolicy(LanePolicy(COST)).decide([], 1.0) == Admit(1.0)


def test_an_urgent_newcomer_may_not_make_an_admitted_row_late() -> None:
    lanes = LanePolicy(COST, LaneLimits(max_rows=1, slo_s=SLO_S))
    admission = AdmissionPolicy(lanes)
    lanes.submit(Item(1, 0.0084), 0.0)
    assert isinstance(admission.decide([Item(2, 0.0083)], 0.0), Refuse)
    assert isinstance(admission.decide([Item(2, 0.0086)], 0.0), Admit)


@pytest.mark.parametrize("owed", [False, True])
def test_a_share_that_is_owed_to_background_work_counts_against_admission(owed: bool) -> None:
    lanes = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=SLO_S, min_share=0.5))
    lanes.submit_block(Block(-1, [1] * 1000, owed=owed), 0.0)
    for key in range(64):
        lanes.submit(Item(key, SLO_S), 0.0)
    answer = AdmissionPolicy(lanes).decide([Item(99, SLO_S)], 0.0)
    assert isinstance(answer, Refuse if owed else Admit)


@given(
    st.lists(st.integers(1, 30), max_size=20),
    st.lists(
        st.tuples(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.floats(0.0, 0.3)), min_size=1, max_size=8
    ),
    st.booleans(),
)
@pytest.mark.slow
def test_what_is_surely_admitted_together_is_admitted_one_after_the_other(
    waiting: list[int], asked: list[tuple[list[int], float]], background: bool
) -> None:
    device = Device(8, background)
    for key, tokens in enumerate(waiting):
        device.lanes.submit(Item(key, 0.25, tokens), 0.0)
    device.launch()
    size = CallSize.of([tokens for lengths, _ in asked for tokens in lengths])
    if not device.admission.admits_all(size, 0, min(deadline_s for _, deadline_s in asked), 0.0):
        return
    for number, (lengths, deadline_s) in enumerate(asked):
        items = [Item(1000 * (number + 1) + at, deadline_s, tokens) for at, tokens in enumerate(lengths)]
        assert isinstance(device.admission.decide(items, 0.0), Admit)
        for item in items:
            device.lanes.submit(item, 0.0)


@given(st.integers(1, 8), st.integers(1, 3), st.floats(0.0, 0.04))
def test_what_is_admitted_is_predicted_as_early_as_it_is_asked_for(rows: int, requests: int, spare_s: float) -> None:
    device = Device(max_rows=8, background=False)
    for number in range(requests):
        items = [Item(100 * number + at, SLO_S) for at in range(rows)]
        asked_s = spare_s if device.lanes.has_live else 0.0  # who is alone is tried
        answer = device.admission.decide(items, 0.0, 0.0, spare_s)
        if isinstance(answer, Admit):
            assert answer.finish_s <= SLO_S - asked_s + 1e-6
            for item in items:
                device.lanes.submit(item, 0.0)


def test_a_row_admitted_with_time_to_spare_keeps_nobody_out_of_its_call() -> None:
    device = Device(max_rows=8, background=False)
    first, second = Item(1, 0.01), Item(2, 0.01)
    assert isinstance(device.admission.decide([first], 0.0, 0.0, 0.005), Admit)
    device.lanes.submit(first, 0.0)
    assert isinstance(device.admission.decide([second], 0.005, 0.0), Admit)


@given(st.integers(1, 30), st.integers(1, 8), st.floats(0.0, 0.025))
def test_who_is_refused_for_time_to_spare_is_admitted_when_it_is_told(waiting: int, rows: int, spare_s: float) -> None:
    device = Device(max_rows=8, background=False)
    for key in range(waiting):
        device.lanes.submit(Item(1000 + key, 10.0), 0.0)
    answer = device.admission.decide([Item(at, SLO_S) for at in range(rows)], 0.0, 0.0, spare_s)
    if isinstance(answer, Refuse):
        device.until(answer.retry_after_s)
        again = [Item(at, device.now_s + SLO_S) for at in range(rows)]
        assert isinstance(device.admission.decide(again, device.now_s, device.now_s, spare_s), Admit)


@given(
    st.lists(st.integers(1, 60), max_size=20), st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.integers(1, 64), st.integers(1, 3), st.integers(0, 1),
)  # fmt: skip
def test_rows_are_done_no_later_than_a_short_look_says(
    waiting: list[int], asked: list[int], max_rows: int, lanes: int, signature: int
) -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=max_rows, max_tokens=600, slo_s=1.0, lanes=lanes))
    for key, tokens in enumerate(waiting):
        policy.submit(Item(key, 10.0, tokens), 0.0)
    items = [Item(1000 + at, 10.0, tokens, signature) for at, tokens in enumerate(asked)]
    done_s = policy.done_by_s(CallSize.of(asked), signature, 0.0)
    plan = policy.live.plan_with(items, 0.0)
    assert max(ends(plan, [0.0] * lanes)) <= done_s + 1e-9


def test_rows_that_one_call_takes_are_surely_in_time_where_as_many_calls_would_not_be() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=64, slo_s=SLO_S))
    size = CallSize.uniform(32, 1)
    assert AdmissionPolicy(policy).admits_all(size, 0, SLO_S, 0.0)
    policy.submit(Item(1, SLO_S, signature=7), 0.0)
    assert not AdmissionPolicy(policy).admits_all(size, 0, SLO_S, 0.0)  # rows of another kind share no call
