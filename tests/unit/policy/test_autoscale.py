from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.autoscale import (
    AutoscalePolicy,
    BatchBacklog,
    FleetState,
    ReplicaPolicy,
    ReplicaSettings,
    ReplicaState,
    Signal,
    WorkerPolicy,
    WorkerSettings,
)

UNTIMED = settings(deadline=None)  # a busy machine is not a failure
EXACT = WorkerSettings(quota=10_000, straggler_margin=0.0, start_s=0.0)

loads = st.builds(
    ReplicaState,
    ready=st.integers(0, 10),
    starting=st.integers(0, 4),
    waiting=st.integers(0, 500),
    oldest_wait_s=st.floats(0, 5),
    kv_saturation=st.floats(0, 1),
    live_rows_per_s=st.floats(0, 2000),
    replica_rows_per_s=st.sampled_from([0.0, 1e-300, 50.0, 100.0]),
    harvested_rows_per_s=st.sampled_from([0.0, 40.0]),
    job_rows_left=st.sampled_from([0, 7]),
    cold_start_s=st.sampled_from([0.0, 3.0]),
)
backlogs = st.builds(
    BatchBacklog,
    pending_items=st.integers(0, 10**9),
    worker_items_per_s=st.sampled_from([0.0, 1e-300, 5.0, 2000.0]),
    time_left_s=st.floats(-100, 1e6) | st.just(math.inf),
    harvested_items_per_s=st.floats(0, 1000),
    workers=st.integers(0, 50),
    asked_workers=st.integers(0, 5),
)


def at(rate: float, ready: int, **more: Any) -> ReplicaState:
    return ReplicaState(ready=ready, live_rows_per_s=rate, replica_rows_per_s=100.0, **more)


def follow(policy: ReplicaPolicy, rates: list[float], step_s: float = 10.0, ready: int = 1) -> list[int]:
    """The replica counts when every decision is carried out at once."""
    counts: list[int] = []
    for step, rate in enumerate(rates):
        ready = policy.decide(at(rate, ready), step * step_s).target
        counts.append(ready)
    return counts


def test_no_input_of_the_autoscaler_is_a_utilisation() -> None:
    banned = ("util", "cpu", "gpu", "memory", "ram", "busy")
    names = [f.name for kind in (FleetState, ReplicaState, BatchBacklog) for f in dataclasses.fields(kind)]
    assert len(names) > 10
    assert [name for name in names if any(word in name.lower() for word in banned)] == []


@UNTIMED
@given(st.lists(st.tuples(loads, st.floats(0, 400)), max_size=30), st.sampled_from([0, 2]))
def test_replicas_stay_between_the_floor_and_the_maximum_whatever_is_seen(
    seen: list[tuple[ReplicaState, float]], least: int
) -> None:
    policy, now_s = ReplicaPolicy(ReplicaSettings(min_replicas=least, max_replicas=6)), 0.0
    for state, wait_s in seen:
        now_s += wait_s
        scale = policy.decide(state, now_s)
        assert least <= scale.target <= 6
        assert scale.target >= 1 or not (state.waiting or state.live_rows_per_s or state.job_rows_left)
        assert scale.change == scale.target - state.ready - state.starting
        assert scale.reason


def test_an_idle_endpoint_keeps_one_warm_replica() -> None:
    assert follow(ReplicaPolicy(), [0.0] * 200, ready=3)[-1] == 1


def test_an_endpoint_without_an_objective_sleeps_until_a_request_or_a_job_needs_it() -> None:
    policy = ReplicaPolicy(ReplicaSettings(min_replicas=0))
    assert follow(policy, [0.0] * 100)[-1] == 0
    assert policy.decide(ReplicaState(ready=0, waiting=1), 2000.0).target == 1
    assert follow(policy, [0.0] * 400)[-1] == 0
    awake = policy.decide(ReplicaState(ready=0, job_rows_left=5), 9000.0)
    assert (awake.target, awake.signal) == (1, Signal.JOBS)


@pytest.mark.parametrize(("cold_start_s", "replicas"), [(0.0, 1), (3.0, 0), (5.5, 1)])
def test_an_endpoint_with_an_objective_sleeps_only_where_the_measured_cold_start_keeps_it(
    cold_start_s: float, replicas: int
) -> None:
    policy = ReplicaPolicy(ReplicaSettings(min_replicas=0, cold_start_limit_s=5.0, cooldown_s=0.0))
    policy.decide(at(0.0, 1, cold_start_s=cold_start_s), 0.0)
    scale = policy.decide(at(0.0, 1, cold_start_s=cold_start_s), 1.0)
    assert scale.target == replicas
    assert ("the objective is 5 s" in scale.reason) is (replicas == 1)


