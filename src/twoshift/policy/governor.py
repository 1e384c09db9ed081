"""How many background sequences an LLM engine may hold now, and how much of their prompts a step may read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from twoshift.errors import InvalidInput
from twoshift.types import CallSize

__all__ = [
    "BackgroundSequence",
    "GovernorDecision",
    "GovernorPolicy",
    "GovernorSettings",
    "LiveLoad",
    "StepCost",
]


class StepCost(Protocol):
    """What one engine step costs: rows are sequences, tokens are those processed in the step."""

    def seconds(self, size: CallSize, quantile: float = ...) -> float: ...


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
    prefill_tokens: int = 512  # background prompt tokens a step, beside live streams
    idle_prefill_tokens: int = 8192  # the same with no live load
    idle_step_s: float | None = None  # None: nobody waits, so a step may take what it takes
    idle_after_s: float = 1.0  # live load this recent still counts: the next request is likely near
    settle_s: float = 1.0  # no admission so soon after an abort
    admit_share: float = 0.9  # of the bounds, beside live load: below them, so that a ripple aborts nothing
    admit_prefill_tokens: int = 16  # room in the step for the newcomer's prompt
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
        _check("quantile", self.quantile, 0 < self.quantile < 1, "a share between 0 and 1")

    @property
    def kv_mark_tokens(self) -> int:
        return math.floor(self.kv_mark * self.kv_capacity_tokens)


@dataclass(frozen=True, slots=True)
class GovernorDecision:
    """What to do with the background before the next step; admits and aborts are never both there."""

    admit: tuple[int, ...]  # keys, in order
    abort: tuple[int, ...]  # keys, to be requeued as `BackgroundSequence.requeued`
    prefill_tokens: int  # background prompt tokens that the step may read
    too_large: tuple[int, ...]  # keys that can never be admitted: refuse them
    reason: str


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What holds in this step."""

    step_s: float
    prefill_tokens: int
    admit_share: float


