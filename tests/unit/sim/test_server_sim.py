"""Lanes, hosts and replicas: what must hold whatever is simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_lane import PlainLoop

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.journal import replay
from twoshift.sim.host import HostCosts
from twoshift.sim.lanes import LanesResult, LanesSpec, record_lanes, simulate_lanes
from twoshift.sim.traffic import Arrivals
from twoshift.types import CallSize

COST = CallCost.line(0.004, 0.00025)
SPEC = LanesSpec(COST, max_batch=32, slo_s=0.05, load=0.5, seconds=2.0)
specs = st.builds(
    LanesSpec,
    cost=st.builds(CallCost.line, st.floats(0.0005, 0.01), st.floats(0.0001, 0.001)),
    max_batch=st.integers(1, 64),
    slo_s=st.floats(0.03, 0.2),
    load=st.floats(0.05, 2.0),
    background=st.booleans(),
    policy=st.sampled_from(["twoshift", "strict", "window", "greedy"]),
    seconds=st.just(0.25),
    noise=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
servers = st.builds(
    replace,
    specs,
    policy=st.just("twoshift"),
    lanes=st.integers(1, 4),
    replicas=st.integers(1, 3),
    rows=st.integers(1, 8),
    host=st.builds(
        HostCosts, st.floats(0, 0.002), st.floats(0, 1e-6), st.floats(0, 0.001), refusal_s=st.floats(0, 1e-4)
    ),
)


@settings(max_examples=examples(60))
@given(specs)
@pytest.mark.slow
def test_one_lane_without_a_host_is_the_plain_loop_to_the_last_digit(spec: LanesSpec) -> None:
    loop = PlainLoop(spec)
    arrivals = loop.run()
    result = simulate_lanes(spec)
    counted = (loop.in_slo / max(1, len(arrivals.tokens)), loop.refused, loop.dropped)
    assert (result.in_slo if len(arrivals.tokens) else 0, result.refused, result.dropped) == counted
    assert sorted(result.latencies_ms) == pytest.approx(sorted(loop.latencies_ms), rel=1e-12)
    assert result.background_per_s == loop.background_rows / arrivals.horizon_s
    assert result.busy_share == pytest.approx(loop.busy_s / arrivals.horizon_s)


@settings(max_examples=examples(40))
@given(servers)
def test_every_row_is_answered_refused_or_dropped_and_no_device_is_busier_than_busy(spec: LanesSpec) -> None:
    result = simulate_lanes(spec)
    offered = round(result.offered_per_s * spec.seconds)
    assert len(result.latencies_ms) * spec.rows + result.refused + result.dropped == offered
    assert 0 <= result.busy_share <= 1 + 1e-9
    assert result.host_share >= 0


@settings(max_examples=examples(20))
@given(servers)
@pytest.mark.slow
def test_the_same_seed_gives_the_same_result(spec: LanesSpec) -> None:
    assert simulate_lanes(spec) == simulate_lanes(spec)


@settings(max_examples=examples(40))
@given(servers)
@pytest.mark.slow
def test_a_host_that_costs_nothing_changes_nothing(spec: LanesSpec) -> None:
    assert simulate_lanes(replace(spec, host=HostCosts())) == simulate_lanes(replace(spec, host=None))


def test_a_host_that_is_slower_than_its_device_is_what_fills_up() -> None:
    host = HostCosts(before_s=0.0015, after_s=0.0005, refusal_s=0.00002)
    spec = replace(SPEC, load=0.4, host=host, seconds=5.0)
    assert 0.4 * spec.capacity_per_s > 2 * 500
    result = simulate_lanes(spec)
    assert result.host_share > 0.95
    assert 440 < result.goodput <= 510
    assert result.dropped == 0
    assert max(result.latencies_ms) < 55


def test_replicas_share_what_is_too_much_for_one_host() -> None:
    host = HostCosts(before_s=0.0015, after_s=0.0005)
    spec = replace(SPEC, load=0.15, host=host, front=HostCosts(before_s=0.0001), replicas=2, seconds=5.0)
    result = simulate_lanes(spec)
    assert result.offered_per_s > 700
    assert result.in_slo > 0.99
    assert 0.05 < result.front_share < 0.1


@pytest.mark.slow
def test_without_its_policy_a_full_host_answers_everybody_late() -> None:
    spec = replace(SPEC, load=0.4, host=HostCosts(before_s=0.002), policy="greedy", seconds=5.0)
    assert simulate_lanes(spec).in_slo < 0.05


@pytest.mark.slow
def test_two_replicas_answer_twice_as_much() -> None:
    one = simulate_lanes(replace(SPEC, load=1.2))
    two = simulate_lanes(replace(SPEC, load=1.2, replicas=2))
    assert two.capacity_per_s == 2 * one.capacity_per_s
    assert two.goodput == pytest.approx(2 * one.goodput, rel=0.1)


def test_a_front_costs_what_it_costs() -> None:
    spec = replace(SPEC, replicas=2, load=0.002, seconds=20.0, front=HostCosts(before_s=0.003, after_s=0.002))
    with_front, without = simulate_lanes(spec), simulate_lanes(replace(spec, front=None))
    assert with_front.p50_ms is not None
    assert without.p50_ms is not None
    assert with_front.p50_ms == pytest.approx(without.p50_ms + 5.0, abs=1.0)


def test_a_row_that_is_alone_has_all_lanes_and_two_rows_share_them() -> None:
    spec = replace(SPEC, lanes=2, trace=Arrivals(np.array([0.0, 1.0, 1.0]), np.ones(3, np.int64), 2.0))
    result = simulate_lanes(replace(spec, load=1.5 / spec.capacity_per_s))
    alone_ms, lane_ms = 1e3 * COST.seconds(CallSize.uniform(1)), 2e3 * COST.seconds(CallSize.uniform(1))
    assert result.latencies_ms == pytest.approx([alone_ms, lane_ms, lane_ms])


def test_a_request_of_many_rows_is_answered_once_its_last_row_is() -> None:
    result = simulate_lanes(replace(SPEC, max_batch=4, rows=8, load=0.02, seconds=20.0))
    call_ms = 1e3 * COST.seconds(CallSize.uniform(4))
    assert result.p50_ms == pytest.approx(2 * call_ms)
    assert result.offered_per_s * 20.0 == 8 * len(result.latencies_ms)


def test_live_calls_that_overtake_do_not_wait_for_background_calls() -> None:
    light = replace(SPEC, load=0.02, background=True, call_budget_s=0.025, seconds=10.0)
    overtaking, sharing = simulate_lanes(replace(light, overtaking=True)), simulate_lanes(light)
    assert overtaking.p99_ms is not None
    assert sharing.p50_ms is not None
    assert overtaking.p99_ms < sharing.p50_ms
    assert overtaking.background_per_s > 0


@pytest.mark.parametrize("change", [{"lanes": 2}, {"overtaking": True}, {"host": HostCosts(0.001)}, {"rows": 4}])
@pytest.mark.slow
def test_a_journal_of_any_device_replays_exactly(change: dict[str, Any]) -> None:
    journal: list[list[Any]] = []
    spec = replace(SPEC, load=1.1, background=True, noise=0.2, seconds=1.0, **change)
    assert record_lanes(spec, journal.append) == simulate_lanes(spec)
    replayed = replay(journal)
    assert replayed.difference is None
    assert replayed.decisions > 100


def test_a_journal_is_of_one_device() -> None:
    with pytest.raises(InvalidInput, match="replicas"):
        record_lanes(replace(SPEC, replicas=2), lambda _: None)


def _p50(result: LanesResult) -> float:
    assert result.p50_ms is not None
    return result.p50_ms


def test_a_host_below_capacity_refuses_nobody() -> None:
    host = HostCosts(before_s=0.0005, after_s=0.0005, refusal_s=0.00002)
    spec = replace(SPEC, load=0.25, host=host, seconds=5.0)
    assert 0.6 < 0.25 * spec.capacity_per_s * 0.001 < 0.8
    result = simulate_lanes(spec)
    assert result.refused == result.dropped == 0