def test_workers_that_a_job_asks_for_are_there_while_it_runs_and_no_longer() -> None:
    replicas = ReplicaSettings(min_replicas=0, max_replicas=4)
    policy = AutoscalePolicy(replicas, WorkerSettings(quota=2), 4, shared=True)
    asks = BatchBacklog(asked_workers=3)
    begun = policy.decide(FleetState(at(0.0, 0, job_rows_left=9), asks), 0.0)
    assert (begun.target, begun.workers.target, begun.workers.signal) == (3, 2, Signal.ASKED)
    assert policy.decide(FleetState(at(0.0, 3, job_rows_left=9), asks), 1.0).target == 3
    greedy = policy.decide(FleetState(at(0.0, 3, job_rows_left=9), BatchBacklog(asked_workers=9)), 2.0)
    assert (greedy.target, greedy.workers.signal) == (3, Signal.QUOTA)
    assert policy.decide(FleetState(at(0.0, 3), BatchBacklog()), 3.0).target == 1  # for the cool-down


@pytest.mark.parametrize("name", ["kv_mark", "target_load", "waiting_per_replica", "cooldown_s"])
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        dataclasses.replace(ReplicaSettings(), **{name: -1})
    with pytest.raises(InvalidInput, match="max_replicas"):
        ReplicaSettings(min_replicas=4, max_replicas=3)


def test_a_rise_in_request_rate_adds_at_once_what_it_needs() -> None:
    scale = ReplicaPolicy().decide(at(410.0, 1), 0.0)
    assert (scale.target, scale.change) == (6, 5)
    assert "410 rows/s need 6" in scale.reason


def test_more_than_twenty_waiting_a_replica_adds_one_and_twenty_do_not() -> None:
    assert ReplicaPolicy().decide(at(10.0, 2, waiting=40), 0.0).change == 0
    scale = ReplicaPolicy().decide(at(10.0, 2, waiting=41), 0.0)
    assert scale.change == 1
    assert "41 rows are waiting" in scale.reason


def test_a_queue_at_most_doubles_the_replicas() -> None:
    assert ReplicaPolicy(ReplicaSettings(max_replicas=100)).decide(at(0.0, 3, waiting=5000), 0.0).target == 6


def test_a_saturated_kv_cache_and_an_old_request_each_add_a_replica() -> None:
    for ready in range(1, 9):
        assert ReplicaPolicy().decide(at(0.0, ready, kv_saturation=0.8), 0.0).change == 0
    assert ReplicaPolicy().decide(at(0.0, 4, kv_saturation=0.81), 0.0).change == 1
    assert ReplicaPolicy().decide(at(0.0, 4, oldest_wait_s=1.5), 0.0).change == 1


def test_a_slow_start_does_not_cause_a_second_burst() -> None:
    policy = ReplicaPolicy()
    first = policy.decide(at(150.0, 1, waiting=30), 0.0)
    assert first.change == 1
    for second in range(1, 120):
        slow = at(150.0, 1, starting=1, waiting=30 + 50 * second, oldest_wait_s=float(second), kv_saturation=1.0)
        assert policy.decide(slow, float(second)).change == 0
    assert policy.decide(at(290.0, 1, starting=1), 120.0).change == 2, "a higher rate is new information"


def test_a_start_slower_than_the_cool_down_is_neither_repeated_nor_given_up_while_the_queue_lasts() -> None:
    policy = ReplicaPolicy()
    assert policy.decide(at(10.0, 3, waiting=75), 0.0).change == 1
    for second in range(1, 900):
        slow = at(10.0, 3, starting=1, waiting=75 + second, oldest_wait_s=9.0)
        assert policy.decide(slow, float(second)).change == 0


def test_a_live_rise_that_fits_the_fleet_is_borrowed_from_batch_before_a_replica_is_added() -> None:
    borrowed = ReplicaPolicy().decide(at(175.0, 2, harvested_rows_per_s=5.0), 0.0)
    assert borrowed.change == 0
    assert "if batch rows are held back" in borrowed.reason
    assert ReplicaPolicy().decide(at(175.0, 2), 0.0).change > 0
    assert ReplicaPolicy().decide(at(185.0, 2, harvested_rows_per_s=5.0), 0.0).change > 0


