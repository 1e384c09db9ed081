"""What is promised to whoever waits for a language model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.llm_ports import LlmShape
from twoshift.policy.governor_values import GovernorSettings
from twoshift.policy.llm_admission import LlmBounds

__all__ = ["LlmObjective"]

_ADMIT_TOKENS = 16  # of a prompt, that a step has to have time for; read by single tokens it costs hardly anything
_RATION = 1024  # tokens of background prompts in a step beside live streams, where its time allows them
_IDLE_STEP_SHARE = 0.5  # of the time to the first token: who comes at the worst moment waits for one step


@dataclass(frozen=True, slots=True)
class LlmObjective:
    """Of live streams; background sequences get what it leaves."""

    ttft_s: float = 2.0  # to the first token
    tpot_s: float = 0.1  # for each token after it: no step may take longer while a live stream is there
    kv_mark: float = 0.8  # share of the KV cache up to which background sequences are let in
    max_waiting: int = 256  # live requests without a first token, above which one is refused
    live_slowdown: float | None = None  # a step beside live streams over one of theirs alone, at the most

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise InvalidInput(name, value, "a number of seconds above 0")
        if self.live_slowdown is not None and not 1 <= self.live_slowdown < math.inf:
            raise InvalidInput("live_slowdown", self.live_slowdown, "a finite number of at least 1")
        if self.max_waiting < 1:
            raise InvalidInput("max_waiting", self.max_waiting, "at least 1")

    def governed(self, shape: LlmShape, serves: bool) -> GovernorSettings:
        """The bounds of background sequences; where nobody is served, only the KV cache bounds them."""
        ration = max(1, min(_RATION, shape.step_tokens))
        idle_step_s = max(self.tpot_s, _IDLE_STEP_SHARE * self.ttft_s) if serves else None
        return GovernorSettings(
            tpot_s=self.tpot_s,
            kv_capacity_tokens=shape.kv_tokens,
            kv_mark=self.kv_mark if serves else 1.0,
            max_sequences=shape.max_sequences,
            prefill_tokens=ration,
            idle_prefill_tokens=max(ration, 4 * shape.step_tokens),
            idle_step_s=idle_step_s,
            live_slowdown=math.inf if self.live_slowdown is None else self.live_slowdown,
            admit_prefill_tokens=_ADMIT_TOKENS if self.live_slowdown is None else 1,
        )

    def bounds(self, shape: LlmShape) -> LlmBounds:
        """Within which live sequences are admitted."""
        return LlmBounds(shape.kv_tokens, shape.step_tokens, shape.max_sequences, self.tpot_s, self.max_waiting)