class GovernorPolicy:
    """Holds background sequences to what live streams leave of the step and of the KV cache."""

    def __init__(self, cost: StepCost, settings: GovernorSettings) -> None:
        self.cost = cost
        self.settings = settings
        self._live_s = -math.inf  # when live load was last seen
        self._aborted_s = -math.inf
        self._first: tuple[int, float] | None = None  # the first one waiting that did not fit, and since when

    def decide(
        self,
        live: LiveLoad,
        running: Sequence[BackgroundSequence],
        waiting: Sequence[BackgroundSequence],
        now_s: float,
    ) -> GovernorDecision:
        """What to admit or abort now, and the prefill ration of the next step."""
        if not live.is_idle:
            self._live_s = now_s
        bounds = self._bounds(now_s)
        aborted = self._to_abort(live, running, bounds)
        if aborted:
            self._aborted_s = now_s
            gone = {each.key for each in aborted}
            left = [each for each in running if each.key not in gone]
            return self._decision(live, left, bounds, aborted=aborted, reason="live load needs the room")
        ahead = tuple(islice(waiting, self.settings.lookahead))
        too_large = [each for each in ahead if not self._can_ever_fit(each)]
        if now_s - self._aborted_s < self.settings.settle_s:
            return self._decision(live, running, bounds, too_large=too_large, reason="settling after an abort")
        fitting = [each for each in ahead if self._can_ever_fit(each)]
        admitted, reason = self._to_admit(live, running, fitting, bounds, now_s)
        held = [*running, *admitted]
        return self._decision(live, held, bounds, admitted=admitted, too_large=too_large, reason=reason)

    def predicted_s(self, live: LiveLoad, sequences: int, prefilling: int, prefill_tokens: int) -> float:
        """The step with these background sequences, so many of them reading this much of their prompts."""
        live_rows, decoding = live.running + live.waiting, sequences - prefilling
        singles = live_rows + decoding
        size = CallSize(
            rows=live_rows + sequences,
            tokens=singles + live.prefill_tokens + prefill_tokens,
            longest=max(int(singles > 0), live.prefill_tokens, prefill_tokens),
            squares=singles + live.prefill_tokens**2 + prefill_tokens**2,
        )
        return self.cost.seconds(size, self.settings.quantile) if size.rows else 0.0

    def _bounds(self, now_s: float) -> _Bounds:
        settings = self.settings
        if now_s - self._live_s < settings.idle_after_s or now_s == self._live_s:
            return _Bounds(settings.tpot_s, settings.prefill_tokens, settings.admit_share)
        step_s = math.inf if settings.idle_step_s is None else settings.idle_step_s
        return _Bounds(step_s, settings.idle_prefill_tokens, 1.0)

    def _can_ever_fit(self, sequence: BackgroundSequence) -> bool:
        return sequence.kv_tokens <= self.settings.kv_mark_tokens

    def _room(self, live: LiveLoad, step_s: float, prefill_tokens: int) -> int:
        """The most background sequences whose step, with this much prefill on top, keeps the bound."""
        most = max(0, self.settings.max_sequences - live.running - live.waiting)

        def keeps(count: int) -> bool:
            prefilling = min(1, prefill_tokens)
            return self.predicted_s(live, count, prefilling, prefilling * max(1, prefill_tokens)) <= step_s

        return _largest(most, keeps)

    def _to_abort(
        self, live: LiveLoad, running: Sequence[BackgroundSequence], bounds: _Bounds
    ) -> list[BackgroundSequence]:
        """The sequences that must go, those with least to lose first, and none needlessly."""
        crowd = _crowd(running, bounds.prefill_tokens)
        running = [each for each in running if each not in crowd]
        if not running:
            return crowd
        room = self._room(live, bounds.step_s, 0)
        free = self.settings.kv_mark_tokens - live.kv_tokens - live.waiting_kv_tokens
        free -= sum(each.kv_tokens for each in running)
        excess = len(running) - room
        gone: list[BackgroundSequence] = []
        for each in sorted(running, key=lambda s: (s.lost_tokens, s.key)):
            if free >= 0 and excess <= 0:
                break
            gone.append(each)
            free += each.kv_tokens
            excess -= 1
        for each in reversed(gone.copy()):
            # small ones went before a large one that frees enough by itself: they may stay after all
            if excess < 0 and free >= each.kv_tokens:
                gone.remove(each)
                free -= each.kv_tokens
                excess += 1
        return crowd + gone

    def _to_admit(
        self,
        live: LiveLoad,
        running: Sequence[BackgroundSequence],
        waiting: Sequence[BackgroundSequence],
        bounds: _Bounds,
        now_s: float,
    ) -> tuple[list[BackgroundSequence], str]:
        """What may join, in order; a first one that has been passed for long is passed no more."""
        if not waiting:
            self._first = None
            return [], "nothing waits"
        share = bounds.admit_share
        room = self._room(live, bounds.step_s * share, self.settings.admit_prefill_tokens) - len(running)
        whole = math.floor(self.settings.kv_mark_tokens * share) - live.kv_tokens - live.waiting_kv_tokens
        free = whole - sum(each.kv_tokens for each in running)
        unread = sum(each.prefill_left_tokens for each in running)
        if room <= 0:
            return [], "the step has no room for another sequence"
        # waiting for a first one that would not fit an empty engine either would wait in vain
        may_pass = waiting[0].kv_tokens > whole or self._may_pass(waiting[0], free, now_s)
        admitted: list[BackgroundSequence] = []
        for each in waiting if may_pass else waiting[:1]:
            if len(admitted) >= room or unread >= bounds.prefill_tokens:
                break  # unread prompts queue better outside the engine, where they can still be reordered
            if each.kv_tokens <= free:
                admitted.append(each)
                free -= each.kv_tokens
                unread += each.prefill_left_tokens
        if not admitted:
            return [], "the KV cache or the prefill ration is spent"
        return admitted, f"room for {len(admitted)} of {len(waiting)} seen waiting"

    def _may_pass(self, first: BackgroundSequence, free_tokens: int, now_s: float) -> bool:
        if first.kv_tokens <= free_tokens:
            self._first = None
            return True
        if self._first is None or self._first[0] != first.key:
            self._first = (first.key, now_s)
        return now_s - self._first[1] < self.settings.overtake_s

    def _decision(
        self,
        live: LiveLoad,
        held: Sequence[BackgroundSequence],
        bounds: _Bounds,
        *,
        admitted: Sequence[BackgroundSequence] = (),
        aborted: Sequence[BackgroundSequence] = (),
        too_large: Sequence[BackgroundSequence] = (),
        reason: str,
    ) -> GovernorDecision:
        prefilling = sum(each.prefill_left_tokens > 0 for each in held)
        most = min(bounds.prefill_tokens, sum(each.prefill_left_tokens for each in held))
        ration = _largest(most, lambda n: self.predicted_s(live, len(held), prefilling, n) <= bounds.step_s)
        return GovernorDecision(_keys(admitted), _keys(aborted), ration, _keys(too_large), reason)


def _crowd(running: Sequence[BackgroundSequence], prefill_tokens: int) -> list[BackgroundSequence]:
    """Prompts let in while nobody was there, of which a step would read more than the ration: the longest go.

    One may be longer than the ration: a runtime reads it piece by piece, and several at once.
    """
    reading = sorted((each for each in running if each.prefill_left_tokens), key=lambda s: s.prefill_left_tokens)
    left = sum(each.prefill_left_tokens for each in reading)
    gone: list[BackgroundSequence] = []
    while reading and left - reading[-1].prefill_left_tokens >= prefill_tokens:
        gone.append(reading.pop())
        left -= gone[-1].prefill_left_tokens
    return gone


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `most` that holds, where every smaller one does; 0 is taken to hold."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _keys(sequences: Sequence[BackgroundSequence]) -> tuple[int, ...]:
    return tuple(each.key for each in sequences)


def _check(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
