"""Which share of the keys to precompute: keys whose live requests cost more than their row in a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from twoshift.errors import InvalidInput, Malformed

__all__ = ["HybridAsk", "HybridPlan", "HybridPoint", "plan_hybrid"]

_POINTS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class HybridAsk:
    """Cost of a live row and of a job's row, and how often the job runs."""

    batch_row_usd: float
    live_row_usd: float
    trace_s: float  # that the counts of requests are from
    refresh_s: float  # between two runs of the job
    keys: int | None = None  # that could be precomputed; None: those that were asked for

    def __post_init__(self) -> None:
        for name in ("batch_row_usd", "live_row_usd"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInput(name, getattr(self, name), "a finite number of dollars, 0 or more")
        for name in ("trace_s", "refresh_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInput(name, getattr(self, name), "a finite number of seconds above 0")


@dataclass(frozen=True, slots=True)
class HybridPoint:
    """Cost of precomputing a share of the keys, the most requested keys first."""

    share: float
    keys: int
    hit_share: float  # of the requests
    usd_per_day: float


@dataclass(frozen=True, slots=True)
class HybridPlan:
    """The best share, beside other shares."""

    best: HybridPoint
    points: tuple[HybridPoint, ...]
    requests_per_day: float
    least_requests: float  # of a key between two runs, from which on it is worth a row of the job


def plan_hybrid(ask: HybridAsk, counts: Sequence[int]) -> HybridPlan:
    """From how often each key was asked for; raises InvalidInput where a count is none, or there are more than keys."""
    if not counts:
        raise Malformed("trace", "a file with at least one request; this file has none")
    if min(counts) < 1:
        raise Malformed(
            "trace", f"a count of at least 1 for each key; the smallest count in this file is {min(counts)}"
        )
    total = len(counts) if ask.keys is None else ask.keys
    if total < len(counts):
        raise InvalidInput("keys", total, f"at least {len(counts):,}, the number of keys in the trace")
    often = sorted(counts, reverse=True)
    per_refresh = [count * ask.refresh_s / ask.trace_s for count in often]
    saved = [each * ask.live_row_usd - ask.batch_row_usd for each in per_refresh]
    gains, hits = _sums(saved), _sums(often)
    all_live_usd = math.fsum(per_refresh) * ask.live_row_usd
    refreshes_per_day = 86_400.0 / ask.refresh_s

    def point(keys: int) -> HybridPoint:
        asked = min(keys, len(often))
        usd = all_live_usd - gains[asked] + (keys - asked) * ask.batch_row_usd
        return HybridPoint(keys / total, keys, hits[asked] / hits[-1], usd * refreshes_per_day)

    best = sum(1 for each in saved if each > 0)
    shown = sorted({best, *(round(share * total) for share in _POINTS)})
    return HybridPlan(
        point(best),
        tuple(point(keys) for keys in shown),
        hits[-1] * 86_400.0 / ask.trace_s,
        math.inf if ask.live_row_usd == 0 else ask.batch_row_usd / ask.live_row_usd,
    )


def _sums(values: Sequence[float]) -> list[float]:
    """Running sums, starting with 0."""
    found = [0.0]
    for value in values:
        found.append(found[-1] + value)
    return found
