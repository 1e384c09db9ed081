"""Which replica a request goes to."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.cost import CallCost
from twoshift.policy.routing import RoutingPolicy, TokenGuess
from twoshift.types import CallSize

ONE = CallSize.uniform(1)
COST = CallCost.line(0.010, 0.001)


def routing(replicas: int = 2, cost: CallCost = COST) -> RoutingPolicy:
    made = RoutingPolicy()
    for number in range(replicas):
        made.joined(number, cost)
    return made


def test_nobody_is_chosen_where_there_is_nobody() -> None:
    assert routing(0).choose(ONE, 0.0) is None
    assert routing(2).choose(ONE, 0.0, without=(0, 1)) is None


def test_idle_replicas_take_turns() -> None:
    policy, chosen = routing(3), []
    for request in range(9):
        chosen.append(policy.choose(ONE, 0.0))
        policy.sent(chosen[-1] or 0, request, ONE)
        policy.ended(chosen[-1] or 0, request)
    assert sorted(chosen[:3]) == [0, 1, 2]
    assert chosen == chosen[:3] * 3


def test_it_goes_where_less_waits() -> None:
    policy = routing()
    policy.sent(0, 1, CallSize.uniform(100))
    assert policy.choose(ONE, 0.0) == 1
    policy.ended(0, 1)
    policy.sent(1, 2, CallSize.uniform(100))
    assert policy.choose(ONE, 0.0) == 0


def test_a_faster_replica_is_given_more_before_the_other_gets_any() -> None:
    policy = routing(1)
    policy.joined(1, COST.scaled(10))
    for request in range(5):
        assert policy.choose(ONE, 0.0) == 0
        policy.sent(0, request, CallSize.uniform(5))


def test_what_runs_counts_for_as_long_as_it_still_takes() -> None:
    policy = routing()
    policy.sent(0, 1, CallSize.uniform(90))
    policy.started(0, [1], 5.0)
    begun_s, nearly_s = (policy.seconds(0, ONE, now_s) for now_s in (5.0, 5.09))
    assert abs(begun_s - nearly_s - 0.09) < 1e-9
    assert policy.seconds(0, ONE, 6.0) > 0.8  # overdue: nobody knows for how long
    policy.ended(0, 1)
    assert policy.seconds(0, ONE, 6.0) == policy.seconds(1, ONE, 6.0)


def test_a_call_that_nobody_waits_for_any_more_keeps_its_replica_busy() -> None:
    policy = routing()
    policy.sent(0, 1, ONE)
    policy.started(0, [1], 0.0)
    policy.abandoned(0, 1, 5.0)
    assert policy.choose(ONE, 9.0) == 1
    policy.learned(0, None, 0.0, is_idle=True)
    assert policy.seconds(0, ONE, 9.0) == policy.seconds(1, ONE, 9.0)
    policy.sent(0, 2, ONE)
    policy.abandoned(0, 2, 5.0)  # it had not begun
    assert policy.outstanding(0) == 0


def test_background_rows_in_a_lane_count() -> None:
    policy = routing()
    policy.learned(0, None, 0.05, is_idle=False)
    assert policy.choose(ONE, 0.0) == 1
    assert policy.choose(ONE, 0.0) == 1


def test_one_that_was_slow_once_gets_a_request_now_and_then() -> None:
    policy = routing()
    policy.learned(0, COST.scaled(50), 0.0, is_idle=True)
    chosen = []
    for request in range(70):
        chosen.append(policy.choose(ONE, 0.0))
        policy.sent(chosen[-1] or 0, request, ONE)
        policy.ended(chosen[-1] or 0, request)
    assert 1 <= chosen.count(0) <= 4


SIZES = st.builds(CallSize.uniform, st.integers(1, 50), st.integers(1, 64))
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["send", "start", "end", "abandon", "leave", "join", "idle"]), st.integers(0, 3), SIZES),
    max_size=60,
)


@given(ACTIONS)
def test_whatever_happens_the_books_balance_and_the_choice_is_among_the_best(
    actions: list[tuple[str, int, CallSize]],
) -> None:
    policy, has, now_s = routing(2), dict[int, list[int]](), 0.0
    for request, (action, replica, size) in enumerate(actions):
        now_s += 0.003
        there = replica in policy
        match action:
            case "join" if not there:
                policy.joined(replica, COST.scaled(replica + 1))
                has[replica] = []
            case "leave":
                policy.left(replica)
                has.pop(replica, None)
            case "send" if there:
                policy.sent(replica, request, size)
                has.setdefault(replica, []).append(request)
            case "start":
                policy.started(replica, has.get(replica, []), now_s)
            case "idle":
                policy.learned(replica, None, 0.0, is_idle=True)
            case "end" if has.get(replica):
                policy.ended(replica, has[replica].pop())
            case "abandon" if has.get(replica):
                policy.abandoned(replica, has[replica].pop(), 0.0)
            case _:
                pass
    for replica in range(4):
        for request in has.get(replica, []):
            policy.ended(replica, request)
        policy.learned(replica, None, 0.0, is_idle=True)
        if replica in policy:
            assert policy.outstanding(replica) == 0
            alone_s = {COST.seconds(ONE), COST.scaled(replica + 1).seconds(ONE)}  # from the start, or joined again
            assert policy.seconds(replica, ONE, now_s) in alone_s
    chosen = policy.choose(ONE, now_s)
    there = [number for number in range(4) if number in policy]
    assert (chosen in there) if there else chosen is None
    if chosen is not None and len(actions) < 32:  # none is forgotten
        best_s = min(policy.seconds(number, ONE, now_s) for number in there)
        assert policy.seconds(chosen, ONE, now_s) <= 1.1 * best_s + 1e-12


def test_tokens_are_guessed_from_characters_and_learned() -> None:
    guess = TokenGuess(512)
    assert guess.size([400]).tokens == 100
    assert guess.size([1, 10_000]) == CallSize.of([1, 512])
    for _ in range(200):
        guess.seen(100, 50)
    assert 195 <= guess.size([400]).tokens <= 200
    assert TokenGuess(1).size([400, 3]) == CallSize.uniform(2)


def test_what_others_have_sent_counts_as_the_replica_says_it() -> None:
    policy = routing()
    assert policy.least_s(ONE, 1.0) == 0.0
    policy.posted(0, 1.5)
    assert policy.least_s(ONE, 1.0) == 0.0  # the other one is free
    assert policy.choose(ONE, 1.0) == 1
    policy.posted(1, 1.2)
    assert abs(policy.least_s(ONE, 1.0) - 0.2) < 1e-9
    assert policy.least_s(ONE, 1.0, without=(1,)) > policy.least_s(ONE, 1.0)
    assert policy.least_s(ONE, 2.0) == policy.seconds(0, ONE, 2.0) > 0.0  # what is overdue is not over
    policy.posted(0, -math.inf)
    assert policy.least_s(ONE, 1.0) == 0.0
    policy.posted(7, 1.5)
    assert 7 not in policy


def test_a_request_that_is_larger_than_a_row_takes_longer_behind_others() -> None:
    policy = routing(1)
    policy.posted(0, 1.5)
    more_s = policy.seconds(0, CallSize.uniform(100), 1.0) - policy.seconds(0, ONE, 1.0)
    assert abs(more_s - 99 * 0.001) < 1e-9


@given(
    st.lists(st.integers(1, 50), max_size=5),
    st.floats(0.0, 10.0),
    st.floats(0.0, 10.0),
    st.integers(1, 100),
)
def test_what_a_replica_says_never_makes_it_look_quicker(
    sent: list[int], answered_s: float, now_s: float, rows: int
) -> None:
    alone, told = routing(1), routing(1)
    for request, size in enumerate(sent):
        for policy in (alone, told):
            policy.sent(0, request, CallSize.uniform(size))
    told.posted(0, answered_s)
    size = CallSize.uniform(rows)
    assert told.seconds(0, size, now_s) >= alone.seconds(0, size, now_s)
    assert told.seconds(0, size, now_s) >= answered_s - now_s
    assert told.least_s(size, now_s) >= alone.least_s(size, now_s)


def _served(policy: RoutingPolicy, slow: float, seconds: float) -> None:
    """A line of ten requests that is always there, each of which takes so many times as long as predicted."""
    line, now_s = list[tuple[float, int]](), 0.0
    for request in range(10_000):
        if now_s > seconds:
            break
        predicted_s = policy.seconds(0, ONE, now_s) / policy.stretch(0)
        policy.sent(0, request, ONE, now_s)
        line.append((now_s + slow * predicted_s, request))
        if len(line) == 10:
            now_s, first = line.pop(0)
            policy.answered(0, first, now_s)
    for _, request in line:
        policy.ended(0, request)


@given(st.floats(1.0, 3.5))
def test_a_replica_that_takes_longer_than_predicted_is_predicted_to(slow: float) -> None:
    policy = routing(1)
    _served(policy, slow, 3.0)
    assert policy.stretch(0) == pytest.approx(slow, rel=0.15)


def test_a_replica_is_as_quick_as_predicted_soon_after_it_was_slow() -> None:
    policy = routing(1)
    _served(policy, 3.0, 3.0)
    for request in range(20_000, 20_020):  # one after the other
        now_s = 10.0 + 0.1 * request
        policy.sent(0, request, ONE, now_s)
        policy.answered(0, request, now_s + 0.5)
    assert policy.stretch(0) == pytest.approx(1.0, abs=0.01)


def test_requests_that_were_refused_or_lost_say_nothing_of_how_long_others_take() -> None:
    policy = routing(1)
    for request in range(100):
        policy.sent(0, request, ONE, 0.01 * request)
        if request >= 20:
            policy.ended(0, request - 20)
    assert policy.stretch(0) == 1.0
