from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.governor import GovernorPolicy
from twoshift.policy.governor_values import BackgroundSequence, GovernorDecision, GovernorSettings, LiveLoad
from twoshift.types import CallSize


@dataclass(frozen=True)
class Hinge:
    """A step that is flat until the device fills, then linear in sequences and tokens."""

    floor_s: float = 0.010
    overhead_s: float = 0.004
    row_s: float = 0.0002
    token_s: float = 0.00002
    square_s: float = 0.0

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        line = self.overhead_s + self.row_s * size.rows + self.token_s * size.tokens
        return max(self.floor_s, line + self.square_s * size.squares) * (0.75 + quantile / 2)


UNTIMED = settings(deadline=None)  # a busy machine is not a failure
SETTINGS = GovernorSettings(tpot_s=0.020, kv_capacity_tokens=10_000, quantile=0.9)  # a mark of 8,000 tokens
LIVE = LiveLoad(running=4, kv_tokens=1000)
IDLE = LiveLoad()

costs = st.builds(
    Hinge,
    floor_s=st.floats(0, 0.03),
    overhead_s=st.floats(0, 0.03),
    row_s=st.floats(0, 0.002),
    token_s=st.floats(0, 0.0005),
    square_s=st.sampled_from([0.0, 1e-8, 1e-6]),
)
lives = st.one_of(
    st.just(IDLE),
    st.builds(
        LiveLoad,
        running=st.integers(0, 120),
        kv_tokens=st.integers(0, 9000),
        waiting=st.integers(0, 20),
        waiting_kv_tokens=st.integers(0, 2000),
        prefill_tokens=st.integers(0, 1500),
    ),
)
prompts = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 800)), max_size=60)


def prompt(key: int, prompt_tokens: int = 100, max_tokens: int = 100) -> BackgroundSequence:
    return BackgroundSequence(key, prompt_tokens, max_tokens)


def decoding(key: int, generated: int = 0, prompt_tokens: int = 100, max_tokens: int = 100) -> BackgroundSequence:
    return BackgroundSequence(key, prompt_tokens, max_tokens, prompt_tokens, generated)


class Engine:
    """Carries decisions out, as an engine would, one step at a time."""

    def __init__(self, policy: GovernorPolicy, waiting: list[BackgroundSequence]) -> None:
        self.policy = policy
        self.waiting = waiting
        self.running: list[BackgroundSequence] = []
        self.finished: list[int] = []
        self.aborts = Counter[int]()

    def step(self, live: LiveLoad, now_s: float) -> GovernorDecision:
        decision = self.policy.decide(live, tuple(self.running), tuple(self.waiting), now_s)
        self.aborts.update(decision.abort)
        aborted = [each.requeued() for each in self.running if each.key in decision.abort]
        admitted = [each for each in self.waiting if each.key in decision.admit]
        self.waiting = aborted + [each for each in self.waiting if each.key not in decision.admit]
        self.running = [each for each in self.running if each.key not in decision.abort] + admitted
        return decision

    def advance(self, most_tokens: int) -> None:
        moved: list[BackgroundSequence] = []
        for each in self.running:
            read = min(most_tokens, each.prefill_left_tokens)
            grown = each.generated_tokens + (each.prefill_left_tokens == 0)
            moved.append(replace(each, prefilled_tokens=each.prefilled_tokens + read, generated_tokens=grown))
        self.finished += [each.key for each in moved if each.generated_tokens >= each.max_tokens]
        self.running = [each for each in moved if each.generated_tokens < each.max_tokens]

    def reading(self, most_tokens: int) -> list[int]:
        """What a step reads of each background prompt."""
        left = (each.prefill_left_tokens for each in self.running)
        return [min(most_tokens, each) for each in left if each]


def run(engine: Engine, live: Callable[[int], LiveLoad], steps: int, step_s: float = 0.02) -> list[GovernorDecision]:
    decisions: list[GovernorDecision] = []
    for number in range(steps):
        decisions.append(engine.step(live(number), number * step_s))
        engine.advance(decisions[-1].prefill_tokens)
    return decisions


