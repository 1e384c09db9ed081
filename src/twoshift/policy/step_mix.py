"""What reading prompts has cost of late, whichever steps have read them.

Prompts come in groups, their launches overlap with the device's work, and the interpreter reads requests between two
steps: what one step took says little, what all of them took together says it all.
"""

from __future__ import annotations

import math

__all__ = ["StepMix"]

_STEPS = 256  # over which it is averaged
_FEW_PROMPTS = 16.0  # say nothing yet


class StepMix:
    """Sums over the latest steps, the older the less."""

    def __init__(self) -> None:
        self._steps = self._prompts = self._read_tokens = self._seconds = self._decoding_s = 0.0

    def add(self, seconds: float, decoding_s: float, prompts: int, read_tokens: int) -> None:
        """A step that read so many tokens of so many prompts; it would have taken `decoding_s` without them."""
        keep = 1 - 1 / _STEPS
        self._steps = keep * self._steps + 1
        self._prompts = keep * self._prompts + prompts
        self._read_tokens = keep * self._read_tokens + read_tokens
        self._seconds = keep * self._seconds + seconds
        self._decoding_s = keep * self._decoding_s + decoding_s

    def reading(self, token_s: float) -> tuple[float, float] | None:
        """Seconds of a step that reads beyond decoding, and of each token read, where that is `token_s` at the most.

        By as many steps that read as there would be if prompts fell on steps by chance, as plans have them. None: too
        few prompts were seen.
        """
        if self._prompts < _FEW_PROMPTS:
            return None
        over_s = max(0.0, self._seconds - self._decoding_s)
        token_s = min(token_s, over_s / max(1.0, self._read_tokens))
        steps = -self._steps * math.expm1(-self._prompts / self._steps)
        return (over_s - token_s * self._read_tokens) / steps, token_s
