from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from twoshift.policy.cost import CallCost
from twoshift.sim.day import DayResult, DaySpec, simulate_day
from twoshift.sim.lanes import LanesSpec
from twoshift.sim.traffic import parse_trace

LANES = LanesSpec(CallCost.line(0.004, 0.00025), max_batch=32, slo_s=0.05, load=1.0)
SPEC = DaySpec(LANES, peak_per_s=20_000, batch_items=4e8, tick_s=300.0)
COARSE = replace(SPEC, tick_s=1800.0)


@cache
def day() -> DayResult:
    return simulate_day(SPEC)


def test_one_fleet_is_cheaper_than_two_for_the_same_work() -> None:
    assert day().together.batch_done == SPEC.batch_items
    assert day().together.usd < day().separate_usd < day().static_usd
    assert day().saved_share == pytest.approx(1 - day().together.usd / day().separate_usd)


def test_live_requests_keep_their_objective_all_day() -> None:
    ours = day().together
    assert ours.p99_ms is not None
    assert ours.p99_ms <= 50
    assert ours.in_slo > 0.999


def test_every_device_hour_is_live_harvested_or_idle() -> None:
    ours = day().together
    hours = sum(tick.replicas for tick in ours.ticks) * SPEC.tick_s / 3600
    starting = ours.idle_hours - sum(tick.idle_devices for tick in ours.ticks) * SPEC.tick_s / 3600
    assert ours.live_hours + ours.harvested_hours + ours.idle_hours - starting == pytest.approx(hours)
    assert ours.usd == pytest.approx(
        SPEC.price_usd * (ours.live_hours + ours.harvested_hours + ours.idle_hours + ours.dedicated_hours)
    )


def test_the_fleet_follows_the_traffic_and_says_why() -> None:
    replicas = [tick.replicas for tick in day().together.ticks]
    assert max(replicas) >= 3 * min(replicas)
    reasons = [tick.decision for tick in day().together.ticks if tick.decision]
    assert any("add" in reason and "rows/s" in reason for reason in reasons)
    assert any("remove" in reason for reason in reasons)


def test_workers_of_their_own_come_only_where_harvesting_is_not_enough() -> None:
    assert simulate_day(replace(COARSE, batch_items=2e7)).together.dedicated_hours == 0
    heavy = simulate_day(replace(COARSE, batch_items=1.2e9)).together
    assert heavy.dedicated_hours > 50
    assert heavy.batch_done == 1.2e9


def test_a_fleet_of_thousands_of_devices_is_simulated_alike() -> None:
    huge = simulate_day(replace(COARSE, peak_per_s=2e7, batch_items=4e11))
    assert max(tick.replicas for tick in huge.together.ticks) > 5000
    assert huge.saved_share > 0


def test_the_same_seed_gives_the_same_day() -> None:
    quick = replace(SPEC, tick_s=7200.0)
    assert simulate_day(quick) == simulate_day(quick)
    assert simulate_day(quick) != simulate_day(replace(quick, lanes=replace(LANES, seed=2)))


def test_a_burst_in_a_trace_makes_the_fleet_grow() -> None:
    quiet = [f"2023-11-16 18:{m:02d}:{s:02d},1000,1" for m in range(10) for s in range(0, 60, 10)]
    burst = [f"2023-11-16 18:{m:02d}:{s:02d}.{f}5,1000,1" for m in range(10, 16) for s in range(60) for f in range(10)]
    trace = parse_trace(["TIMESTAMP,ContextTokens,GeneratedTokens", *quiet, *burst])
    lanes = replace(LANES, cost=CallCost.line(0.02, 0.2 / 1000), max_batch=8, slo_s=1.0, row_tokens=1000, trace=trace)
    result = simulate_day(DaySpec(lanes, 1.0, batch_items=500.0, trace=trace))
    replicas = [tick.replicas for tick in result.together.ticks]
    assert replicas[5] == 1
    assert replicas[-1] >= 2
    assert result.together.batch_done == 500


def test_copies_of_a_trace_multiply_its_load() -> None:
    lines = [f"2023-11-16 18:{m:02d}:{s:02d},1000,1" for m in range(5) for s in range(60)]
    trace = parse_trace(["TIMESTAMP,ContextTokens", *lines])
    lanes = replace(LANES, row_tokens=1000, cost=CallCost.line(0.004, 0.00025 / 1000), trace=trace)
    one = simulate_day(DaySpec(lanes, 1.0, trace=trace))
    ten = simulate_day(DaySpec(lanes, 1.0, trace=trace, copies=10))
    assert ten.together.ticks[2].rate_per_s == pytest.approx(10 * one.together.ticks[2].rate_per_s, rel=0.1)
