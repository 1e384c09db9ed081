"""What the governor of an LLM engine is told, and what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from twoshift.errors import InvalidInput

__all__ = ["BackgroundSequence", "GovernorDecision", "GovernorSettings", "LiveLoad"]


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """The live sequences of one engine as they are now."""

    running: int = 0
    kv_tokens: int = 0  # reserved by the running ones
    waiting: int = 0
    waiting_kv_tokens: int = 0  # what the waiting ones will reserve
    prefill_tokens: int = 0  # of live prompts, pending in this step

    def __post_init__(self) -> None:
        for name in ("running", "kv_tokens", "waiting", "waiting_kv_tokens", "prefill_tokens"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")

    def decoding(self) -> LiveLoad:
        """The same once all prompts are read: as most steps are."""
        return replace(self, prefill_tokens=0)

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.waiting or self.prefill_tokens)


@dataclass(frozen=True, slots=True)
class BackgroundSequence:
    """One background prompt, waiting for the engine or running in it."""

    key: int
    prompt_tokens: int
    max_tokens: int
    prefilled_tokens: int = 0
    generated_tokens: int = 0

    @property
    def kv_tokens(self) -> int:
        """What it reserves: it may grow to this without asking again."""
        return self.prompt_tokens + self.max_tokens

    @property
    def prefill_left_tokens(self) -> int:
        return max(0, self.prompt_tokens - self.prefilled_tokens)

    @property
    def lost_tokens(self) -> int:
        """What the engine would have to read again after an abort."""
        return self.prefilled_tokens + self.generated_tokens

    def requeued(self) -> BackgroundSequence:
        """The same sequence after an abort: what it has generated is now part of its prompt."""
        prompt_tokens = self.prompt_tokens + self.generated_tokens
        return BackgroundSequence(self.key, prompt_tokens, self.max_tokens - self.generated_tokens)


@dataclass(frozen=True, slots=True)
class GovernorSettings:
    """The bounds of one engine."""

    tpot_s: float
    kv_capacity_tokens: int
    kv_mark: float = 0.8
    max_sequences: int = 256
    prefill_tokens: int = 512  # background prompt tokens a step, beside live streams, where its time allows them
    idle_prefill_tokens: int = 8192  # the same with no live load
    idle_step_s: float | None = None  # None: nobody waits, so a step may take what it takes
    live_slowdown: float = math.inf  # a step beside live streams over one of theirs alone, at the most
    idle_after_s: float = 1.0  # live load this recent still counts: the next request is likely near
    settle_s: float = 1.0  # no admission so soon after an abort
    admit_share: float = 0.9  # of the bounds, beside live load: below them, so that a ripple aborts nothing
    admit_prefill_tokens: int = 16  # room in the step for each prompt that is read
    overtake_s: float = 10.0  # how long smaller sequences may pass a first one that does not fit
    lookahead: int = 64
    quantile: float = 0.9

    def __post_init__(self) -> None:
        for name in ("tpot_s", "kv_capacity_tokens", "max_sequences", "prefill_tokens", "lookahead"):
            _check(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("kv_mark", "admit_share"):
            _check(name, getattr(self, name), 0 < getattr(self, name) <= 1, "a share above 0 and up to 1")
        for name in ("idle_after_s", "settle_s", "overtake_s", "admit_prefill_tokens"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        least = self.prefill_tokens
        _check("idle_prefill_tokens", self.idle_prefill_tokens, self.idle_prefill_tokens >= least, f"at least {least}")
        bound = self.idle_step_s
        _check("idle_step_s", bound, bound is None or bound >= self.tpot_s, f"at least {self.tpot_s:g} s, or none")
        _check("live_slowdown", self.live_slowdown, self.live_slowdown >= 1, "at least 1")
        _check("quantile", self.quantile, 0 < self.quantile < 1, "a share between 0 and 1")

    @property
    def kv_mark_tokens(self) -> int:
        return math.floor(self.kv_mark * self.kv_capacity_tokens)


@dataclass(frozen=True, slots=True)
class GovernorDecision:
    """What to do with the background before the next step; admits and aborts are never both there."""

    admit: tuple[int, ...]  # keys, in order
    abort: tuple[int, ...]  # keys, to be requeued as `BackgroundSequence.requeued`
    prefill_tokens: int  # of each prompt that the step may read; live ones are never cut. 0: none is in the background
    too_large: tuple[int, ...]  # keys that can never be admitted: refuse them
    reason: str


def _check(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
