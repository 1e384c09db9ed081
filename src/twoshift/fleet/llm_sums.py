"""What the replicas of a language model tell, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from twoshift.engine.llm import LlmLane, LlmStats
from twoshift.serve.llm_derived import LlmDerived
from twoshift.types import Lane

__all__ = ["llm_derived_together", "llm_stats_together"]

_NOW = ("waiting", "running")  # of those that are there; the rest is counted since the start


def llm_stats_together(all_: Sequence[LlmStats], there: Sequence[LlmStats]) -> LlmStats:
    """Sums over all that there ever were; how full the KV caches are, over those that are there."""
    kv_tokens = sum(each.kv_tokens for each in there)

    def share(name: str) -> float:
        return sum(getattr(each, name) * each.kv_tokens for each in there) / max(1, kv_tokens)

    return LlmStats(
        lanes={lane: _lane([each.lanes[lane] for each in all_], [each.lanes[lane] for each in there]) for lane in Lane},
        steps=sum(each.steps for each in all_),
        busy_s=sum(each.busy_s for each in all_),
        kv_use=share("kv_use"),
        live_kv_use=share("live_kv_use"),
        kv_tokens=kv_tokens,
        preemptions=sum(each.preemptions for each in all_),
        requeued=sum(each.requeued for each in all_),
        reread_tokens=sum(each.reread_tokens for each in all_),
        step_s=max((each.step_s for each in there), default=0.0),
        why=there[0].why if there else "",
    )


def _lane(all_: Sequence[LlmLane], there: Sequence[LlmLane]) -> LlmLane:
    return LlmLane(
        **{
            each.name: sum(getattr(lane, each.name) for lane in (there if each.name in _NOW else all_))
            for each in fields(LlmLane)
        }
    )


def llm_derived_together(parts: Sequence[LlmDerived]) -> LlmDerived:
    """A step is one replica's; what may wait and what is generated in a second are the fleet's."""
    return replace(
        parts[0],
        sequences=sum(each.sequences for each in parts),
        output_tokens_per_s=sum(each.output_tokens_per_s for each in parts),
        streamed_tokens_per_s=sum(each.streamed_tokens_per_s for each in parts),
        kv_tokens=sum(each.kv_tokens for each in parts),
        max_waiting=sum(each.max_waiting for each in parts),
        live_streams=sum(each.live_streams for each in parts),
    )
