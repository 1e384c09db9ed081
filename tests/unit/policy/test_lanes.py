from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.background_queue import Block, Slice
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.pace import Pace
from twoshift.types import CallSize, Item, Lane

COST = CallCost.line(0.004, 0.00025)
CURVES = (COST, CallCost(0.0001, 5e-6, floor_s=0.0006, soft=True), CallCost(0.001, 1e-4, per_square_s=1e-6))
LIMITS = LaneLimits(max_rows=32, max_tokens=4096, slo_s=0.05)


def run_of(decision: Run | Drop | Idle) -> Call:
    assert isinstance(decision, Run)
    return decision.call


def rows_of(slices: tuple[Slice, ...]) -> int:
    return sum(part.stop - part.start for part in slices)


class LanesMachine(RuleBasedStateMachine):
    """Any interleaving of events; the invariants of DESIGN after every step."""

    @initialize(
        cost=st.sampled_from(CURVES),
        max_rows=st.integers(1, 40),
        max_tokens=st.integers(20, 400),
        slo_s=st.sampled_from([None, 0.02, 0.05, 1.0]),
        budget_s=st.sampled_from([None, 0.005, 0.008]),
        min_share=st.sampled_from([0.0, 0.25]),
        slowdown=st.sampled_from([None, 1.0, 1.5, 4.0]),
    )
    def begin(
        self,
        cost: CallCost,
        max_rows: int,
        max_tokens: int,
        slo_s: float | None,
        budget_s: float | None,
        min_share: float,
        slowdown: float | None,
    ) -> None:
        limits = LaneLimits(
            max_rows, max_tokens, slo_s, call_budget_s=budget_s, min_share=min_share, live_slowdown=slowdown
        )
        self.policy = LanePolicy(cost, limits)
        self.now_s = 0.0
        self.next_key = 0
        self.waiting: dict[int, Item] = {}
        self.blocks: dict[int, set[int]] = {}
        self.signatures: dict[int, int] = {}  # of blocks
        self.owed: dict[int, bool] = {}
        self.lengths: dict[int, list[int]] = {}
        self.left: Counter[tuple[str, int]] = Counter()
        self.running: Call | None = None
        self.device_s = 0.0

    @rule(wait_s=st.floats(0.0, 0.03))
    def time_passes(self, wait_s: float) -> None:
        self.now_s += wait_s

    @rule(tokens=st.integers(1, 20), slack_s=st.floats(0.0, 0.2), signature=st.integers(0, 1))
    def a_live_row_arrives(self, tokens: int, slack_s: float, signature: int) -> None:
        item = Item(self.next_key, self.now_s + slack_s, tokens, signature)
        self.next_key += 1
        self.waiting[item.key] = item
        self.policy.submit(item, self.now_s)

    @rule(
        lengths=st.lists(st.integers(1, 20), min_size=1, max_size=60),
        lane=st.sampled_from([Lane.MICRO, Lane.BATCH]),
        owed=st.booleans(),
        signature=st.integers(0, 1),
    )
    def a_block_arrives(self, lengths: list[int], lane: Lane, owed: bool, signature: int) -> None:
        self.blocks[self.next_key] = set(range(len(lengths)))
        self.signatures[self.next_key] = signature
        self.owed[self.next_key], self.lengths[self.next_key] = owed, lengths
        self.policy.submit_block(Block(self.next_key, lengths, lane, owed=owed, signature=signature), self.now_s)
        self.next_key += 1

    @rule(data=st.data())
    def something_is_cancelled(self, data: st.DataObject) -> None:
        key = data.draw(st.integers(0, self.next_key))
        if self.policy.cancel(key):
            assert self.waiting.pop(key).key == key
            self.left["live", key] += 1
        if rest := self.policy.cancel_block(key):
            self.take((rest,))

    @precondition(lambda self: self.running is None)
    @rule()
    def the_device_asks(self) -> None:
        had_live, had_background = bool(self.waiting), any(self.blocks.values())
        pace = self.policy.riders.pace(self.now_s)
        match self.policy.decide(self.now_s):
            case Run(call):
                self.check_length(call, pace)
                self.check_call(call)
                self.running = call
            case Drop(live, background):
                self.leave(live)
                self.take(background)
                assert live or background
            case Idle(until_s):
                assert not had_live, "idle while a live row waits"
                # Only after a slow spell, and not for long: the profile is believed again.
                slow = self.policy.curves.predict_s(CallSize.uniform(1, 20)) > self.policy.limits.budget_s
                slow |= self.policy.limits.live_slowdown is not None  # or to keep what a job may cost live rows
                assert not had_background or (slow and until_s is not None), "idle while background rows wait"

    def check_call(self, call: Call) -> None:
        limits = self.policy.limits
        signatures = {item.signature for item in call.live} | {self.signatures[part.block] for part in call.background}
        assert len(signatures) == 1, "rows of two signatures in a call"
        first = min(self.waiting.values(), key=lambda item: item.deadline_s, default=None)
        if not call.live and first is not None:  # only for rows that are owed a share and cannot ride along
            assert limits.min_share, "a background call while a live row waits"
            assert self.now_s + call.predicted_s <= first.deadline_s, "a live row becomes late by a share"
        elif first is not None:
            assert first.deadline_s == min(item.deadline_s for item in call.live), "the earliest row goes first"
        if call.background:
            assert call.predicted_s <= limits.budget_s + 1e-6, "I3"
        assert call.size.rows == len(call.live) + rows_of(call.background) <= limits.max_rows
        assert call.size.tokens <= max(limits.max_tokens, call.live[0].tokens if call.live else 0)
        latest_s = max((item.deadline_s for item in call.live), default=-math.inf)
        self.leave(call.live)
        alike = [item for item in self.waiting.values() if item.signature in signatures]
        assert all(latest_s <= item.deadline_s for item in alike), "deadline order"
        for item in call.live:
            assert self.now_s + call.predicted_s <= item.deadline_s + 1e-6, "launched to be late"
        self.take(call.background)

    def check_length(self, call: Call, pace: Pace) -> None:
        """Not longer than pays: without its last row it is below the knee, and live rows are not kept for long."""
        if (
            not call.background
            or self.policy.background.owed_blocks
            or any(self.owed[p.block] for p in call.background)
        ):
            return  # a share that is owed may have the budget
        background, last = call.background, call.background[-1]
        length = self.lengths[last.block][last.stop - 1]
        less = call.size._replace(
            rows=call.size.rows - 1, tokens=call.size.tokens - length, squares=call.size.squares - length**2
        )
        if call.live:
            alone_s = self.policy.curves.predict_s(CallSize.of(item.tokens for item in call.live))
            assert call.predicted_s <= max(alone_s, min(pace.call_s, alone_s + pace.ride_s)) + 1e-6
        elif rows_of(background) > 1:
            assert self.policy.curves.predict_s(less) <= pace.call_s, "longer than the knee, or the slowdown, needs"

    def leave(self, live: tuple[Item, ...]) -> None:
        for item in live:
            del self.waiting[item.key]
            self.left["live", item.key] += 1

    def take(self, slices: tuple[Slice, ...]) -> None:
        for part in slices:
            for row in range(part.start, part.stop):
                self.blocks[part.block].remove(row)

    @precondition(lambda self: self.running is not None)
    @rule(stretch=st.floats(0.5, 2.0))
    def the_call_ends(self, stretch: float) -> None:
        assert self.running is not None
        elapsed_s = self.running.predicted_s * stretch
        self.now_s += elapsed_s
        self.device_s += elapsed_s
        self.policy.finished(self.running, elapsed_s)
        self.running = None

    @invariant()
    def everything_leaves_at_most_once(self) -> None:
        assert all(count == 1 for count in self.left.values())

    @invariant()
    def the_books_sum_to_what_the_device_did(self) -> None:
        if hasattr(self, "policy"):
            charged_s = sum(use.device_s for use in self.policy.accounts.use.values())
            assert charged_s == pytest.approx(self.device_s, abs=1e-9)

    @invariant()
    def what_waits_is_what_the_policy_holds(self) -> None:
        if hasattr(self, "policy"):
            assert len(self.policy.live) == len(self.waiting)
            assert self.policy.background.rows() == sum(len(rows) for rows in self.blocks.values())
            assert sum(call.size.rows for call in self.policy.live.plan()) == len(self.waiting)