@UNTIMED
@given(costs, prompts, st.lists(st.tuples(lives, st.floats(0, 3)), max_size=25))
def test_step_time_and_kv_use_keep_their_bounds_for_any_load_sequence(
    cost: Hinge, waiting: list[tuple[int, int]], loads: list[tuple[LiveLoad, float]]
) -> None:
    policy = GovernorPolicy(cost, SETTINGS)
    engine, now_s = Engine(policy, [prompt(n, *sizes) for n, sizes in enumerate(waiting)]), 0.0
    for live, wait_s in loads:
        now_s += wait_s
        decision = engine.step(live, now_s)
        kv = live.kv_tokens + live.waiting_kv_tokens + sum(each.kv_tokens for each in engine.running)
        decoded_s = policy.predicted_s(replace(live, prefill_tokens=0), len(engine.running), 0, 0)
        reading = engine.reading(decision.prefill_tokens)
        step_s = policy.predicted_s(live, len(engine.running), len(reading), sum(reading))
        if engine.running:
            assert kv <= 8000
            assert live.is_idle or decoded_s <= SETTINGS.tpot_s
            assert live.running + live.waiting + len(engine.running) <= SETTINGS.max_sequences
        if reading and not live.is_idle:
            assert decision.prefill_tokens >= live.prefill_tokens, "live prompts are read whole"
            least = live.prefill_tokens or 1
            stays = any(engine.aborts[each.key] >= 4 for each in engine.running if each.prefill_left_tokens)
            reads_least = not live.prefill_tokens and decision.prefill_tokens == least
            assert step_s <= SETTINGS.tpot_s or reads_least or stays
            assert decision.prefill_tokens == least or sum(reading) <= SETTINGS.prefill_tokens
        assert bool(decision.prefill_tokens) == bool(reading)
        assert not (decision.admit and decision.abort), "never both"
        engine.advance(decision.prefill_tokens)


@UNTIMED
@given(costs, prompts, st.lists(lives, max_size=25))
def test_no_sequence_is_lost_or_held_twice_and_none_is_charged_for_more_cache_after_an_abort(
    cost: Hinge, waiting: list[tuple[int, int]], loads: list[LiveLoad]
) -> None:
    engine = Engine(GovernorPolicy(cost, SETTINGS), [prompt(n, *sizes) for n, sizes in enumerate(waiting)])
    for number, live in enumerate(loads):
        engine.advance(engine.step(live, float(number)).prefill_tokens)
        held = [each.key for each in (*engine.running, *engine.waiting)]
        assert sorted(held + engine.finished) == list(range(len(waiting)))
        for each in (*engine.running, *engine.waiting):
            assert each.kv_tokens == sum(waiting[each.key])


@UNTIMED
@given(costs, prompts, lives)
def test_under_a_constant_load_nothing_that_was_admitted_is_aborted(
    cost: Hinge, waiting: list[tuple[int, int]], live: LiveLoad
) -> None:
    engine = Engine(GovernorPolicy(cost, SETTINGS), [prompt(n, *sizes) for n, sizes in enumerate(waiting)])
    decisions = run(engine, lambda _: live, steps=60)
    assert [decision.abort for decision in decisions if decision.abort] == []


@UNTIMED
@given(costs, prompts, lives)
def test_after_a_change_of_load_there_is_at_most_one_round_of_aborts(
    cost: Hinge, waiting: list[tuple[int, int]], live: LiveLoad
) -> None:
    engine = Engine(GovernorPolicy(cost, SETTINGS), [prompt(n, *sizes) for n, sizes in enumerate(waiting)])
    run(engine, lambda _: IDLE, steps=5)
    decisions = [engine.step(live, 10.0 + number) for number in range(20)]
    assert all(not decision.abort for decision in decisions[1:])


def test_the_cache_is_given_back_in_the_very_decision_that_sees_live_load() -> None:
    engine = Engine(GovernorPolicy(Hinge(), SETTINGS), [prompt(n) for n in range(200)])
    run(engine, lambda _: IDLE, steps=20)
    assert sum(each.kv_tokens for each in engine.running) == 8000, "idle: up to the mark"
    decision = engine.step(LiveLoad(running=1, kv_tokens=3000), 1.0)
    assert len(decision.abort) == 15
    assert sum(each.kv_tokens for each in engine.running) == 5000


def test_waiting_live_requests_count_before_they_run() -> None:
    policy = GovernorPolicy(Hinge(), SETTINGS)
    running = [decoding(n) for n in range(40)]
    assert len(policy.decide(LiveLoad(waiting=1, waiting_kv_tokens=200), running, [], 0.0).abort) == 1


