from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from twoshift.policy.cost import CallCost
from twoshift.sim.day import DayResult, DaySpec, simulate_day
from twoshift.sim.lanes import LanesSpec
from twoshift.sim.traffic import parse_trace

pytestmark = pytest.mark.slow

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
    assert ours.in_slo > 0.998  # an autoscaler that looks every five minutes is late for a burst


def test_every_device_hour_is_live_harvested_or_idle() -> None:
    ours = day().together
    ready = sum(tick.replicas for tick in ours.ticks) * SPEC.tick_s / 3600
    added = sum(int(n) for tick in ours.ticks for n in re.findall(r"add (\d+): [\d.]+ rows/s", tick.decision))
    starting = added * SPEC.start_s / 3600
    assert ours.live_hours + ours.harvested_hours + ours.idle_hours == pytest.approx(ready + starting)
    assert ours.usd == pytest.approx(
        SPEC.price_usd * (ours.live_hours + ours.harvested_hours + ours.idle_hours + ours.dedicated_hours)
    )


def test_dollars_follow_prices_discounts_and_starts() -> None:
    spec = replace(SPEC, tick_s=1800.0, batch_items=1.2e9, start_s=900.0, spot_discount=0.5)
    result = simulate_day(spec)
    ours = result.together
    online = ours.live_hours + ours.harvested_hours + ours.idle_hours
    assert ours.dedicated_hours > 0
    assert ours.usd == pytest.approx(2.5 * online + 1.25 * ours.dedicated_hours)
    hours = ours.batch_done / LANES.capacity_per_s / 3600
    assert (result.batch_alone_hours, result.batch_alone_usd) == pytest.approx((hours, 1.25 * hours))
    quick = simulate_day(replace(spec, start_s=0.0)).together
    assert quick.idle_hours < ours.idle_hours
    assert quick.in_slo > ours.in_slo


def test_a_fleet_that_may_not_grow_refuses_what_it_cannot_do() -> None:
    spec = replace(SPEC, tick_s=7200.0, peak_per_s=1e5, batch_items=0.0, max_devices=1)
    small = simulate_day(spec).together
    offered = sum(tick.rate_per_s for tick in small.ticks)
    assert all(tick.replicas == 1 for tick in small.ticks)
    assert small.in_slo * offered <= 1.02 * LANES.capacity_per_s * len(small.ticks)


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


def test_a_trickle_of_traffic_is_not_rounded_away() -> None:
    trickle = simulate_day(replace(SPEC, tick_s=7200.0, peak_per_s=20, batch_items=0.0)).together
    mean_rate = sum(tick.rate_per_s for tick in trickle.ticks) / len(trickle.ticks)
    assert trickle.p99_ms is not None
    assert trickle.live_hours == pytest.approx(24 * mean_rate * 0.00425, rel=0.2)


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
