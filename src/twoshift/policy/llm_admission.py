"""Admit a live request of a language model or refuse it at once, by its first token and by the pace of all streams."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twoshift.policy.admission import Admit, Refuse
from twoshift.policy.plan.row import Curve
from twoshift.types import CallSize

__all__ = ["LiveSequence", "LlmAdmissionPolicy", "LlmBounds", "LlmLoad", "likely_left"]

_LEAST_WAIT_S = 0.1
_QUANTILE = 0.9  # as the governor predicts


@dataclass(frozen=True, slots=True)
class LlmBounds:
    """Capacity of the device, and the objectives of live sequences."""

    kv_tokens: int  # of the KV cache
    step_tokens: int  # that one step reads
    max_sequences: int  # in a step
    tpot_s: float
    max_waiting: int  # sequences without a first token


class LiveSequence(NamedTuple):
    """An admitted live sequence."""

    unread_tokens: int  # of its prompt
    left_tokens: int  # that it may still generate
    kv_tokens: int  # that it holds, or will once its prompt is read
    likely_tokens: int | None = None  # that it will generate, by the answers before it; None: all that it may

    @property
    def ends_after(self) -> int:
        """Expected number of steps until the sequence ends."""
        return self.left_tokens if self.likely_tokens is None else min(self.left_tokens, self.likely_tokens)


def likely_left(generated: int, usual_tokens: float | None) -> int | None:
    """Tokens that an answer lacks, where answers have `usual_tokens`; one that is longer may be so by as much again."""
    if usual_tokens is None:
        return None
    return math.ceil(usual_tokens - generated if generated < usual_tokens else usual_tokens)


@dataclass(frozen=True, slots=True)
class LlmLoad:
    """The waiting and running sequences now; background sequences give their slots up."""

    live: Sequence[LiveSequence] = ()
    waiting: int = 0  # of these, without a first token
    background: int = 0  # sequences
    kv_used_tokens: float = math.inf  # by all, as the device counts it: a shared prefix is there once
    step_s: float = 0.0  # of the step that runs


class LlmAdmissionPolicy:
    """Admits what has room soon enough, a place in the step and KV cache for its prompt, and keeps everybody's TPOT."""

    def __init__(self, bounds: LlmBounds) -> None:
        self.bounds = bounds

    def decide(self, cost: Curve, load: LlmLoad, prompt_tokens: int, sequences: int, within_s: float) -> Admit | Refuse:
        """All sequences of a request or none; `finish_s` is that of their first tokens, from now.

        Where nobody else is there it is admitted, however long: the curve may be wrong, and learns from it.
        """
        if load.waiting + sequences > self.bounds.max_waiting:
            soon_s, _ = self._first_token_s(cost, load, 0, 1)
            return Refuse(
                max(_LEAST_WAIT_S, soon_s), f"{load.waiting} sequences are already waiting for their first token"
            )
        most = self.live_streams(cost)
        is_pace_bound = most < self.bounds.max_sequences  # else it waits for a place, and slows nobody down
        if load.live and is_pace_bound and len(load.live) + sequences > most:
            return self._out_of_pace(cost, load, sequences, most)
        first_s, why = self._first_token_s(cost, load, prompt_tokens, sequences)
        if first_s <= within_s or not load.live:
            return Admit(first_s)
        reason = f"the first token would take {first_s:.3g} s, but {within_s:.3g} s are allowed{why}"
        return Refuse(max(_LEAST_WAIT_S, first_s - within_s), reason)

    def live_streams(self, cost: Curve) -> int:
        """The most sequences whose step meets TPOT; the maximum if even one sequence alone misses it."""
        least, most = 1, self.bounds.max_sequences
        if cost.seconds(CallSize.uniform(1), _QUANTILE) > self.bounds.tpot_s:
            return most
        while least < most:
            middle = (least + most + 1) // 2
            fits = cost.seconds(CallSize.uniform(middle), _QUANTILE) <= self.bounds.tpot_s
            least, most = (middle, most) if fits else (least, middle - 1)
        return least

    def first_token_s(self, cost: Curve, load: LlmLoad, prompt_tokens: int, sequences: int = 1) -> float:
        """Time until prompts that arrive now have their first tokens."""
        return self._first_token_s(cost, load, prompt_tokens, sequences)[0]

    def _out_of_pace(self, cost: Curve, load: LlmLoad, sequences: int, most: int) -> Refuse:
        """Refuse until enough other sequences have probably ended; all of them if the request alone is too many."""
        live = len(load.live)
        ends = sorted(each.ends_after for each in load.live)
        steps = ends[min(live, live + sequences - most) - 1]
        rows = min(self.bounds.max_sequences, live + load.background)
        wait_s = load.step_s + steps * cost.seconds(CallSize.uniform(rows)) + self._reads_s(cost, load, rows)
        told = f"at most {most} can run without missing their objective of {self.bounds.tpot_s:.3g} s per token"
        return Refuse(max(_LEAST_WAIT_S, wait_s), f"{live} sequences are running, and {told}")

    def _first_token_s(self, cost: Curve, load: LlmLoad, prompt_tokens: int, sequences: int) -> tuple[float, str]:
        rows = min(self.bounds.max_sequences, sequences + len(load.live) + load.background)
        steps, why = self._room_after(cost, load, prompt_tokens, sequences)
        decode_s = steps * cost.seconds(CallSize.uniform(rows))
        return load.step_s + decode_s + self._reads_s(cost, load, rows, prompt_tokens), why

    def _reads_s(self, cost: Curve, load: LlmLoad, rows: int, prompt_tokens: int = 0) -> float:
        """Time of the steps with this many rows that prefill these tokens and all other unread tokens."""
        unread = prompt_tokens + sum(each.unread_tokens for each in load.live)
        piece = min(unread, self.bounds.step_tokens)
        steps = math.ceil(unread / self.bounds.step_tokens)
        return steps * cost.seconds(CallSize(rows, rows + piece, piece, unread))

    def _room_after(self, cost: Curve, load: LlmLoad, prompt_tokens: int, sequences: int) -> tuple[int, str]:
        """Steps until enough other sequences have ended, at their maximum lengths; and the limiting resource."""
        most = self.live_streams(cost)
        why = ""
        for steps, others, held in _as_they_end(load):
            if others and others + sequences > most:
                why = why or f": {len(load.live)} sequences are running, and at most {most} can run"
            elif others and held + prompt_tokens > self.bounds.kv_tokens:
                why = why or ": the KV cache is full"
            else:
                return steps, why
        raise AssertionError("a request must fit into the KV cache once no other sequence is left")


def _as_they_end(load: LlmLoad) -> Iterator[tuple[int, int, float]]:
    """Steps from now, remaining sequences and their KV tokens: now, and after the end of each sequence."""
    held = sum(each.kv_tokens for each in load.live)
    unread = sum(each.unread_tokens for each in load.live)
    share = min(1.0, (load.kv_used_tokens + unread) / held) if held else 1.0
    left, others = held * share, len(load.live)
    yield 0, others, left
    for each in sorted(load.live, key=lambda each: each.left_tokens):
        others -= 1
        left -= each.kv_tokens * share
        yield each.left_tokens, others, left + others * each.left_tokens
