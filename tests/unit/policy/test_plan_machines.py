from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.plan import FleetAsk, ReplicasAsk, plan_cold_start, plan_fleet, plan_replicas

REFERENCE = FleetAsk(
    items=1e9,
    rate=2000,
    window_s=12 * 3600,
    price_usd_per_hour=2.50,
    spot_discount=0.6,
    preemptions_per_hour=0.1,
    shard_seconds=60,
    straggler_margin=0.1,
)


def test_a_billion_items_in_twelve_hours_need_thirteen_workers() -> None:
    made = plan_fleet(REFERENCE)
    assert made.workers == 13
    assert made.lost_share == pytest.approx(0.0025, rel=0.01)
    assert made.price_usd_per_hour == pytest.approx(1.0)
    assert made.preemptions == pytest.approx(15.3, abs=0.05)


def test_a_shard_that_preemptions_hardly_let_end_is_charged_in_full_or_refused() -> None:
    long = replace(REFERENCE, preemptions_per_hour=1.0, shard_seconds=3600.0, restart_s=600.0)
    assert plan_fleet(long).padded_work_s == pytest.approx(5e5 * 1.1 * (1 + 1 / 6) * (math.e - 1))
    with pytest.raises(InvalidInput, match="between two preemptions"):
        plan_fleet(replace(REFERENCE, preemptions_per_hour=20.0, shard_seconds=3600.0))


def test_too_many_workers_pay_for_idle_hours_and_too_few_miss_the_window() -> None:
    over, right, under = plan_fleet(REFERENCE).rows
    assert [r.provision for r in (over, right, under)] == ["over", "right", "under"]
    assert [r.workers for r in (over, right, under)] == [26, 13, 6]
    assert [r.makes_window for r in (over, right, under)] == [True, True, False]
    assert over.idle_usd > right.idle_usd > under.idle_usd == 0
    assert over.usd == pytest.approx(26 * 12 * 1.0)
    assert under.usd == pytest.approx(6 * under.finish_s / 3600)


def test_without_margins_the_fleet_is_work_over_window() -> None:
    ask = FleetAsk(3600 * 10 * 4, 10, 3600, 1.0, shard_seconds=60, straggler_margin=0)
    assert plan_fleet(ask).workers == 4


def test_a_shard_longer_than_the_window_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shard_seconds"):
        FleetAsk(1e6, 1, 30, 1.0, shard_seconds=60)


asks = st.builds(
    FleetAsk,
    items=st.floats(1, 1e12),
    rate=st.floats(0.1, 1e5),
    window_s=st.floats(600, 1e6),
    price_usd_per_hour=st.floats(0.01, 100),
    spot_discount=st.floats(0, 0.9),
    preemptions_per_hour=st.floats(0, 5),
    shard_seconds=st.floats(1, 600),
    restart_s=st.floats(0, 600),
    straggler_margin=st.floats(0, 1),
)


@given(asks)
def test_the_right_fleet_makes_the_window_and_one_worker_less_does_not(ask: FleetAsk) -> None:
    made = plan_fleet(ask)
    right = made.rows[1]
    assert right.makes_window
    if made.workers > 1:
        assert made.padded_work_s / (made.workers - 1) > ask.window_s


@given(asks)
def test_idle_dollars_are_part_of_the_dollars(ask: FleetAsk) -> None:
    for row in plan_fleet(ask).rows:
        assert 0 <= row.idle_usd <= row.usd
        assert row.makes_window == (row.finish_s <= ask.window_s * (1 + 1e-9))


def test_end_to_end_latency_is_ttft_plus_tokens_times_tpot() -> None:
    made = plan_replicas(ReplicasAsk(0.5, 0.04, 250, 2500, rate=20, peak_to_average=3))
    assert made.end_to_end_s == pytest.approx(10.5)
    assert made.concurrency == pytest.approx(210)
    assert (made.replicas_average, made.replicas_peak) == (2, 6)
    assert made.tpot_reachable


def test_rate_and_concurrency_are_two_ways_to_say_the_same_load() -> None:
    by_rate = plan_replicas(ReplicasAsk(0.5, 0.04, 250, 2500, rate=20))
    by_concurrency = plan_replicas(ReplicasAsk(0.5, 0.04, 250, 2500, concurrency=210))
    assert by_concurrency.rate == pytest.approx(by_rate.rate)
    assert by_concurrency.replicas_average == by_rate.replicas_average


@pytest.mark.parametrize("load", [{}, {"rate": 1.0, "concurrency": 1.0}])
def test_the_load_is_given_once(load: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        ReplicasAsk(0.5, 0.04, 250, 2500, **load)


def test_a_tpot_that_no_replica_reaches_is_said() -> None:
    assert not plan_replicas(ReplicasAsk(0.5, 0.001, 250, 500, rate=1)).tpot_reachable


def test_130_gb_at_5_gb_a_second_takes_at_least_26_seconds() -> None:
    made = plan_cold_start(130e9, 5e9)
    assert made.cold_start_s == pytest.approx(26)
    assert made.scale_to_zero is None


def test_scale_to_zero_is_refused_where_the_cold_start_exceeds_the_objective() -> None:
    refused = plan_cold_start(130e9, 5e9, startup_s=10, objective_s=30)
    assert (refused.scale_to_zero, refused.warm_floor) == (False, 1)
    allowed = plan_cold_start(130e9, 5e9, startup_s=10, objective_s=36)
    assert (allowed.scale_to_zero, allowed.warm_floor) == (True, 0)
