"""The figures that issue and DESIGN promise, from the very policies that production runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.journal import replay
from twoshift.sim.lanes import LanesResult, LanesSpec, record_lanes, simulate_lanes
from twoshift.sim.traffic import parse_trace

SPEC = LanesSpec(CallCost.line(0.004, 0.00025), max_batch=32, slo_s=0.05, load=0.3, background=True, seconds=20.0)


@cache
def result(policy: str, load: float = 0.3, call_budget_s: float | None = None) -> LanesResult:
    background = load < 1
    return simulate_lanes(replace(SPEC, policy=policy, load=load, call_budget_s=call_budget_s, background=background))


def p99(result: LanesResult) -> float:
    assert result.p99_ms is not None
    return result.p99_ms


@pytest.mark.slow
def test_riding_along_leaves_twelve_times_the_background_of_strict_priority() -> None:
    assert result("twoshift").background_per_s >= 12 * result("strict").background_per_s
    assert p99(result("twoshift")) <= 50
    assert result("twoshift").in_slo == 1.0


@pytest.mark.slow
def test_a_small_budget_leaves_eight_times_as_much_at_no_higher_p99() -> None:
    small = result("twoshift", call_budget_s=0.008)
    assert small.background_per_s >= 8 * result("strict").background_per_s
    assert p99(small) <= p99(result("strict"))


@pytest.mark.slow
def test_under_overload_the_device_still_answers_inside_the_slo_at_capacity() -> None:
    assert result("twoshift", load=1.4).goodput >= 0.95 * SPEC.capacity_per_s


@pytest.mark.parametrize("policy", ["window", "greedy"])
@pytest.mark.slow
def test_without_early_drop_overload_answers_everybody_late(policy: str) -> None:
    late = simulate_lanes(replace(SPEC, policy=policy, load=1.4, background=False, seconds=5.0))
    assert late.goodput < 0.05 * SPEC.capacity_per_s


def test_a_window_holds_rows_back_on_an_idle_device() -> None:
    light = replace(SPEC, load=0.02, background=False, seconds=10.0)
    window, ours = simulate_lanes(replace(light, policy="window")), simulate_lanes(light)
    assert p99(window) >= p99(ours) + 2


def test_the_same_seed_gives_the_same_result_and_another_seed_another() -> None:
    spec = replace(SPEC, seconds=2.0, noise=0.1)
    assert simulate_lanes(spec) == simulate_lanes(spec)
    assert simulate_lanes(spec) != simulate_lanes(replace(spec, seed=2))


def test_noise_in_the_call_times_leaves_the_slo_standing() -> None:
    noisy = simulate_lanes(replace(SPEC, noise=0.1, seconds=10.0))
    assert noisy.in_slo > 0.999


def test_a_recorded_simulation_replays_to_identical_decisions() -> None:
    journal: list[list[Any]] = []
    spec = replace(SPEC, seconds=1.0, load=1.2, noise=0.2)
    recorded = record_lanes(spec, journal.append)
    assert recorded == simulate_lanes(spec)
    replayed = replay(journal)
    assert replayed.difference is None
    assert replayed.decisions > 1000


def test_a_trace_keeps_its_pattern_and_costs_by_its_tokens() -> None:
    lines = ["TIMESTAMP,ContextTokens", *(f"2023-11-16 18:17:{s:02d}.5,{100 + 50 * (s % 3)}" for s in range(60))]
    trace = parse_trace(lines)
    spec = LanesSpec(CallCost.line(0.004, 0.00025 / 150), 32, 0.05, 0.3, row_tokens=150, trace=trace)
    result = simulate_lanes(spec)
    assert result.offered_per_s == pytest.approx(0.3 * spec.capacity_per_s)
    assert len(result.latencies_ms) == 60


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"slo_s": 0.001}, "slo_ms"),
        ({"seconds": 1e9}, "seconds"),
        ({"policy": "magic"}, "policy"),
        ({"cost": CallCost.line(1e-12, 1e-12)}, "seconds"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        simulate_lanes(replace(SPEC, **change))
