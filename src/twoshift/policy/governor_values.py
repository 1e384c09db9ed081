"""Input and output values of the governor of an LLM engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from twoshift.errors import InvalidInput

__all__ = ["BackgroundSequence", "GovernorDecision", "GovernorSettings", "LiveLoad"]


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """The live sequences of one engine now."""

    running: int = 0
    kv_tokens: int = 0  # reserved by running sequences
    waiting: int = 0
    waiting_kv_tokens: int = 0  # that waiting sequences will reserve
    prefill_tokens: int = 0  # prompt tokens of live sequences that this step prefills

    def __post_init__(self) -> None:
        for name in ("running", "kv_tokens", "waiting", "waiting_kv_tokens", "prefill_tokens"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")

    def decoding(self) -> LiveLoad:
        """The load after all prompts are prefilled, as in most steps."""
        return replace(self, prefill_tokens=0)

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.waiting or self.prefill_tokens)


@dataclass(frozen=True, slots=True)
class BackgroundSequence:
    """One background sequence, waiting or running."""

    key: int
    prompt_tokens: int
    max_tokens: int
    prefilled_tokens: int = 0
    generated_tokens: int = 0

    @property
    def kv_tokens(self) -> int:
        """KV tokens that the sequence reserves: its maximum length."""
        return self.prompt_tokens + self.max_tokens

    @property
    def prefill_left_tokens(self) -> int:
        return max(0, self.prompt_tokens - self.prefilled_tokens)

    @property
    def lost_tokens(self) -> int:
        """Tokens that the engine has to prefill again after an abort."""
        return self.prefilled_tokens + self.generated_tokens

    def requeued(self) -> BackgroundSequence:
        """The sequence after an abort: its generated tokens are now part of its prompt."""
        prompt_tokens = self.prompt_tokens + self.generated_tokens
        return BackgroundSequence(self.key, prompt_tokens, self.max_tokens - self.generated_tokens)


@dataclass(frozen=True, slots=True)
class GovernorSettings:
    """Limits of one engine."""

    tpot_s: float
    kv_capacity_tokens: int
    kv_mark: float = 0.8
    max_sequences: int = 256
    prefill_tokens: int = 512  # most background prompt tokens per step beside live streams
    idle_prefill_tokens: int = 8192  # most background prompt tokens per step without live load
    idle_step_s: float | None = None  # longest step without live load; None: no limit
    live_slowdown: float = math.inf  # limit for the time of a step relative to one without background
    idle_after_s: float = 1.0  # live load counts for this long after its end
    settle_s: float = 1.0  # no admission for this long after an abort
    admit_share: float = 0.9  # share of the limits that admission uses beside live load
    admit_prefill_tokens: int = 16  # tokens of a step that are reserved for each prompt in prefill
    overtake_s: float = 10.0  # how long smaller sequences may overtake one that does not fit
    lookahead: int = 64
    quantile: float = 0.5  # of a step's time: TPOT is a mean over many of them

    def __post_init__(self) -> None:
        for name in ("tpot_s", "kv_capacity_tokens", "max_sequences", "prefill_tokens", "lookahead"):
            _check(name, getattr(self, name), getattr(self, name) > 0, "a number above 0")
        for name in ("kv_mark", "admit_share"):
            _check(name, getattr(self, name), 0 < getattr(self, name) <= 1, "a share above 0 and up to 1")
        for name in ("idle_after_s", "settle_s", "overtake_s", "admit_prefill_tokens"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        least = self.prefill_tokens
        told = f"at least prefill_tokens, which is {least}"
        _check("idle_prefill_tokens", self.idle_prefill_tokens, self.idle_prefill_tokens >= least, told)
        bound = self.idle_step_s
        told = f"at least tpot_s, which is {self.tpot_s:g} s, or None"
        _check("idle_step_s", bound, bound is None or bound >= self.tpot_s, told)
        _check("live_slowdown", self.live_slowdown, self.live_slowdown >= 1, "at least 1")
        _check("quantile", self.quantile, 0 < self.quantile < 1, "a share between 0 and 1")

    @property
    def kv_mark_tokens(self) -> int:
        return math.floor(self.kv_mark * self.kv_capacity_tokens)


@dataclass(frozen=True, slots=True)
class GovernorDecision:
    """What to do with background sequences before the next step; never admits and aborts at the same time."""

    admit: tuple[int, ...]  # keys, in order
    abort: tuple[int, ...]  # keys, to be requeued as `BackgroundSequence.requeued`
    prefill_tokens: int  # most tokens per background prompt in this step; 0: no background prompt
    too_large: tuple[int, ...]  # keys that can never be admitted: refuse them
    reason: str


def _check(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
