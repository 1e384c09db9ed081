"""The host as a device: what it costs is learned, what is ahead is known, and who would be late is refused."""

from __future__ import annotations

import heapq
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.body_guess import BodyGuess
from twoshift.policy.host import FrameCost, HostPolicy, HostWork, LinearCost, RetryCalendar

BEFORE_S, AFTER_S = 0.001, 0.002


def host(before_s: float = BEFORE_S, after_s: float = AFTER_S) -> HostPolicy:
    """One that has served requests of a hundred bytes."""
    made = HostPolicy()
    for _ in range(32):
        made.before.observed(100, before_s)
        made.after.observed(100, after_s)
    return made


@given(st.floats(1e-6, 1e-2), st.floats(0.0, 1e-6), st.lists(st.integers(1, 100_000), min_size=30, max_size=60))
def test_a_line_is_learned(base_s: float, per_byte_s: float, sizes: list[int]) -> None:
    cost = LinearCost()
    for size in sizes:
        cost.observed(size, base_s + size * per_byte_s)
    smallest, largest = min(sizes), max(sizes)
    for size in (smallest, largest) if largest > 2 * smallest else ():
        assert cost.seconds(size) == pytest.approx(base_s + size * per_byte_s, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.floats(0.0, 10.0)), max_size=100), st.integers(0, 10**7))
def test_a_cost_is_never_negative_and_never_falls_with_size(seen: list[tuple[int, float]], size: int) -> None:
    cost = LinearCost()
    for each in seen:
        cost.observed(*each)
    assert 0.0 <= cost.seconds(size) <= cost.seconds(size + 1)


def test_a_stall_is_not_what_a_request_costs() -> None:
    cost = LinearCost()
    for _ in range(50):
        cost.observed(100, 0.001)
    cost.observed(100, 10.0)
    assert cost.seconds(100) < 0.0013


@given(st.lists(st.integers(0, 3), max_size=200))
def test_what_is_ahead_is_the_sum_over_those_inside(events: list[int]) -> None:
    policy, queued, submitted = host(), list[HostWork](), list[HostWork]()
    for event in events:
        if event == 0:
            queued.append(policy.admitted(100))
        elif event == 1 and queued:
            policy.submitted(work := queued.pop(0), BEFORE_S)
            submitted.append(work)
        elif event == 2 and submitted:
            policy.ended(submitted.pop())
        elif event == 3 and queued:  # it failed before it came to a device
            policy.ended(queued.pop(), was_submitted=False)
        cost_s = sum(work.before_s + work.after_s for work in (*queued, *submitted))
        assert policy.ahead_s == pytest.approx(cost_s, abs=1e-12)
        assert (policy.backlog.waiting, policy.backlog.inside) == (len(queued), len(queued) + len(submitted))


@given(st.integers(0, 50), st.floats(0.001, 1.0), st.floats(0.0, 0.5))
def test_nothing_is_admitted_that_host_and_device_together_would_answer_late(
    inside: int, left_s: float, device_s: float
) -> None:
    policy = host()
    for _ in range(inside):
        policy.admitted(100)
    wait_s = policy.wait_s(100, left_s, 0.0, device_s)
    if wait_s is None and (inside or device_s):
        assert inside * BEFORE_S + BEFORE_S + device_s <= left_s + 1e-9
        assert (inside + 1) * (BEFORE_S + AFTER_S) <= left_s + 1e-9
    if wait_s is not None:
        assert wait_s > 0
        assert policy.wait_s(100, left_s + 2 * wait_s + policy.ahead_s, 0.0, device_s) is None


def test_what_requests_cost_is_learned_where_all_of_them_are_too_late() -> None:
    made = host()
    for _ in range(500):
        made.prepared_late(100, 20 * BEFORE_S)
    assert made.before.seconds(100) > 10 * BEFORE_S


def test_a_late_request_that_took_little_does_not_make_others_look_cheap() -> None:
    made = host()
    for _ in range(500):
        made.prepared_late(100, 0.1 * BEFORE_S)
    assert made.before.seconds(100) == pytest.approx(BEFORE_S)


