"""Replicas of a language model for a latency objective and a load."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["ReplicasAsk", "ReplicasPlan", "plan_replicas"]


@dataclass(frozen=True, slots=True)
class ReplicasAsk:
    """The objectives, the performance of one replica, and the load as a rate or a concurrency."""

    ttft_s: float
    tpot_s: float
    output_tokens: float
    tokens_per_s: float  # output tokens a second of one replica, all its streams together
    concurrency: float | None = None
    rate: float | None = None  # requests a second
    peak_to_average: float = 1.0

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise InvalidInput("rate", self.rate, "either a concurrency or a rate, and not both")
        for name in ("ttft_s", "tpot_s", "output_tokens", "tokens_per_s", "concurrency", "rate"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, value, "a finite number above 0")
        if not (math.isfinite(self.peak_to_average) and self.peak_to_average >= 1):
            raise InvalidInput("peak_to_average", self.peak_to_average, "a finite number of at least 1")


@dataclass(frozen=True, slots=True)
class ReplicasPlan:
    """Replicas at mean and at peak load, with the figures behind them."""

    end_to_end_s: float
    rate: float
    concurrency: float
    tokens_per_s: float  # demanded at average load
    peak_tokens_per_s: float
    streams_per_replica: float  # how many callers one replica serves at the TPOT objective
    replicas_average: int
    replicas_peak: int
    tpot_reachable: bool  # False: a replica is slower than even one stream demands


def plan_replicas(ask: ReplicasAsk) -> ReplicasPlan:
    """By Little's law: concurrency = rate x time in the system."""
    end_to_end_s = ask.ttft_s + ask.output_tokens * ask.tpot_s
    rate = ask.rate if ask.rate is not None else (ask.concurrency or 0.0) / end_to_end_s
    demanded = rate * ask.output_tokens
    peak = demanded * ask.peak_to_average
    streams = ask.tokens_per_s * ask.tpot_s
    return ReplicasPlan(
        end_to_end_s=end_to_end_s,
        rate=rate,
        concurrency=rate * end_to_end_s,
        tokens_per_s=demanded,
        peak_tokens_per_s=peak,
        streams_per_replica=streams,
        replicas_average=_ceil(demanded / ask.tokens_per_s),
        replicas_peak=_ceil(peak / ask.tokens_per_s),
        tpot_reachable=streams >= 1 - 1e-9,
    )


def _ceil(replicas: float) -> int:
    # An objective needs one warm replica at least; floats must not turn 4 into 5.
    return max(1, math.ceil(replicas * (1 - 1e-12)))
