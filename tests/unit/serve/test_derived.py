"""What a server says about itself, against what its device does."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.plan.row import RowSize
from twoshift.serve.derived import Derived, derive
from twoshift.types import Item

COST = CallCost(0.0035, 0.00014, ratios=(0.7, 0.9, 1.0, 1.3, 1.9))
LIMITS = LaneLimits(slo_s=0.2, lanes=2)
IN_LANE = 1.75


def closed_loop(policy: LanePolicy, clients: int, calls: int) -> float:
    """Rows per second of patient clients with rows of 6 to 200 tokens."""
    rng, now_s, answered, key = np.random.default_rng(1), 0.0, 0, 0
    running: list[tuple[float, int, Call, float]] = []
    missing = clients
    for _ in range(calls):
        for _ in range(missing):
            key += 1
            policy.submit(Item(key, now_s + 10.0, int(rng.integers(6, 200))), now_s)
        while not isinstance(decision := policy.decide(now_s), Idle):
            assert not isinstance(decision, Drop)
            slow = IN_LANE if decision.call.slot is Slot.SHARED else 1.0
            took_s = slow * COST.seconds(decision.call.size) * float(np.exp(rng.normal(0.0, 0.15)))
            heapq.heappush(running, (now_s + took_s, decision.call.number, decision.call, took_s))
        now_s, _, call, took_s = heapq.heappop(running)
        policy.finished(call, took_s)
        missing = len(call.live)
        answered += missing
    return answered / now_s


def derived_now(policy: LanePolicy) -> Derived:
    row = policy.accounts.live_row.size(RowSize.uniform(32.0))  # the profile was measured with shorter rows
    return derive(policy.curves.cost, policy.limits, row, 4096, policy.curves.whole_cost)


@pytest.mark.slow
def test_the_capacity_is_what_a_closed_loop_gets() -> None:
    policy = LanePolicy(COST, LIMITS)
    rows_per_s = closed_loop(policy, 32, 3000)
    assert derived_now(policy).capacity_rows_per_s == pytest.approx(rows_per_s, rel=0.15)
    assert derived_now(policy).row_tokens == pytest.approx(103, rel=0.1)


def test_one_row_is_said_to_take_what_half_of_them_take() -> None:
    derived = derive(COST, LaneLimits(slo_s=0.2), RowSize.uniform(100.0), 4096)
    assert derived.one_row_s == pytest.approx(COST.seconds(RowSize.uniform(100.0).call(1)))


def test_whether_the_slo_is_kept_is_judged_with_caution() -> None:
    row = RowSize.uniform(100.0)
    takes_s = COST.seconds(row.call(1))
    assert not derive(COST, LaneLimits(slo_s=1.2 * takes_s), row, 4096).keeps_slo