def test_what_costly_requests_have_taught_is_forgotten_within_seconds_of_few_cheap_ones() -> None:
    made = HostPolicy()
    for each in range(1000):
        made.submitted(made.admitted(100), 20 * BEFORE_S)
        made.replied(100, 20 * AFTER_S, 0.0, each * 0.02)
    for each in range(40):
        made.submitted(made.admitted(100), BEFORE_S)
        made.replied(100, AFTER_S, 0.0, 20.0 + each * 0.05)
    assert made.before.seconds(100) < 10 * BEFORE_S
    assert made.after.seconds(100) < 10 * AFTER_S


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(1e-6, 1.0)), min_size=20, max_size=60), st.floats(0, 1e9))
def test_time_alone_does_not_change_what_a_request_is_thought_to_cost(
    seen: list[tuple[int, float]], passed_s: float
) -> None:
    cost = LinearCost()
    for each in seen:
        cost.observed(*each)
    before_s, mean_s = cost.seconds(1000), cost.mean_s
    cost.fade(passed_s)
    assert cost.seconds(1000) == before_s
    assert cost.mean_s == pytest.approx(mean_s)
    assert cost.weight > 15


@given(
    st.integers(0, 40),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
    st.floats(0.0, 0.1),
    st.floats(0.0, 0.2),
    st.integers(0, 3),
)
def test_who_is_surely_admitted_with_others_is_admitted_after_them(
    inside: int, left: list[float], lag_s: float, now_s: float, late: int
) -> None:
    policy = host()
    policy.lag_s = lag_s
    for k in range(late):
        policy.was_late(0.1, k * 0.05)
    for _ in range(inside):
        policy.admitted(100)
    if policy.takes_all(100, len(left), min(left), now_s):
        for left_s in left:
            assert policy.wait_s(100, left_s, now_s) is None
            policy.admitted(100)


def test_small_requests_pass_large_bodies() -> None:
    policy, size = host(), 4 << 20
    for _ in range(32):
        policy.before.observed(size, 0.1)
    small_s = policy.wait_s(100, 0.1, 0.0)
    works = [policy.admitted(size) for _ in range(5)]
    assert policy.wait_s(100, 0.1, 0.0) == small_s
    assert policy.wait_s(size, 0.1, 0.0) is not None, "a large one waits for the others"
    assert policy.ahead_of(100).waiting_bytes == 0
    assert policy.ahead_of(size).waiting_bytes == 5 * size
    for each in works:
        policy.ended(each, was_submitted=False)
    assert policy.ahead_s == 0.0


def test_requests_that_come_and_go_together_count_as_one_after_the_other() -> None:
    together, apart = host(), host()
    work = together.admitted(100, 5)
    works = [apart.admitted(100) for _ in range(5)]
    assert together.ahead_s == pytest.approx(apart.ahead_s)
    assert together.backlog.waiting_bytes == apart.backlog.waiting_bytes == 500
    together.submitted(work, BEFORE_S, 5)
    together.replied(100, AFTER_S, 0.01, 1.0, 5)
    for each in works:
        apart.submitted(each, BEFORE_S)
        apart.replied(100, AFTER_S, 0.01, 1.0)
        apart.ended(each)
        together.ended(work)
    for policy in (together, apart):
        left = policy.backlog
        assert (left.inside, left.waiting, left.waiting_bytes, policy.ahead_s) == (0, 0, 0, 0.0)
    assert together.request_s == pytest.approx(apart.request_s)


def test_whoever_is_alone_is_admitted_whatever_it_was_thought_to_cost() -> None:
    policy = host(before_s=10.0)
    assert policy.wait_s(100, 0.02, 0.0) is None
    assert policy.wait_s(100, -0.01, 0.0) is not None  # its time is over


def test_a_request_that_is_read_by_a_busy_loop_has_waited_since_the_loop_turned_to_its_work() -> None:
    policy = HostPolicy()
    policy.turned(1.0)
    policy.worked(0.03, 1.03)
    assert policy.read(1.0301) == 1.0
    assert policy.read(1.5) == 1.5  # it slept, and this one has woken it