def test_a_queue_adds_replicas_whether_or_not_batch_work_rides() -> None:
    assert ReplicaPolicy().decide(at(100.0, 2, waiting=90, harvested_rows_per_s=5.0), 0.0).change > 0


@UNTIMED
@given(loads)
def test_borrowing_never_adds_while_live_rows_fit_and_nobody_waits_long(state: ReplicaState) -> None:
    state = dataclasses.replace(
        state,
        ready=max(1, state.ready),
        replica_rows_per_s=100.0,
        harvested_rows_per_s=1.0,
        live_rows_per_s=min(state.live_rows_per_s, 90.0 * state.ready),
        waiting=0,
        oldest_wait_s=min(state.oldest_wait_s, 1.0),
        kv_saturation=min(state.kv_saturation, 0.8),
    )
    assert ReplicaPolicy(ReplicaSettings(max_replicas=64)).decide(state, 0.0).change <= 0


@pytest.mark.parametrize("half_steps", [1, 6, 15, 29])
def test_a_square_wave_inside_the_cool_down_causes_one_rise_and_no_flapping(half_steps: int) -> None:
    wave = ([500.0] * half_steps + [20.0] * half_steps) * 20
    assert set(follow(ReplicaPolicy(), wave)) == {7}


def test_after_a_whole_cool_down_the_unneeded_replicas_go() -> None:
    counts = follow(ReplicaPolicy(), [500.0] * 3 + [20.0] * 60)
    assert counts[:3] == [7, 7, 7]
    gone = counts.index(1)
    assert 300.0 <= (gone - 2) * 10.0 <= 320.0
    assert set(counts[:gone]) == {7}