TestLanes = LanesMachine.TestCase
TestLanes.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_a_live_row_never_waits_for_company() -> None:
    policy = LanePolicy(COST, LIMITS)
    policy.submit(Item(1, 0.05), 0.0)
    assert [item.key for item in run_of(policy.decide(0.0)).live] == [1]


def test_background_rows_ride_along_up_to_the_budget() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=0.05, call_budget_s=0.008))
    policy.submit(Item(1, 0.05), 0.0)
    policy.submit_block(Block(2, [1] * 100), 0.0)
    call = run_of(policy.decide(0.0))
    assert (len(call.live), rows_of(call.background)) == (1, 15)
    assert call.predicted_s == pytest.approx(0.008)
    policy.finished(call, 0.008)
    assert policy.accounts.use[Lane.BATCH].riding_rows == 15


def test_riding_rows_never_make_a_waiting_live_row_late() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=4, slo_s=0.05))
    for key in range(8):
        policy.submit(Item(key, 0.0101 if key >= 4 else 0.04), 0.0)
    policy.submit_block(Block(99, [1] * 100), 0.0)
    call = run_of(policy.decide(0.0))
    assert [item.key for item in call.live] == [4, 5, 6, 7]
    assert not call.background


def test_a_row_that_cannot_make_it_is_dropped_and_its_place_is_filled() -> None:
    policy = LanePolicy(COST, LIMITS)
    policy.submit(Item(1, 0.001), 0.0)
    policy.submit(Item(2, 0.05), 0.0)
    dropped = policy.decide(0.0)
    assert isinstance(dropped, Drop)
    assert [item.key for item in dropped.live] == [1]
    assert [item.key for item in run_of(policy.decide(0.0)).live] == [2]