def test_late_answers_leave_room_for_others_which_comes_back_without_them() -> None:
    policy = host()
    before_s = policy.reserve_s(0.1, 0.0)
    for now_s in (0.0, 0.001, 0.002):  # one stall
        policy.was_late(0.1, now_s)
    once_s = policy.reserve_s(0.1, 0.002)
    assert before_s < once_s < 0.011
    for number in range(100):
        policy.was_late(0.1, 0.1 * number)
    assert policy.reserve_s(0.1, 9.9) <= 0.05
    assert policy.reserve_s(0.1, 60.0) == pytest.approx(before_s, abs=1e-5)


@given(st.integers(1, 200), st.floats(0.0, 0.5), st.floats(0.001, 0.01))
def test_those_told_in_one_moment_come_back_one_after_the_other(clients: int, least_s: float, spacing_s: float) -> None:
    calendar = RetryCalendar()
    told_s = [calendar.wait_s(least_s, spacing_s, 0.0) for _ in range(clients)]
    assert min(told_s) >= least_s
    assert all(b - a >= spacing_s * (1 - 1e-9) for a, b in itertools.pairwise(told_s))


def test_a_full_calendar_spreads_them_still() -> None:
    calendar = RetryCalendar()
    told_s = sorted(calendar.wait_s(0.0, 1.0, 0.0) for _ in range(100))
    assert told_s[-1] <= 5.0
    assert max(b - a for a, b in itertools.pairwise(told_s)) <= 1.0
    assert len({round(each, 3) for each in told_s}) > 90


def test_refusals_take_their_turns_while_that_slows_those_who_ask_again() -> None:
    policy = HostPolicy()
    waits_s = [policy.refuse_in_s(0.0) for _ in range(100)]
    assert waits_s[0] == 0.0
    assert waits_s == sorted(waits_s)
    assert len(set(waits_s)) == 100
    most = [policy.refuse_in_s(0.0) for _ in range(10_000)]
    assert most[-1] == max(most) == 2.0


def test_a_slow_refusal_does_not_let_all_that_ask_again_in_at_once() -> None:
    """On a busy machine a refusal seems to take long: those who ask again still wait, but not for ever."""
    policy, now_s = HostPolicy(), 0.0
    for _ in range(1_000):
        policy.refusal.observed(0, 0.001)
    due_s = [policy.refuse_in_s(0.0) for _ in range(200)]
    sent = 0
    while now_s < 10.0:
        now_s = heapq.heappop(due_s)
        heapq.heappush(due_s, now_s + policy.refuse_in_s(now_s))
        sent += 1
    assert sent <= 10.0 * (200 / 2.0) + 200


def test_nobody_is_held_where_others_come_over_new_connections_meanwhile() -> None:
    policy = HostPolicy()
    held = [policy.refuse_in_s(0.0, connected_s=-1.0) for _ in range(200)]
    assert held[-1] > 0.0
    first = [policy.refuse_in_s(0.1, connected_s=0.1) for _ in range(200)]  # a thousand clients connect in a moment
    assert min(first) > 0.0
    later = [policy.refuse_in_s(0.3 + k * 1e-4, connected_s=0.3) for k in range(400)]
    assert later[0] > 0.0
    assert later[-1] == 0.0
    assert policy.refuse_in_s(1.0, connected_s=-1.0) == 0.0


def test_a_few_that_join_are_held_as_the_others() -> None:
    policy = HostPolicy()
    for turn in range(40):
        waits_s = [policy.refuse_in_s(0.1 * turn, connected_s=-1.0) for _ in range(130)]
        waits_s += [policy.refuse_in_s(0.1 * turn, connected_s=0.1 * turn) for _ in range(6)]
        assert waits_s[-1] > 0.0


def test_rows_and_tokens_are_guessed_by_the_bytes_of_a_body() -> None:
    guess = BodyGuess(512)
    for number in range(400):
        rows = 1 if number % 7 else 32
        guess.seen(60 + 80 * rows, rows, 16 * rows)
    found = guess.size(60 + 80 * 16)
    assert (found.rows, found.tokens) == (pytest.approx(16, abs=1), pytest.approx(256, rel=0.1))