def test_waiting_live_requests_take_their_place_in_the_step_and_in_the_engine() -> None:
    running = [decoding(n, prompt_tokens=1, max_tokens=1) for n in range(30)]
    one_each = Hinge(floor_s=0.0, overhead_s=0.0, row_s=0.001, token_s=0.0)  # 0.0012 s a row at the quantile
    assert len(GovernorPolicy(one_each, SETTINGS).decide(LiveLoad(waiting=6), running, [], 0.0).abort) == 20
    few = replace(SETTINGS, max_sequences=31)
    assert len(GovernorPolicy(Hinge(), few).decide(LiveLoad(waiting=6), running, [], 0.0).abort) == 5


def test_background_is_zero_where_live_load_alone_exceeds_a_bound() -> None:
    running, waiting = [decoding(n) for n in range(5)], [prompt(9)]
    for live in (LiveLoad(running=200, kv_tokens=100), LiveLoad(running=1, kv_tokens=8001)):
        decision = GovernorPolicy(Hinge(), SETTINGS).decide(live, running, waiting, 0.0)
        assert sorted(decision.abort) == [0, 1, 2, 3, 4]
        assert (decision.admit, decision.prefill_tokens) == ((), 0)


def test_without_live_load_the_step_bound_is_the_idle_one_and_may_be_none() -> None:
    slow = Hinge(floor_s=0.05)
    assert GovernorPolicy(slow, SETTINGS).decide(LIVE, [], [prompt(1)], 0.0).admit == ()
    assert GovernorPolicy(slow, SETTINGS).decide(IDLE, [], [prompt(1)], 0.0).admit == (1,)
    bounded = replace(SETTINGS, idle_step_s=0.04)
    assert GovernorPolicy(slow, bounded).decide(IDLE, [], [prompt(1)], 0.0).admit == ()


def test_live_load_that_has_just_gone_still_counts_for_a_moment() -> None:
    policy = GovernorPolicy(Hinge(floor_s=0.05), SETTINGS)
    policy.decide(LIVE, [], [prompt(1)], 0.0)
    assert policy.decide(IDLE, [], [prompt(1)], 0.5).admit == ()
    assert policy.decide(IDLE, [], [prompt(1)], 1.0).admit == (1,)


def test_those_with_least_to_lose_are_aborted_first() -> None:
    running = [decoding(0, generated=50), decoding(1, generated=5), prompt(2), decoding(3, generated=20)]
    live = LiveLoad(running=1, kv_tokens=7500)
    assert GovernorPolicy(Hinge(), SETTINGS).decide(live, running, [], 0.0).abort == (2, 1)


def test_none_is_aborted_where_another_frees_enough() -> None:
    running = [decoding(0, prompt_tokens=10, max_tokens=10), decoding(1, prompt_tokens=1000, max_tokens=500)]
    live = LiveLoad(running=1, kv_tokens=7000)
    assert GovernorPolicy(Hinge(), SETTINGS).decide(live, running, [], 0.0).abort == (1,)


@UNTIMED
@given(costs, st.lists(st.tuples(st.integers(1, 900), st.integers(0, 90)), min_size=1, max_size=40), lives)
def test_no_abort_is_needless(cost: Hinge, sizes: list[tuple[int, int]], live: LiveLoad) -> None:
    policy = GovernorPolicy(cost, replace(SETTINGS, kv_capacity_tokens=30_000))
    running = {n: decoding(n, generated, size, 100) for n, (size, generated) in enumerate(sizes)}
    aborted = policy.decide(live, list(running.values()), [], 0.0).abort
    kept = [each for key, each in running.items() if key not in aborted]
    for key in aborted:
        kv = live.kv_tokens + live.waiting_kv_tokens + sum(s.kv_tokens for s in [*kept, running[key]])
        too_slow = not live.is_idle and policy.predicted_s(live, len(kept) + 1, 0, 0) > SETTINGS.tpot_s
        assert kv > 24_000 or too_slow


def test_an_aborted_sequence_keeps_what_it_generated_as_its_prefix() -> None:
    again = decoding(7, generated=30).requeued()
    assert again == BackgroundSequence(7, prompt_tokens=130, max_tokens=70)
    assert again.prefill_left_tokens == 130