def test_without_a_live_endpoint_background_calls_fill_the_caps() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=512))
    policy.submit_block(Block(1, [1] * 1000), 0.0)
    assert run_of(policy.decide(0.0)).size.rows == 512


def test_a_background_row_that_no_call_may_hold_is_handed_back_even_under_live_load() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=0.05, call_budget_s=0.008))
    policy.submit_block(Block(7, [1000, 1]), 0.0)
    policy.submit(Item(1, 0.05), 0.0)
    refused = policy.decide(0.0)
    assert isinstance(refused, Drop)
    assert refused.background == (Slice(7, Lane.BATCH, 0, 1, 1000),)
    assert rows_of(run_of(policy.decide(0.0)).background) == 1


def test_beside_a_live_endpoint_a_background_call_ends_at_the_knee() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1024, slo_s=1.0))
    policy.submit_block(Block(1, [1] * 10_000), 0.0)
    call = run_of(policy.decide(0.0))
    best = 1024 / COST.seconds(CallSize.uniform(1024))
    assert 0.95 * best <= call.size.rows / call.predicted_s <= 0.955 * best
    assert call.predicted_s < 0.07  # of the 500 ms that the SLO leaves


def test_a_row_that_takes_longer_than_the_knee_and_fits_the_budget_runs_alone() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1024, slo_s=1.0))
    policy.submit_block(Block(1, [1000, 1000, 1]), 0.0)
    call = run_of(policy.decide(0.0))
    assert call.size.rows == 1
    assert 0.2 < call.predicted_s < policy.limits.budget_s


def test_the_length_that_a_user_sets_is_used() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1024, slo_s=1.0, call_budget_s=0.2))
    policy.submit_block(Block(1, [1] * 10_000), 0.0)
    assert run_of(policy.decide(0.0)).predicted_s == pytest.approx(0.2)


def test_the_row_that_reaches_the_knee_stays_with_its_block() -> None:
    policy = LanePolicy(CallCost.line(0.004, 0.003), LaneLimits(max_rows=1024, slo_s=0.05))
    policy.submit_block(Block(1, [2] * 10), 0.0)
    call = run_of(policy.decide(0.0))
    assert len(call.background) == 1
    assert call.background[0].stop == call.size.rows


def test_rows_suspected_of_failing_share_no_call_even_below_the_knee() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1024, slo_s=1.0))
    policy.submit_block(Block(1, [1], alone=True), 0.0)
    policy.submit_block(Block(2, [1] * 100), 0.0)
    assert run_of(policy.decide(0.0)).size.rows == 1


def test_riders_are_few_where_live_rows_are_rare_and_fill_the_call_where_they_are_many() -> None:
    riding = dict[float, int]()
    for gap_s in (0.0005, 0.5):
        policy = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=0.05))
        policy.submit_block(Block(-1, [1] * 100_000), 0.0)
        now_s, key = 0.0, 0
        for _ in range(300):
            while key * gap_s <= now_s:
                policy.submit(Item(key, key * gap_s + 0.05), key * gap_s)
                key += 1
            if isinstance(decision := policy.decide(now_s), Run):
                now_s += decision.call.predicted_s
                policy.finished(decision.call, decision.call.predicted_s)
                if decision.call.live:
                    riding[gap_s] = rows_of(decision.call.background)
    assert riding[0.5] <= 4  # what adds little to a call that costs 4 ms by itself
    assert riding[0.0005] >= 5