def test_short_sleeps_are_no_work() -> None:
    made, now_s = HostPolicy(), 0.0
    for _ in range(20_000):
        made.woke(now_s)
        work = made.admitted(100)
        now_s += 5e-5
        made.submitted(work, 2.5e-5)
        made.ended(work)
        made.worked(0.0, now_s)
        made.replied(100, 2.5e-5, 0.0, now_s)
        now_s += 1e-4  # it has nothing to do
    assert made.pace == pytest.approx(1.0, abs=0.05)


def test_while_other_threads_work_for_its_requests_the_loop_is_not_idle() -> None:
    """A request takes 200 us in all: 100 of the loop, 50 of the engine's thread, and 50 that nobody accounts for."""
    made, now_s = HostPolicy(), 0.0
    for _ in range(20_000):
        made.woke(now_s)
        work = made.admitted(100)
        now_s += 1.5e-4
        made.submitted(work, 5e-5)
        made.ended(work)
        made.worked(0.0, now_s)
        made.replied(100, 5e-5, 0.0, now_s, elsewhere_s=5e-5)
        now_s += 6e-5  # the engine's thread has the interpreter
    assert made.request_s == pytest.approx(2e-4, rel=0.06)


def test_an_observation_weighs_as_many_requests_as_it_stands_for() -> None:
    """Single requests cost several times what each of many in a frame costs; most come in frames."""
    made, now_s = HostPolicy(), 0.0
    for _ in range(200):
        for count, each_s in ((1, 80e-6), (60, 10e-6)):
            made.submitted(made.admitted(100, count), each_s, count)
            made.replied(100, each_s, 0.0, (now_s := now_s + 0.002), count)
    whole_s = (80e-6 + 60 * 10e-6) / 61
    assert made.before.mean_s == pytest.approx(whole_s, rel=0.2)
    assert made.after.mean_s == pytest.approx(whole_s, rel=0.2)


@given(st.floats(1e-5, 1e-3), st.floats(1e-6, 1e-4), st.lists(st.integers(1, 64), min_size=20, max_size=60))
def test_what_a_request_adds_to_a_frame_is_told_from_what_comes_with_any_frame(
    frame_s: float, each_s: float, counts: list[int]
) -> None:
    cost = FrameCost()
    for count in counts:
        cost.observed(count, frame_s + count * each_s)
    if len(set(counts)) == 1:
        assert cost.request_s == pytest.approx(frame_s / counts[0] + each_s, rel=1e-6)
    elif max(counts) > 2 * min(counts):
        assert cost.request_s == pytest.approx(each_s, rel=1e-3)
    else:
        assert cost.request_s <= (frame_s + each_s) * (1 + 1e-6)


@given(st.floats(0, 1), st.lists(st.floats(0, 1), max_size=30), st.floats(0, 1))
def test_a_front_and_a_replica_together_keep_at_most_half_of_a_requests_time(
    lag_s: float, late_s: list[float], had_s: float
) -> None:
    front, replica = HostPolicy(), HostPolicy()
    for made in (front, replica):
        made.replied(100, AFTER_S, lag_s, 0.0)
        for each_s in sorted(late_s):
            made.was_late(had_s, each_s)
    kept_s = front.reserve_s(had_s, 1.0)
    own_s = replica.reserve_s(had_s, 1.0, kept_s)
    assert own_s >= 0
    assert kept_s + own_s <= 0.5 * had_s + 1e-9
    assert own_s == pytest.approx(min(kept_s, 0.5 * had_s - kept_s))


@given(st.integers(0, 200))
def test_a_device_waits_for_company_only_as_far_as_the_host_is_behind(inside: int) -> None:
    policy = host()
    for _ in range(inside):
        policy.admitted(100)
    assert policy.gather_s == pytest.approx(min(0.002, 0.1 * inside * (BEFORE_S + AFTER_S)))
