"""What an LLM engine tells about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from twoshift.generation import FinishReason, TokenUsage
from twoshift.types import Lane

__all__ = ["FinishedSequence", "LlmLane", "LlmStats"]


@dataclass(frozen=True, slots=True)
class FinishedSequence:
    """A sequence that has its whole answer."""

    lane: Lane
    finish: FinishReason
    usage: TokenUsage
    ended_s: float  # on the engine's clock
    ttft_s: float  # from submission to the first token
    seconds: float  # from submission to the last
    streamed: bool = False  # told token by token

    @property
    def tpot_s(self) -> float | None:
        """A token after the first, on average; None where there is only one."""
        more = self.usage.completion_tokens - 1
        return (self.seconds - self.ttft_s) / more if more > 0 else None


@dataclass(slots=True)
class LlmLane:
    """The sequences of one lane; the first two as they are now, the rest since the start."""

    waiting: int = 0  # live: without a first token; background: not let in
    running: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0  # of those that have their first token
    cached_tokens: int = 0  # of these
    output_tokens: int = 0
    device_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LlmStats:
    """How the engine stands, and what it has done."""

    lanes: dict[Lane, LlmLane] = field(default_factory=dict[Lane, LlmLane])
    steps: int = 0
    busy_s: float = 0.0
    kv_use: float = 0.0  # share of the KV cache, after the last step
    live_kv_use: float = 0.0  # of that, by live sequences: background ones give theirs back
    kv_tokens: int = 0  # that it holds in all
    preemptions: int = 0  # sequences that the runtime put back for want of KV cache
    requeued: int = 0  # background sequences that the governor took out for live ones
    reread_tokens: int = 0  # what those will have to read again, where the cache has lost it
    step_s: float = 0.0  # the last step
    why: str = ""  # the governor's last reason
