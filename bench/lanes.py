"""What the lane policy buys, and what it costs to ask it.

Background rows left beside 30 % live load against strict priority, goodput under overload against capacity, and the
policy's own time a row against a bare heap that does nothing but keep the rows in order, all in one run.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import replace

from twoshift.policy.background_queue import Block
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits, Run
from twoshift.policy.lanes import LanePolicy
from twoshift.sim.lanes import LanesSpec, simulate_lanes
from twoshift.types import Item

COST = CallCost.line(0.004, 0.00025)
SPEC = LanesSpec(COST, max_batch=32, slo_s=0.05, load=0.3, background=True)
LIVE_ROWS, BACKGROUND_ROWS = 100_000, 5_000_000


def per_row_us(work: Callable[[], None], rows: int) -> float:
    """The best of three, in microseconds a row."""
    best_s = float("inf")
    for _ in range(3):
        began_s = time.perf_counter()
        work()
        best_s = min(best_s, time.perf_counter() - began_s)
    return 1e6 * best_s / rows


def bare_heap() -> None:
    """Rows in deadline order and nothing else: what any policy must do."""
    heap: list[tuple[float, int]] = []
    for start in range(0, LIVE_ROWS, 32):
        for key in range(start, start + 32):
            heapq.heappush(heap, (float(key), key))
        for _ in range(32):
            heapq.heappop(heap)


def live_rows() -> None:
    """Rows in fours, as a third of the capacity brings them."""
    policy = LanePolicy(COST, LaneLimits(max_rows=32, slo_s=0.05))
    now_s = 0.0
    for start in range(0, LIVE_ROWS, 4):
        for key in range(start, start + 4):
            policy.submit(Item(key, now_s + 0.05), now_s)
        drain(policy, now_s)
        now_s += 0.005


def background_rows() -> None:
    """Blocks of 4,096 rows in calls of 512."""
    policy = LanePolicy(COST, LaneLimits(max_rows=512))
    for key in range(BACKGROUND_ROWS // 4096):
        policy.submit_block(Block(key, [1] * 4096), 0.0)
        drain(policy, 0.0)


def drain(policy: LanePolicy, now_s: float) -> None:
    """Run calls until the policy has none."""
    while isinstance(decision := policy.decide(now_s), Run):
        policy.finished(decision.call, decision.call.predicted_s)


def main() -> None:
    """Print the ratios."""
    ours, strict = simulate_lanes(SPEC), simulate_lanes(replace(SPEC, policy="strict"))
    small = simulate_lanes(replace(SPEC, call_budget_s=0.008))
    over = simulate_lanes(replace(SPEC, load=1.4))
    for name, result in (("derived budget", ours), ("budget of 8 ms", small)):
        gain = result.background_per_s / strict.background_per_s
        print(f"{name}: {gain:5.1f} x the background rows of strict; p99 {result.p99_ms:.2f} ms ({strict.p99_ms:.2f})")
    print(f"load 1.4: {over.goodput / over.capacity_per_s:.3f} of capacity answered inside the SLO")
    heap_us = per_row_us(bare_heap, LIVE_ROWS)
    live_us, background_us = per_row_us(live_rows, LIVE_ROWS), per_row_us(background_rows, BACKGROUND_ROWS)
    print(f"a live row: {live_us:.2f} us, {live_us / heap_us:.1f} x a bare heap ({heap_us:.2f} us)")
    print(f"a background row: {background_us:.3f} us, {background_us / heap_us:.2f} x a bare heap")


if __name__ == "__main__":
    main()