def test_nothing_is_admitted_right_after_an_abort() -> None:
    policy = GovernorPolicy(Hinge(), SETTINGS)
    running = [decoding(n) for n in range(40)]
    assert policy.decide(LIVE, running, [prompt(99)], 0.0).abort
    assert policy.decide(IDLE, [], [prompt(99)], 0.9).admit == ()
    assert policy.decide(IDLE, [], [prompt(99)], 1.0).admit == (99,)


def test_a_ripple_in_the_live_load_aborts_nothing() -> None:
    engine = Engine(GovernorPolicy(Hinge(), SETTINGS), [prompt(n, 50, 400) for n in range(100)])
    ripple = [LiveLoad(running=n, kv_tokens=150 * n) for n in (20, 22, 21, 19, 22, 18)]
    decisions = run(engine, lambda number: ripple[number % 6], steps=1000)
    assert [decision.abort for decision in decisions if decision.abort] == []
    assert engine.finished, "and work gets done beside it"


@UNTIMED
@given(costs, lives, st.integers(1, 3000), st.integers(1, 800))
def test_if_there_is_room_for_one_it_is_admitted(cost: Hinge, live: LiveLoad, size: int, more: int) -> None:
    policy = GovernorPolicy(cost, SETTINGS)
    share = 1.0 if live.is_idle else SETTINGS.admit_share
    fits_kv = size + more + live.kv_tokens + live.waiting_kv_tokens <= int(8000 * share)
    read = min(size, max(16, live.prefill_tokens))
    reads_s, decodes_s = policy.predicted_s(live, 1, 1, read), policy.predicted_s(live.decoding(), 1, 0, 0)
    fits_step = live.is_idle or (reads_s <= SETTINGS.tpot_s and decodes_s <= SETTINGS.tpot_s * share)
    assert bool(policy.decide(live, [], [prompt(1, size, more)], 0.0).admit) == (fits_kv and fits_step)


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 60)), min_size=1, max_size=8))
def test_every_prompt_is_finished_in_the_end_beside_a_steady_live_load(sizes: list[tuple[int, int]]) -> None:
    engine = Engine(GovernorPolicy(Hinge(), SETTINGS), [prompt(n, *each) for n, each in enumerate(sizes)])
    run(engine, lambda _: LIVE, steps=1000)
    assert sorted(engine.finished) == list(range(len(sizes)))


def test_prompts_that_are_read_get_at_least_a_token_a_step_however_tight_the_bound() -> None:
    policy = GovernorPolicy(Hinge(), SETTINGS)
    live = LiveLoad(running=40, kv_tokens=100)
    running = [*(decoding(n) for n in range(10)), prompt(98), prompt(99)]
    kept = len(running) - len(policy.decide(live, running, [], 0.0).abort)
    assert kept == 12
    tight = replace(SETTINGS, tpot_s=policy.predicted_s(live, 12, 0, 0))
    assert 1 <= GovernorPolicy(Hinge(), tight).decide(live, running, [], 0.0).prefill_tokens <= 2


def test_a_long_background_prompt_is_rationed_beside_live_streams() -> None:
    roomy = replace(SETTINGS, kv_capacity_tokens=100_000)
    long = prompt(1, prompt_tokens=20_000)
    assert GovernorPolicy(Hinge(token_s=0.0), roomy).decide(LIVE, [], [long], 0.0).prefill_tokens == 512
    assert 16 <= GovernorPolicy(Hinge(token_s=0.0001), roomy).decide(LIVE, [long], [], 0.0).prefill_tokens < 512
    assert GovernorPolicy(Hinge(), roomy).decide(IDLE, [], [long], 0.0).prefill_tokens == 20_000, "nobody waits"
    bounded = replace(roomy, idle_step_s=0.04)
    assert 512 < GovernorPolicy(Hinge(), bounded).decide(IDLE, [], [long], 0.0).prefill_tokens < 8192


def test_prompts_queue_outside_the_engine_while_its_ration_is_spent() -> None:
    waiting = [prompt(n, prompt_tokens=250) for n in range(10)]
    policy = GovernorPolicy(Hinge(), SETTINGS)
    assert policy.decide(LIVE, [], waiting, 0.0).admit == (0, 1), "a third would not be read whole in the same step"
    assert policy.decide(LIVE, waiting[:2], waiting[2:], 0.1).admit == ()


