"""Whether work should run online, as micro-batches, as a batch job, or with precomputed answers."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from twoshift.errors import Inapplicable, InvalidInput
from twoshift.types import Lane

__all__ = ["Regime", "RegimeAsk", "RegimePlan", "plan_regime"]

ONLINE_BELOW_S = 0.1  # p99
INTERACTIVE_BELOW_S = 1.0  # p99, or time to first token
MICRO_BELOW_S = 3600.0  # freshness: seconds to minutes


class Regime(enum.StrEnum):
    """How the work should be run."""

    ONLINE = "online"
    INTERACTIVE = "interactive"
    MICRO_BATCH = "micro-batch"
    BATCH = "batch"
    HYBRID = "hybrid"


_HARDWARE = {
    Regime.ONLINE: "reserved or on-demand devices, warm and near the caller: CPUs or small GPUs (L4, A10)",
    Regime.INTERACTIVE: "on-demand devices that stay warm; for an LLM, GPUs with fast memory (H100, H200)",
    Regime.MICRO_BATCH: (
        "mid-range GPUs (L4, L40S, A10) on demand, or spot devices if a lost window can be processed again"
    ),
    Regime.BATCH: "spot devices with the lowest price per item, scaled from zero and back to zero",
    Regime.HYBRID: "spot devices for precomputed answers, and a small warm tier for the other answers",
}

_LANE = {
    Regime.ONLINE: Lane.ONLINE,
    Regime.INTERACTIVE: Lane.ONLINE,
    Regime.MICRO_BATCH: Lane.MICRO,
    Regime.BATCH: Lane.BATCH,
    Regime.HYBRID: Lane.ONLINE,
}


@dataclass(frozen=True, slots=True)
class RegimeAsk:
    """The two deciding questions, and figures that refine the answer."""

    waiting: bool  # does somebody wait for each answer?
    known: bool  # is the whole input known before the start?
    p99_s: float | None = None
    ttft_s: float | None = None
    freshness_s: float | None = None
    precomputable: float = 0.0  # share of the answers that can be made before they are asked for

    def __post_init__(self) -> None:
        for name in ("p99_s", "ttft_s", "freshness_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, value, "a finite number of seconds above 0")
        if not self.waiting and (self.p99_s is not None or self.ttft_s is not None):
            name = "p99_s" if self.p99_s is not None else "ttft_s"
            # True: the value is in seconds, which nobody typed
            raise Inapplicable(name, True, "with --nobody-waiting: use only one of the two")
        if not 0 <= self.precomputable <= 1:
            raise InvalidInput("precomputable", self.precomputable, "a share from 0 to 1")


@dataclass(frozen=True, slots=True)
class RegimePlan:
    """The recommended regime, the reason, and where to run it."""

    regime: Regime
    deciding_property: str
    hardware: str
    lane: Lane
    command: str  # that runs it


def plan_regime(ask: RegimeAsk) -> RegimePlan:
    """Decide by two questions: does somebody wait, and is the input known in advance?"""
    regime, why = _waited_for(ask) if ask.waiting else _nobody_waits(ask)
    return RegimePlan(regime, why, _HARDWARE[regime], _LANE[regime], _command(regime, ask))


def _command(regime: Regime, ask: RegimeAsk) -> str:
    match regime:
        case Regime.ONLINE | Regime.INTERACTIVE:
            objective = "" if ask.p99_s is None else f" --slo-ms {ask.p99_s * 1e3:g}"
            return f"twoshift serve MODEL{objective}"
        case Regime.MICRO_BATCH:
            fresh_s = ask.freshness_s or ask.p99_s
            objective = "" if fresh_s is None else f" --fresh {fresh_s:g}s"
            return f"twoshift stream SOURCE --model MODEL{objective} -o OUT"
        case Regime.BATCH:
            return "twoshift run INPUT --model MODEL -o OUT"
        case Regime.HYBRID:
            return "twoshift serve MODEL --precomputed OUT --key KEY"


def _waited_for(ask: RegimeAsk) -> tuple[Regime, str]:
    if ask.known:
        return (
            Regime.HYBRID,
            "a caller waits, but every input is known in advance: precompute the answers and look them up by key",
        )
    if ask.precomputable > 0:
        share = f"{ask.precomputable:.0%}"
        return Regime.HYBRID, f"a caller waits, and {share} of the answers can be precomputed and looked up"
    if ask.p99_s is not None and ask.p99_s < ONLINE_BELOW_S:
        return Regime.ONLINE, f"a caller waits, and the p99 objective of {ask.p99_s * 1e3:g} ms is under 100 ms"
    if ask.ttft_s is not None and ask.ttft_s < INTERACTIVE_BELOW_S:
        return (
            Regime.INTERACTIVE,
            f"a caller reads the answer as it is generated, and the TTFT objective of {ask.ttft_s * 1e3:g} ms is "
            "under 1 s",
        )
    if ask.p99_s is not None and ask.p99_s < INTERACTIVE_BELOW_S:
        return Regime.INTERACTIVE, f"a caller waits, and the p99 objective of {ask.p99_s * 1e3:g} ms is under 1 s"
    if ask.p99_s is None and ask.ttft_s is None and ask.freshness_s is None:
        return Regime.INTERACTIVE, "a caller waits for each answer, and no latency objective is set"
    return (
        Regime.MICRO_BATCH,
        "the caller can wait seconds to minutes: collecting requests in small windows is cheaper than single calls",
    )


def _nobody_waits(ask: RegimeAsk) -> tuple[Regime, str]:
    if ask.known:
        return Regime.BATCH, "no caller waits and the whole input is known: only the cost per item matters"
    if ask.freshness_s is None:
        return Regime.BATCH, "no caller waits and no maximum age is set: collect the input and run it as a job"
    if ask.freshness_s >= MICRO_BELOW_S:
        return Regime.BATCH, "no caller waits and answers may be an hour old: collect the input and run it as a job"
    if ask.freshness_s < INTERACTIVE_BELOW_S:
        return Regime.INTERACTIVE, "no caller waits, but answers must be less than a second old"
    return (
        Regime.MICRO_BATCH,
        f"the input keeps arriving, and a row must have its answer within {ask.freshness_s:g} s",
    )
