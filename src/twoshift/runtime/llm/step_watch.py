"""What vLLM's scheduler puts into each step, and how long the step takes; nothing is changed, only seen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EndedStep", "StepWatch"]


@dataclass(frozen=True, slots=True)
class EndedStep:
    """A step whose tokens are there; an empty one where none has ended."""

    tokens: dict[int, int] = field(default_factory=dict[int, int])  # read or generated, by key
    seconds: float | None = None  # None: nothing was run
    quiet: list[Any] = field(default_factory=list[Any])  # what it brought for quiet sequences, as vLLM's core tells it


@dataclass(frozen=True, slots=True)
class _Begun:
    tokens: dict[int, int]
    began_s: float


class StepWatch:
    """Sees a scheduler decide and take what came of it; several steps may be on their way, and end in order."""

    def __init__(self, scheduler: Any, keys: Mapping[str, int], clock: Callable[[], float] = time.perf_counter) -> None:
        """`keys` are the engine's, by the scheduler's own ids."""
        self._keys, self._clock = keys, clock
        self.quiet: set[str] = set()  # own ids of sequences that vLLM's output processor does not know
        self._begun: deque[_Begun] = deque()
        self._ended, self._ended_s = EndedStep(), 0.0
        self._preempted, self._new = 0, list[_Begun]()
        self._decide, self._update = scheduler.schedule, scheduler.update_from_output
        scheduler.schedule, scheduler.update_from_output = self._schedule, self._update_from_output

    @property
    def in_flight(self) -> int:
        """Steps that have begun and not ended."""
        return len(self._begun)

    def taken(self) -> tuple[EndedStep, int]:
        """The step that has ended since this was last asked, and how many sequences were put back meanwhile."""
        ended, preempted = self._ended, self._preempted
        self._ended, self._preempted = EndedStep(), 0
        return ended, preempted

    def begun(self) -> dict[int, int]:
        """Tokens that steps have begun with since this was last asked, of those that are still on their way."""
        new, self._new = self._new, []
        tokens = dict[int, int]()
        for step in new:
            if any(step is each for each in self._begun):
                for key, count in step.tokens.items():
                    tokens[key] = tokens.get(key, 0) + count
        return tokens

    def _schedule(self, *args: Any, **options: Any) -> Any:
        began_s = self._clock()
        decided = self._decide(*args, **options)
        keys = self._keys
        tokens = {keys[own]: count for own, count in decided.num_scheduled_tokens.items() if own in keys}
        self._begun.append(_Begun(tokens, began_s))
        self._new.append(self._begun[-1])
        self._preempted += len(decided.preempted_req_ids or ())
        return decided

    def _update_from_output(self, *args: Any, **options: Any) -> Any:
        """A step takes from when the one before it has ended, where it had begun by then."""
        outputs = self._update(*args, **options)
        quiet, told = list[Any](), outputs.get(0)
        if told is not None and self.quiet:
            quiet = [each for each in told.outputs if each.request_id in self.quiet]
            told.outputs = [each for each in told.outputs if each.request_id not in self.quiet]
        begun, now_s = self._begun.popleft(), self._clock()
        seconds = now_s - max(begun.began_s, self._ended_s)
        self._ended_s = now_s
        self._ended = EndedStep(begun.tokens, seconds if begun.tokens else None, quiet)
        return outputs