def test_a_prompt_that_can_never_fit_is_named_and_blocks_nobody() -> None:
    decision = GovernorPolicy(Hinge(), SETTINGS).decide(LIVE, [], [prompt(1, 7000, 1001), prompt(2)], 0.0)
    assert (decision.too_large, decision.admit) == ((1,), (2,))


def test_a_large_first_prompt_is_passed_for_a_while_and_then_waited_for() -> None:
    policy = GovernorPolicy(Hinge(), SETTINGS)
    running, waiting = [decoding(n) for n in range(10)], [prompt(90, 4000, 1000), prompt(91)]
    assert policy.decide(LIVE, running, waiting, 0.0).admit == (91,)
    assert policy.decide(LIVE, running, waiting, 9.0).admit == (91,)
    assert policy.decide(LIVE, running, waiting, 10.0).admit == ()
    assert 90 in policy.decide(LIVE, [], waiting, 11.0).admit
    full = LiveLoad(running=4, kv_tokens=4000)
    for now_s in (20.0, 50.0):
        assert policy.decide(full, running, waiting, now_s).admit == (91,), "no use waiting for room live holds"


@UNTIMED
@given(costs, prompts, st.lists(lives, max_size=15))
def test_the_same_load_gives_the_same_decisions(
    cost: Hinge, waiting: list[tuple[int, int]], loads: list[LiveLoad]
) -> None:
    sequences = [prompt(n, *sizes) for n, sizes in enumerate(waiting)]
    one, other = (Engine(GovernorPolicy(cost, SETTINGS), list(sequences)) for _ in range(2))
    for number, live in enumerate(loads):
        assert one.step(live, number * 0.3) == other.step(live, number * 0.3)
        one.advance(64)
        other.advance(64)


@pytest.mark.parametrize("name", ["tpot_s", "kv_capacity_tokens", "kv_mark", "admit_share", "quantile", "idle_step_s"])
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        replace(SETTINGS, **{name: -1})


def test_a_negative_load_is_refused() -> None:
    with pytest.raises(InvalidInput, match="running"):
        LiveLoad(running=-1)


def test_prompts_that_are_read_at_once_share_the_ration_of_the_step() -> None:
    policy = GovernorPolicy(Hinge(token_s=0.0001), SETTINGS)
    alone = policy.decide(LIVE, [prompt(0, 300)], [], 0.0).prefill_tokens
    together = policy.decide(LIVE, [prompt(key, 300) for key in range(4)], [], 0.0).prefill_tokens
    assert 4 * together <= alone < 300
    assert policy.predicted_s(LIVE, 4, 4, 4 * (together + 1)) > SETTINGS.tpot_s, "and none of it is left"


def test_a_live_prompt_is_read_whole_and_those_of_the_background_wait_outside_for_it() -> None:
    policy = GovernorPolicy(Hinge(token_s=0.0001), SETTINGS)
    running = [*(decoding(key) for key in range(10)), prompt(20, 300), prompt(21, 50)]
    arrived = LiveLoad(running=2, waiting=1, prefill_tokens=200)
    decision = policy.decide(arrived, running, [prompt(30)], 0.0)
    assert (sorted(decision.abort), decision.prefill_tokens, decision.admit) == ([20, 21], 0, ())
    begun = LiveLoad(running=3)
    back = policy.decide(begun, running[:10], [prompt(20, 300)], 0.01)
    assert back.admit == (20,), "and come back with its first token"


def test_a_short_background_prompt_is_read_beside_a_live_one_where_the_step_has_time_for_both() -> None:
    arrived = LiveLoad(running=2, waiting=1, prefill_tokens=64)
    decision = GovernorPolicy(Hinge(), SETTINGS).decide(arrived, [prompt(0, 300), decoding(1)], [prompt(2)], 0.0)
    assert (decision.abort, decision.admit) == ((), (2,))
    assert decision.prefill_tokens >= 64


def test_a_live_prompt_that_no_step_can_hold_takes_out_none_that_are_decoded() -> None:
    policy = GovernorPolicy(Hinge(token_s=0.001), SETTINGS)
    running = [decoding(key) for key in range(5)]
    assert policy.predicted_s(arrived := LiveLoad(waiting=1, prefill_tokens=500), 0, 0, 0) > SETTINGS.tpot_s
    assert policy.decide(arrived, running, [], 0.0).abort == ()


