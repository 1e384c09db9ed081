"""What live requests noticed of a job."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["LiveImpact", "Percentiles"]


class Percentiles(msgspec.Struct, frozen=True):
    """Of live requests' latency."""

    requests: int
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Percentiles | None:
        """None of nothing."""
        if not seconds:
            return None
        ranked = sorted(seconds)
        return cls(len(ranked), *(ranked[min(len(ranked) - 1, int(q * len(ranked)))] for q in (0.5, 0.99)))


class LiveImpact(msgspec.Struct, frozen=True):
    """What live requests took while the job's rows ran beside them, and while they were held back."""

    beside: Percentiles | None
    alone: Percentiles | None
