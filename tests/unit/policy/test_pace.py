"""What a job may cost live callers, and that the lane policy keeps to it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache

import pytest

from twoshift.policy.background_queue import Block
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Idle, LaneLimits, Run
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.pace import PacePolicy
from twoshift.types import CallSize, Item, Lane

COST = CallCost.line(0.004, 0.001)
LIMITS = LaneLimits(max_rows=256, slo_s=0.5)
PER_S, SECONDS = 8.0, 75.0


@cache
def mean_latency_s(limits: LaneLimits, background: int) -> tuple[float, int]:
    """Of live rows of 4 tokens by a Poisson process beside background rows of this many; and how many of those ran."""
    policy, rng = LanePolicy(COST, limits), random.Random(1)  # noqa: S311 - arrivals, not a secret
    if background:
        policy.submit_block(Block(-1, [background] * 100_000), 0.0)
    due_s, now_s, key, took_s = rng.expovariate(PER_S), 0.0, 0, list[float]()
    arrived = dict[int, float]()
    while now_s < SECONDS:
        while due_s <= now_s:
            policy.submit(Item(key, due_s + 0.5, 4), due_s)
            arrived[key], key, due_s = due_s, key + 1, due_s + rng.expovariate(PER_S)
        decision = policy.decide(now_s)
        if isinstance(decision, Run):
            now_s += decision.call.predicted_s
            policy.finished(decision.call, decision.call.predicted_s)
            took_s += [now_s - arrived[item.key] for item in decision.call.live]
        else:
            assert isinstance(decision, Idle)
            now_s = min(due_s, math.inf if decision.until_s is None else decision.until_s)
    return sum(took_s) / len(took_s), policy.accounts.use[Lane.BATCH].rows


@pytest.mark.parametrize("row_tokens", [1, 20, 150])
@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0])
@pytest.mark.slow
def test_a_job_costs_live_callers_no_more_than_they_were_promised(factor: float, row_tokens: int) -> None:
    alone_s, _ = mean_latency_s(LIMITS, 0)
    beside_s, rows = mean_latency_s(replace(LIMITS, live_slowdown=factor), row_tokens)
    assert beside_s <= 1.05 * factor * alone_s
    assert rows > 0
    free_s, most = mean_latency_s(LIMITS, row_tokens)
    assert beside_s <= free_s + 1e-9
    assert rows <= most


def test_a_looser_bound_leaves_more_to_the_job() -> None:
    rows = [mean_latency_s(replace(LIMITS, live_slowdown=factor), 20)[1] for factor in (1.1, 1.5, 3.0)]
    assert rows == sorted(rows)
    assert rows[0] < rows[-1]


def test_nothing_runs_beside_live_rows_that_may_not_be_slowed_down_at_all() -> None:
    policy = LanePolicy(COST, replace(LIMITS, live_slowdown=1.0))
    policy.submit(Item(1, 0.5, 4), 0.0)
    decision = policy.decide(0.0)
    assert isinstance(decision, Run)
    policy.finished(decision.call, decision.call.predicted_s)
    policy.submit_block(Block(-1, [1] * 100), 0.0)
    for now_s in (1.0, 2.0, 60.0):
        waiting = policy.decide(now_s)
        assert isinstance(waiting, Idle)
        assert waiting.until_s is not None
        assert now_s < waiting.until_s < math.inf


def test_a_tiny_model_has_no_tiny_calls() -> None:
    policy = PacePolicy(LaneLimits(slo_s=0.1))
    tiny = CallCost.line(1e-6, 1e-7)
    policy.price(tiny, tiny, tiny)
    assert policy.call_s(1) == 0.001


def test_memory_that_runs_short_moves_the_knee() -> None:
    policy = PacePolicy(LIMITS)
    policy.price(COST, COST, COST)
    before_s = policy.call_s(10)
    policy.cap_tokens(20)
    assert policy.call_s(10) <= COST.seconds(CallSize.uniform(2, 10)) < before_s


def priced(limits: LaneLimits) -> PacePolicy:
    policy = PacePolicy(limits)
    policy.price(COST, COST, COST)
    return policy


def test_where_live_calls_overtake_background_calls_are_as_long_as_the_budget_while_nobody_comes() -> None:
    overtaken = priced(replace(LIMITS, background_depth=2))
    knee_s = overtaken.call_s(4)
    assert knee_s < LIMITS.budget_s
    assert overtaken.pace(4, 0.0, 0).call_s == LIMITS.budget_s
    overtaken.launched(1, 1.0)
    assert overtaken.pace(4, 1.0, 4).call_s == overtaken.pace(4, 4.0, 4).call_s == knee_s
    assert overtaken.pace(4, 10.0, 4).call_s == LIMITS.budget_s
    assert priced(LIMITS).pace(4, 10.0, 4).call_s == knee_s  # where they wait, they wait for all of it


def test_rows_of_another_length_do_not_ride_in_a_call_that_would_run_them_after_the_live_ones() -> None:
    def ride_s(row_tokens: int, pads: bool) -> float:
        policy = priced(replace(LIMITS, pads=pads))
        policy.launched(1000, 1.0)
        return policy.pace(row_tokens, 1.0, live_tokens=100).ride_s

    dense_s = ride_s(150, pads=False)
    assert ride_s(150, pads=True) == 0.25 * COST.seconds(CallSize(0, 0, 0, 0)) < dense_s
    assert ride_s(102, pads=True) > dense_s / 2