def test_steps_are_filled_so_that_with_those_that_read_live_prompts_the_average_keeps_the_objective() -> None:
    policy = GovernorPolicy(Hinge(floor_s=0.0, token_s=0.0001), replace(SETTINGS, kv_capacity_tokens=10**6))
    engine = Engine(policy, [prompt(key, 2000, 5) for key in range(100)])
    took_s: list[float] = []
    for number in range(400):
        arrived = number % 8 == 0
        live = LiveLoad(running=4, waiting=int(arrived), prefill_tokens=200 * arrived)
        decision = engine.step(live, 0.02 * number)
        reading = engine.reading(decision.prefill_tokens)
        took_s.append(policy.predicted_s(live, len(engine.running), len(reading), sum(reading)))
        policy.stepped(took_s[-1])
        engine.advance(decision.prefill_tokens)
    assert max(took_s) > SETTINGS.tpot_s, "a live prompt is read at once"
    lately = took_s[80:]
    assert 0.8 * SETTINGS.tpot_s <= sum(lately) / len(lately) <= 1.01 * SETTINGS.tpot_s, "but for what is lent"
    assert engine.finished, "and a long prompt comes to its end, though it has left for live ones"
    assert max(engine.aborts.values()) == 4


def test_what_steps_took_beyond_the_objective_others_give_back_and_no_more_than_that() -> None:
    policy = GovernorPolicy(Hinge(floor_s=0.0, token_s=0.0001), SETTINGS)
    usual = policy.decide(LIVE, [prompt(0, 300)], [], 0.0).prefill_tokens
    for _ in range(10):
        policy.stepped(2 * SETTINGS.tpot_s)
    assert policy.decide(LIVE, [prompt(0, 300)], [], 0.0).prefill_tokens < usual
    for _ in range(10):
        policy.stepped(0.0)
    assert policy.decide(LIVE, [prompt(0, 300)], [], 0.0).prefill_tokens == usual
    for _ in range(1000):
        policy.stepped(0.5 * SETTINGS.tpot_s)
    assert policy.decide(LIVE, [prompt(0, 300)], [], 0.0).prefill_tokens == usual, "nothing is saved up"


def test_prompts_go_on_coming_in_after_sequences_have_left_their_places_to_live_ones() -> None:
    """Live streams come beside a job that has all places; to wait after that would empty the engine."""
    policy = GovernorPolicy(Hinge(), replace(SETTINGS, max_sequences=40, kv_capacity_tokens=10**6))
    running = [decoding(key) for key in range(40)]
    assert len(policy.decide(LiveLoad(waiting=2), running, [], 0.0).abort) == 2
    assert policy.decide(LiveLoad(running=2), running[:30], [prompt(99, 10, 10)], 0.1).admit == (99,)


def test_where_the_slowdown_is_bounded_nobody_is_let_in_while_a_live_request_waits_for_its_first_token() -> None:
    """What the interpreter does for others before the next step, a first token waits for."""
    bounded = GovernorPolicy(Hinge(), replace(SETTINGS, live_slowdown=1.5))
    assert bounded.decide(LiveLoad(running=1, waiting=1), [], [prompt(0, 10, 10)], 0.0).admit == ()
    assert bounded.decide(LiveLoad(running=2), [], [prompt(0, 10, 10)], 0.1).admit == (0,)
    free = GovernorPolicy(Hinge(), SETTINGS)
    assert free.decide(LiveLoad(running=1, waiting=1), [], [prompt(0, 10, 10)], 0.0).admit == (0,)


def test_places_are_left_for_the_next_live_sequences() -> None:
    few = GovernorPolicy(Hinge(), replace(SETTINGS, max_sequences=20))
    waiting = [prompt(key, 10, 10) for key in range(30)]
    assert len(few.decide(LIVE, [], waiting, 0.0).admit) == 14, "four are live, two places stay free"
    assert len(few.decide(IDLE, [], waiting, 5.0).admit) == 20


def test_one_prompt_that_is_longer_than_the_ration_may_stay() -> None:
    policy = GovernorPolicy(Hinge(), SETTINGS)
    assert policy.decide(LIVE, [prompt(0, 3000)], [], 0.0).abort == ()