@UNTIMED
@given(
    st.lists(st.tuples(st.floats(0, 900), st.floats(0.1, 200)), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_nothing_is_removed_that_was_needed_within_the_cool_down(seen: list[tuple[float, float]], ready: int) -> None:
    policy, now_s, needs = ReplicaPolicy(), 0.0, [(0.0, ready)]
    for rate, wait_s in seen:
        now_s += wait_s
        needs.append((now_s, min(8, max(1, math.ceil(rate / 80.0 - 1e-9)))))
        target = policy.decide(at(rate, ready), now_s).target
        recent = max(need for at_s, need in needs if at_s > now_s - 300.0)
        if target < ready:
            assert target >= recent
        assert target >= needs[-1][1]
        ready = target


def test_a_restarted_autoscaler_removes_nothing_for_a_whole_cool_down() -> None:
    policy = ReplicaPolicy()
    assert policy.decide(at(10.0, 5), 0.0).change == 0
    assert policy.decide(at(10.0, 5), 299.0).change == 0
    assert policy.decide(at(10.0, 5), 300.0).change == -4


def test_a_need_last_seen_before_a_gap_in_the_observations_counts_until_after_it() -> None:
    policy = ReplicaPolicy()
    policy.decide(at(390.0, 5), 0.0)
    assert policy.decide(at(10.0, 5), 4000.0).change == 0
    assert policy.decide(at(10.0, 5), 4299.0).change == 0
    assert policy.decide(at(10.0, 5), 4300.0).change == -4


@pytest.mark.parametrize("rates", [[100.0], [40.0 * n for n in range(40, 0, -1)], [900.0, 80.0, 300.0]])
def test_the_memory_of_the_cool_down_is_bounded_by_the_maximum(rates: list[float]) -> None:
    policy = ReplicaPolicy(ReplicaSettings(max_replicas=10))
    for step in range(2000):
        policy.decide(at(rates[step % len(rates)], 1), step * 0.1)
        assert len(policy.window.held) <= 11


def test_batch_workers_are_sized_to_the_window() -> None:
    # 1e9 items at 2,000 items/s over 12 h is 11.57 workers
    state = BatchBacklog(pending_items=10**9, worker_items_per_s=2000.0, time_left_s=43_200.0)
    assert WorkerPolicy(EXACT).decide(state, 0.0).target == 12
    margin = dataclasses.replace(EXACT, straggler_margin=0.1)
    assert WorkerPolicy(margin).decide(state, 0.0).target == 13
    spot = dataclasses.replace(margin, preemptions_per_hour=6.0, shard_s=120.0)
    assert WorkerPolicy(spot).decide(state, 0.0).target == 15


def test_exactly_enough_workers_are_not_one_too_few() -> None:
    state = BatchBacklog(pending_items=3000, worker_items_per_s=10.0, time_left_s=100.0)
    assert WorkerPolicy(EXACT).decide(state, 0.0).target == 3


def test_what_the_live_fleet_delivers_needs_no_dedicated_worker() -> None:
    state = BatchBacklog(10_000, worker_items_per_s=10.0, time_left_s=100.0, harvested_items_per_s=60.0)
    assert WorkerPolicy(EXACT).decide(state, 0.0).target == 4
    enough = WorkerPolicy(EXACT).decide(dataclasses.replace(state, harvested_items_per_s=100.0), 0.0)
    assert enough.target == 0
    assert "idle time of the live replicas" in enough.reason


def test_workers_go_to_zero_the_moment_nothing_is_pending() -> None:
    policy = WorkerPolicy()
    policy.decide(BatchBacklog(10**6, 10.0, 3600.0), 0.0)
    scale = policy.decide(BatchBacklog(0, 10.0, 3600.0, workers=8), 1.0)
    assert (scale.target, scale.change, scale.reason) == (0, -8, "remove 8: no job has rows to process")


def test_the_first_worker_of_an_unmeasured_job_measures_it() -> None:
    assert WorkerPolicy().decide(BatchBacklog(10**6, 0.0, 3600.0), 0.0).target == 1


def test_no_worker_is_started_for_less_work_than_its_start_takes() -> None:
    settings = WorkerSettings(quota=1000, start_s=30.0)
    late = BatchBacklog(pending_items=700, worker_items_per_s=1.0, time_left_s=5.0, workers=10)
    assert WorkerPolicy(settings).decide(late, 0.0).target == 26  # 770 s of work, 30 s each
    missed = dataclasses.replace(late, time_left_s=-50.0)
    assert WorkerPolicy(settings).decide(missed, 0.0).target == 26


def test_a_worker_that_starts_slowly_has_less_of_the_window() -> None:
    state = BatchBacklog(pending_items=1000, worker_items_per_s=1.0, time_left_s=100.0)
    assert WorkerPolicy(EXACT).decide(state, 0.0).target == 10
    assert WorkerPolicy(dataclasses.replace(EXACT, start_s=50.0)).decide(state, 0.0).target == 20


@UNTIMED
@given(st.lists(st.tuples(backlogs, st.floats(0, 400)), max_size=20), st.integers(0, 20))
def test_workers_never_pass_their_quota_and_are_zero_exactly_when_not_needed(
    seen: list[tuple[BatchBacklog, float]], quota: int
) -> None:
    policy, now_s = WorkerPolicy(WorkerSettings(quota=quota)), 0.0
    for state, wait_s in seen:
        now_s += wait_s
        scale = policy.decide(state, now_s)
        assert 0 <= scale.target <= quota
        assert scale.change == scale.target - state.workers
        if state.pending_items == 0:
            assert scale.target == 0
        elif scale.target == 0 and quota:
            harvested = state.harvested_items_per_s * min(max(state.time_left_s, 0.0), 1e9)
            assert harvested >= state.pending_items


@UNTIMED
@given(st.integers(1, 10**6), st.floats(1.0, 100.0), st.floats(600.0, 36_000.0))
def test_a_job_that_is_followed_to_its_end_makes_its_window(items: int, rate: float, window_s: float) -> None:
    policy = WorkerPolicy(WorkerSettings(quota=10**6))
    left, workers, now_s, step_s = float(items), 0, 0.0, 10.0
    while left > 0:
        workers = policy.decide(BatchBacklog(math.ceil(left), rate, window_s - now_s, 0.0, workers), now_s).target
        left -= workers * rate * step_s
        now_s += step_s
    assert now_s <= window_s + step_s


@UNTIMED
@given(st.lists(st.tuples(loads, backlogs, st.floats(0, 400)), max_size=20))
def test_batch_neither_evicts_nor_starves_online_replicas_on_shared_devices(
    seen: list[tuple[ReplicaState, BatchBacklog, float]],
) -> None:
    online = ReplicaSettings(max_replicas=10)
    shared = AutoscalePolicy(online, WorkerSettings(quota=50), device_limit=12)
    alone, now_s = ReplicaPolicy(online), 0.0
    for replicas, workers, wait_s in seen:
        now_s += wait_s
        scale = shared.decide(FleetState(replicas, workers), now_s)
        assert scale.replicas == alone.decide(replicas, now_s), "online never notices batch"
        assert scale.replicas.target + scale.workers.target <= 12
        held = replicas.ready + replicas.starting
        assert scale.workers.target == 0 or scale.workers.target + held <= 12


def test_batch_gives_a_shared_device_back_as_soon_as_online_wants_it() -> None:
    policy = AutoscalePolicy(ReplicaSettings(max_replicas=8), WorkerSettings(quota=8), device_limit=8)
    backlog = BatchBacklog(10**9, 10.0, 3600.0, workers=6)
    assert policy.decide(FleetState(at(10.0, 2), backlog), 0.0).workers.target == 6
    scale = policy.decide(FleetState(at(390.0, 2), backlog), 1.0)
    assert (scale.replicas.target, scale.workers.target) == (5, 3)
    assert "leave room for only 3" in scale.workers.reason


def test_a_device_limit_below_the_replicas_it_must_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match="device_limit"):
        AutoscalePolicy(ReplicaSettings(max_replicas=8), device_limit=4)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(loads, backlogs, st.floats(0, 400)), max_size=15))