def test_micro_batches_go_before_batch_rows_and_earlier_deadlines_before_later_ones() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=3))
    policy.submit_block(Block(1, [1], Lane.BATCH, deadline_s=5.0), 0.0)
    policy.submit_block(Block(2, [1], Lane.BATCH, deadline_s=1.0), 0.0)
    policy.submit_block(Block(3, [1], Lane.MICRO, deadline_s=9.0), 0.0)
    assert [part.block for part in run_of(policy.decide(0.0)).background] == [3, 2, 1]


def test_the_budget_follows_a_device_that_slows_down() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1024, slo_s=0.05))
    policy.submit_block(Block(1, [1] * 10_000), 0.0)
    now_s = 0.0
    for _ in range(20):
        call = run_of(policy.decide(now_s))
        elapsed_s = 2 * COST.seconds(call.size)
        now_s += elapsed_s
        policy.finished(call, elapsed_s)
    call = run_of(policy.decide(now_s))
    assert 2 * COST.seconds(call.size) <= policy.limits.budget_s * 1.05


@pytest.mark.parametrize("signature", [0, 1])
@pytest.mark.parametrize(("share", "gap_s"), [(0.05, 0.0004), (0.1, 0.0002), (0.3, 0.0002)])
@pytest.mark.slow
def test_a_background_lane_that_is_owed_a_share_gets_it_and_no_more(share: float, gap_s: float, signature: int) -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=0.05, min_share=share))
    policy.submit_block(Block(-1, [1] * 10_000, owed=True, signature=signature), 0.0)
    now_s, key, device_s = 0.0, 0, 0.0
    for _ in range(600):
        while key * gap_s <= now_s:  # about once or twice what the device can do
            policy.submit(Item(key, key * gap_s + 0.05), key * gap_s)
            key += 1
        decision = policy.decide(now_s)
        if isinstance(decision, Run):
            elapsed_s = COST.seconds(decision.call.size)
            now_s += elapsed_s
            device_s += elapsed_s
            policy.finished(decision.call, elapsed_s)
        elif isinstance(decision, Idle):
            now_s += gap_s
    assert share * 0.9 <= policy.accounts.use[Lane.BATCH].device_s / device_s <= share + 0.03


def test_nothing_is_owed_unless_a_share_is_configured() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=4, slo_s=0.05))
    policy.submit_block(Block(-1, [1] * 100, owed=True), 0.0)
    now_s = 0.0
    for key in range(40):
        policy.submit(Item(key, 10.0), now_s)
    for _ in range(10):
        call = run_of(policy.decide(now_s))
        assert len(call.live) == 4
        policy.finished(call, call.predicted_s)
        now_s += call.predicted_s


def slow_spell(policy: LanePolicy, factor: float) -> float:
    """Calls that are `factor` times too slow, until the policy runs no more of them."""
    now_s = 0.0
    for _ in range(60):
        decision = policy.decide(now_s)
        if not isinstance(decision, Run):
            break
        elapsed_s = factor * COST.seconds(decision.call.size)
        now_s += elapsed_s
        policy.finished(decision.call, elapsed_s)
    return now_s


def test_a_slow_spell_drops_no_background_row_and_is_forgotten_after_a_silence() -> None:
    policy = LanePolicy(COST, LIMITS)
    policy.submit_block(Block(1, [1] * 10_000), 0.0)
    now_s = slow_spell(policy, 15.0)
    left = policy.background.rows()
    waiting = policy.decide(now_s)
    assert isinstance(waiting, Idle)
    assert waiting.until_s is not None
    assert isinstance(policy.decide(waiting.until_s), Run)
    assert left - policy.background.rows() == 28, "nothing was dropped meanwhile"


def test_a_live_call_never_lasts_over_half_of_the_slo() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1000, slo_s=0.05))
    for key in range(300):
        policy.submit(Item(key, 10.0), 0.0)
    call = run_of(policy.decide(0.0))
    assert call.predicted_s <= 0.025
    assert call.size.rows == 84


def test_after_the_cost_has_changed_waiting_rows_are_cut_anew() -> None:
    policy = LanePolicy(COST, LaneLimits(max_rows=1000, slo_s=0.05))
    policy.submit_block(Block(-1, [1] * 10_000), 0.0)
    slow_spell(policy, 2.0)
    for key in range(300):
        policy.submit(Item(key, 1000.0), 1.0)
    planned = policy.live.plan()[0]
    assert planned.predicted_s <= 0.025
    assert planned.size.rows < 50


def test_a_cautious_curve_is_what_decisions_are_made_with() -> None:
    scattered = CallCost(0.004, 0.00025, ratios=tuple(1 + 0.02 * i for i in range(-5, 6)))
    policy = LanePolicy(scattered, LaneLimits(max_rows=1000, slo_s=0.05))
    assert policy.curves.predict_s(CallSize.uniform(10)) == pytest.approx(1.08 * COST.seconds(CallSize.uniform(10)))