@UNTIMED
@given(cost=costs, live=lives, waiting=prompts, slowdown=st.floats(1.0, 4.0))
def test_no_step_beside_live_streams_is_longer_than_the_slowdown_allows(
    cost: Hinge, live: LiveLoad, waiting: list[tuple[int, int]], slowdown: float
) -> None:
    policy = GovernorPolicy(cost, replace(SETTINGS, live_slowdown=slowdown))
    sequences = [prompt(key, *each) for key, each in enumerate(waiting)]
    decision = policy.decide(live, [], sequences, 0.0)
    if live.is_idle or not decision.admit:
        return
    alone_s = policy.predicted_s(live.decoding(), 0, 0, 0)
    beside_s = policy.predicted_s(live.decoding(), len(decision.admit), 0, 0)
    assert beside_s <= slowdown * alone_s * (1 + 1e-9)


def test_a_small_slowdown_still_leaves_room_where_sequences_cost_little() -> None:
    cost = Hinge(floor_s=0.0, overhead_s=0.010, row_s=0.0001, token_s=0.0)
    policy = GovernorPolicy(cost, replace(SETTINGS, live_slowdown=1.05))
    decision = policy.decide(LIVE, [], [prompt(key, 4, 4) for key in range(60)], 0.0)
    assert 3 <= len(decision.admit) <= 5  # 5 % of 10.4 ms


def test_a_slowdown_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="live_slowdown"):
        replace(SETTINGS, live_slowdown=0.9)


@pytest.mark.parametrize(("slowdown", "leaves"), [(float("inf"), 4), (1.05, 64)])
def test_a_prompt_leaves_for_live_ones_more_often_where_their_slowdown_is_bounded(slowdown: float, leaves: int) -> None:
    policy = GovernorPolicy(Hinge(token_s=0.0001), replace(SETTINGS, live_slowdown=slowdown))
    arrived, left = LiveLoad(running=2, waiting=1, prefill_tokens=200), 0
    while policy.decide(arrived, [prompt(0, 300)], [], float(left)).abort:
        left += 1
    assert left == leaves


READING = CallCost(0.004, 20e-6, per_row_s=20e-6, reading_s=0.012)  # as on a GPU: a step that reads costs by itself


@pytest.mark.parametrize(
    ("places", "tokens", "begins"),
    [(1, 30, 0), (7, 30, 0), (8, 30, 8), (1, 200, 0), (1, 310, 1), (2, 200, 2)],
)
def test_prompts_wait_for_others_until_their_tokens_are_worth_what_it_takes_to_read_at_all(
    places: int, tokens: int, begins: int
) -> None:
    policy = GovernorPolicy(READING, replace(SETTINGS, kv_capacity_tokens=10**6, max_sequences=200))
    running = [decoding(key) for key in range(200 - places)]
    waiting = [prompt(1000 + key, tokens) for key in range(20)]
    assert len(policy.decide(IDLE, running, waiting, 5.0).admit) == begins


def test_prompts_wait_for_no_others_where_it_costs_nothing_to_read() -> None:
    policy = GovernorPolicy(CallCost(0.004, 20e-6), replace(SETTINGS, kv_capacity_tokens=10**6, max_sequences=200))
    running, waiting = [decoding(key) for key in range(199)], [prompt(1000 + key, 30) for key in range(20)]
    assert policy.decide(IDLE, running, waiting, 5.0).admit == (1000,)


def test_the_last_prompts_wait_for_no_others() -> None:
    policy = GovernorPolicy(READING, replace(SETTINGS, kv_capacity_tokens=10**6, max_sequences=200))
    assert policy.decide(IDLE, [decoding(key) for key in range(199)], [prompt(1000, 30)], 5.0).admit == (1000,)


def test_a_step_with_a_live_prompt_does_not_keep_later_ones_from_reading() -> None:
    policy = GovernorPolicy(READING, replace(SETTINGS, tpot_s=0.04, kv_capacity_tokens=10**6))
    waiting = [prompt(key, 250) for key in range(20)]
    decided = [  # every second step reads a live prompt, and none is longer than the objective
        policy.decide(
            LiveLoad(running=4, waiting=number % 2, prefill_tokens=250 * (number % 2)), [], waiting, 0.02 * number
        )
        for number in range(64)
    ]
    assert decided[-1].prefill_tokens == 250
    assert len(decided[-1].admit) >= 2