def test_the_same_observations_give_the_same_decisions(
    seen: list[tuple[ReplicaState, BatchBacklog, float]],
) -> None:
    one, other, now_s = AutoscalePolicy(), AutoscalePolicy(), 0.0
    for replicas, workers, wait_s in seen:
        now_s += wait_s
        state = FleetState(replicas, workers)
        assert one.decide(state, now_s) == other.decide(state, now_s)


def test_refusals_add_replicas_in_proportion_and_double_at_most() -> None:
    def target(refused: float) -> int:
        state = ReplicaState(ready=4, live_rows_per_s=100, refused_rows_per_s=refused, replica_rows_per_s=1000)
        return ReplicaPolicy(ReplicaSettings(max_replicas=50)).decide(state, 0.0).target

    assert [target(refused) for refused in (0.5, 5.0, 30.0, 90.0)] == [4, 5, 6, 8]


def test_requests_that_are_refused_long_after_they_came_ask_for_a_replica() -> None:
    """They waited for a start that failed: nothing is offered any more when they are refused."""
    state = ReplicaState(ready=0, live_rows_per_s=0.0, refused_rows_per_s=0.5, replica_rows_per_s=1000)
    assert ReplicaPolicy(ReplicaSettings(min_replicas=0, max_replicas=4)).decide(state, 0.0).target == 1


@UNTIMED
@given(st.lists(st.tuples(loads, backlogs, st.floats(0, 100)), max_size=25), st.integers(0, 25))
def test_a_policy_that_is_handed_a_memory_decides_as_the_one_that_had_it(
    seen: list[tuple[ReplicaState, BatchBacklog, float]], cut: int
) -> None:
    def made() -> AutoscalePolicy:
        return AutoscalePolicy(
            ReplicaSettings(max_replicas=6, cooldown_s=60.0), WorkerSettings(quota=3), 6, shared=True
        )

    policy, now_s = made(), 0.0
    other = policy
    for step, (live, batch, wait_s) in enumerate(seen):
        now_s += wait_s
        if step == cut:
            other = made()
            other.remember(*policy.memory)
        state = FleetState(live, batch)
        decided = policy.decide(state, now_s)
        if other is not policy:
            assert other.decide(state, now_s) == decided
        assert decided.target <= 6  # both shifts on one set of replicas


def test_replicas_that_live_load_does_not_need_work_for_a_window_and_are_given_back() -> None:
    workers = WorkerSettings(quota=2, straggler_margin=0.0, start_s=0.0, cooldown_s=10.0)
    policy = AutoscalePolicy(ReplicaSettings(max_replicas=4, cooldown_s=10.0), workers, 4, shared=True)
    backlog = BatchBacklog(30_000, worker_items_per_s=100.0, time_left_s=120.0, harvested_items_per_s=50.0)
    first = policy.decide(FleetState(at(10.0, 1), backlog), 0.0)
    assert (first.replicas.target, first.workers.target, first.target) == (1, 2, 3)
    # three are there now, and live load takes two of them: the job keeps one more and the harvest of those
    busier = policy.decide(FleetState(at(150.0, 3), backlog), 20.0)
    assert (busier.replicas.target, busier.target) == (2, 4)
    assert policy.decide(FleetState(at(10.0, 4), BatchBacklog()), 30.0).target == 2  # what live load needed a while ago
    assert policy.decide(FleetState(at(10.0, 2), BatchBacklog()), 45.0).target == 1
