"""What the replicas of a model tell, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twoshift.engine.stats import BESIDE_BATCH, BESIDE_NOTHING, CallRows, EngineStats, LiveTime, Queue
from twoshift.policy.lane_values import LaneUse
from twoshift.serve.derived import Derived
from twoshift.types import Lane

__all__ = ["NOTHING", "derived_together", "queues_together", "stats_together"]

NOTHING = EngineStats(
    lanes={lane: LaneUse() for lane in Lane},
    waits_s=dict.fromkeys(Lane, 0.0),
    call_rows={lane: CallRows() for lane in Lane},
    calls=0,
    busy_s=0.0,
    failed_calls=0,
    out_of_memory=0,
    max_tokens=0,
)


def stats_together(parts: Sequence[EngineStats]) -> EngineStats:
    """Sums; the cap is that of the replica with the least memory."""
    return EngineStats(
        lanes={lane: _uses([each.lanes[lane] for each in parts]) for lane in Lane},
        waits_s={lane: sum(each.waits_s[lane] for each in parts) for lane in Lane},
        call_rows={lane: _call_rows([each.call_rows[lane] for each in parts]) for lane in Lane},
        calls=sum(each.calls for each in parts),
        busy_s=sum(each.busy_s for each in parts),
        failed_calls=sum(each.failed_calls for each in parts),
        out_of_memory=sum(each.out_of_memory for each in parts),
        max_tokens=min((each.max_tokens for each in parts if each.max_tokens), default=0),
        tenants={
            name: _uses([each.tenants[name] for each in parts if name in each.tenants])
            for name in {name for each in parts for name in each.tenants}
        },
        live={beside: _live_times(parts, beside) for beside in (BESIDE_BATCH, BESIDE_NOTHING)},
    )


def queues_together(parts: Sequence[dict[Lane, Queue]]) -> dict[Lane, Queue]:
    """All rows that wait, and the longest wait."""
    return {
        lane: Queue(
            sum(each[lane].rows for each in parts),
            max((each[lane].oldest_s for each in parts), default=0.0),
        )
        for lane in Lane
    }


def derived_together(parts: Sequence[Derived]) -> Derived:
    """A call is one replica's; what may wait and what is done in a second are the fleet's."""
    return replace(
        parts[0],
        admission_rows=sum(each.admission_rows for each in parts),
        capacity_rows_per_s=sum(each.capacity_rows_per_s for each in parts),
        keeps_slo=all(each.keeps_slo for each in parts),
        least_slo_s=max(each.least_slo_s for each in parts),
    )


def _live_times(parts: Sequence[EngineStats], beside: str) -> LiveTime:
    found = [each.live[beside] for each in parts if beside in each.live]
    return LiveTime(sum(each.rows for each in found), sum(each.seconds for each in found))


def _uses(parts: Sequence[LaneUse]) -> LaneUse:
    return LaneUse(
        rows=sum(each.rows for each in parts),
        tokens=sum(each.tokens for each in parts),
        riding_rows=sum(each.riding_rows for each in parts),
        device_s=sum(each.device_s for each in parts),
        output_tokens=sum(each.output_tokens for each in parts),
        output_s=sum(each.output_s for each in parts),
    )


def _call_rows(parts: Sequence[CallRows]) -> CallRows:
    counts = [sum(column) for column in zip(*(each.counts for each in parts), strict=True)]
    return CallRows(counts, sum(each.rows for each in parts))