def test_prompts_wait_until_steps_have_saved_what_it_takes_to_read_them_whole() -> None:
    policy = GovernorPolicy(READING, replace(SETTINGS, tpot_s=0.1, live_slowdown=1.2))
    live, waiting, steps = LiveLoad(running=8), [prompt(key, 250) for key in range(20)], 0
    alone_s = policy.predicted_s(live, 0, 0, 0)
    while not (decision := policy.decide(live, [], waiting, 0.0)).admit:
        steps += 1
        policy.stepped(alone_s, 8)
    read_s = policy.predicted_s(live, 1, 1, 250) - alone_s
    assert read_s <= (0.8 * steps + 1) * 0.2 * alone_s <= read_s + 0.2 * alone_s, "the step's own part among it"
    assert decision.prefill_tokens == 250
    running = [replace(decoding(key), generated_tokens=1) for key in decision.admit]
    assert policy.decide(live, running, waiting[len(running) :], 0.0).admit == (), "and that is spent"


def test_prompts_come_in_token_by_token_where_all_that_may_be_saved_is_too_little() -> None:
    policy = GovernorPolicy(READING, replace(SETTINGS, live_slowdown=1.02, admit_prefill_tokens=1))
    waiting, live = [prompt(key, 250) for key in range(20)], LiveLoad(running=8)
    while not (decision := policy.decide(live, [], waiting, 0.0)).admit:
        policy.stepped(policy.predicted_s(live, 0, 0, 0), 8)
    assert decision.prefill_tokens == 1


@pytest.mark.parametrize(("streams", "slowdown"), [(1, 1.05), (8, 1.05), (24, 1.05), (8, 1.2), (8, 2.0)])
def test_steps_are_no_slower_on_the_average_than_a_slowdown_allows(streams: int, slowdown: float) -> None:
    settings = replace(SETTINGS, tpot_s=0.1, kv_capacity_tokens=10**6, live_slowdown=slowdown)
    policy = GovernorPolicy(READING, settings)
    engine, took_s = Engine(policy, [prompt(key, 250, 128) for key in range(1000)]), list[float]()
    live = LiveLoad(running=streams)
    for number in range(4000):
        decision = engine.step(live, 0.01 * number)
        reading = engine.reading(decision.prefill_tokens)
        took_s.append(policy.predicted_s(live, len(engine.running), len(reading), sum(reading)))
        policy.stepped(took_s[-1], 0 if reading else streams)
        engine.advance(decision.prefill_tokens)
    alone_s = policy.predicted_s(live, 0, 0, 0)
    assert sum(took_s) / len(took_s) <= slowdown * alone_s
    assert sum(took_s) / len(took_s) >= (1 + 0.6 * (slowdown - 1)) * alone_s, "and it is made use of"
    assert not engine.aborts


def test_sequences_that_decode_stay_while_they_slow_live_ones_little_more_than_allowed() -> None:
    cost = Hinge(floor_s=0.0, overhead_s=0.010, row_s=0.0001, token_s=0.0)
    policy = GovernorPolicy(cost, replace(SETTINGS, live_slowdown=1.05))
    running = [decoding(key) for key in range(20)]
    stay = len(running) - len(policy.decide(LIVE, running, [], 0.0).abort)
    admitted = policy.decide(LIVE, [], [prompt(key, 1, 4) for key in range(60)], 5.0).admit
    assert stay == 10, "twice what the slowdown leaves"
    assert 1 <= len(admitted) <= 5


def test_a_slowdown_is_one_of_steps_of_live_streams_alone_and_says_where_it_leaves_nothing() -> None:
    beside, alone = CallCost(0.006, 20e-6), CallCost(0.005, 20e-6)  # the governor itself costs a fifth of a step
    settings = replace(SETTINGS, live_slowdown=1.05, admit_prefill_tokens=1)
    decision = GovernorPolicy(beside, settings, alone).decide(LiveLoad(running=8), [], [prompt(0)], 0.0)
    assert decision.admit == ()
    assert decision.reason == (
        "the live slowdown limit of 1.05 leaves no capacity for background sequences beside 8 live streams"
    )
    roomy = GovernorPolicy(beside, settings, beside)
    for _ in range(64):
        roomy.stepped(beside.seconds(CallSize.uniform(8)), 8)
    assert roomy.decide(LiveLoad(running=8), [], [prompt(0)], 0.0).admit == (0,)