@given(st.floats(0.001, 10.0), st.floats(0.0, 0.9))
def test_two_calls_and_what_is_outside_fit_the_slo(slo_s: float, outside: float) -> None:
    limits = LaneLimits(slo_s=slo_s, outside_s=outside * slo_s)
    assert 2 * limits.budget_s + limits.outside_s == pytest.approx(slo_s)


def test_a_key_that_waits_already_is_refused() -> None:
    policy = LanePolicy(COST, LIMITS)
    policy.submit(Item(1, 1.0), 0.0)
    with pytest.raises(InvalidInput, match="no queued row has"):
        policy.submit(Item(1, 2.0), 0.0)
    assert len(policy.live) == 1


def test_a_call_that_does_not_run_cannot_finish() -> None:
    policy = LanePolicy(COST, LIMITS)
    with pytest.raises(InvalidInput, match="running"):
        policy.finished(Call(0, (), (), CallSize.uniform(1), 0.1), 0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_rows": 0},
        {"slo_s": 0.0},
        {"slo_s": math.inf},
        {"call_budget_s": 0.0},
        {"min_share": 0.7},
        {"slo_s": 0.1, "live_slowdown": 0.9},
        {"slo_s": 0.1, "live_slowdown": math.nan},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        LaneLimits(**wrong)  # pyright: ignore[reportArgumentType]


# Two slots: live calls overtake

TWO_SLOTS = replace(LIMITS, background_depth=2)


def test_live_calls_that_are_slow_beside_background_calls_do_not_shrink_those() -> None:
    policy = LanePolicy(COST, TWO_SLOTS)
    policy.submit_block(Block(0, [1] * 10_000), 0.0)
    before = run_of(policy.decide(0.0, Slot.BACKGROUND))
    for key in range(1, 30):
        policy.submit(Item(key, key + 0.05, 1), float(key))
        call = run_of(policy.decide(float(key), Slot.LIVE))
        policy.finished(call, 3 * COST.seconds(call.size))
    assert run_of(policy.decide(40.0, Slot.BACKGROUND)).size == before.size
    assert policy.curves.predict_s(before.size) > 2 * policy.curves.predict_s(before.size, Slot.BACKGROUND)


def test_with_a_slot_for_each_lane_live_rows_do_not_wait_for_background_calls() -> None:
    policy = LanePolicy(COST, TWO_SLOTS)
    policy.submit_block(Block(0, [1] * 1000), 0.0)
    queued = [policy.decide(0.0, Slot.BACKGROUND) for _ in range(3)]
    assert [type(decision) for decision in queued] == [Run, Run, Idle]  # two keep the device fed
    assert policy.running.busy_until_s(0.0) == 0.0
    policy.submit(Item(1, 0.05, 1), 0.001)
    decision = policy.decide(0.001, Slot.LIVE)
    assert isinstance(decision, Run)
    assert [item.key for item in decision.call.live] == [1]
    assert decision.call.background == ()  # on a straight line every row costs something
    assert policy.running.busy_until_s(0.001) == pytest.approx(0.001 + decision.call.predicted_s)
    policy.finished(decision.call, 0.004)
    assert isinstance(policy.decide(0.005, Slot.BACKGROUND), Idle)
    assert isinstance(queued[0], Run)
    policy.finished(queued[0].call, 0.02, device_s=0.018)
    assert isinstance(policy.decide(0.005, Slot.BACKGROUND), Run)
    assert policy.accounts.use[Lane.BATCH].device_s == pytest.approx(0.018)


def test_in_the_live_slot_background_rows_ride_only_where_they_cost_nothing() -> None:
    flat = CallCost(0.0, 0.001, floor_s=0.010)  # flat up to ten tokens
    policy = LanePolicy(flat, TWO_SLOTS)
    policy.submit_block(Block(0, [1] * 1000), 0.0)
    policy.submit(Item(1, 0.05, 4), 0.0)
    decision = policy.decide(0.0, Slot.LIVE)
    assert isinstance(decision, Run)
    assert sum(part.stop - part.start for part in decision.call.background) == 6


def test_background_calls_in_their_own_slot_stay_within_the_budget() -> None:
    policy = LanePolicy(COST, TWO_SLOTS)
    policy.submit_block(Block(0, [1] * 1000), 0.0)
    decision = policy.decide(0.0, Slot.BACKGROUND)
    assert isinstance(decision, Run)
    assert decision.call.predicted_s <= policy.limits.budget_s
