"""Limits background sequences in an LLM engine, and how much of their prompts a step may prefill."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from twoshift.policy.governor_values import BackgroundSequence, GovernorDecision, GovernorSettings, LiveLoad
from twoshift.policy.plan.row import Curve
from twoshift.types import CallSize

__all__ = ["GovernorPolicy"]

_AT_ONCE, _AT_ONCE_SHARE = 8, 1 / 16  # prompts that begin together, of those that run: fewer steps read any
_WORTH = 0.5  # of what it takes to read at all: what the tokens of prompts take that begin before others are there
_PLACES, _PLACES_SHARE = 2, 0.03  # of the sequences, left to live ones that come: nobody has to go for them
_GIVEN_BACK_STEPS = 16  # in which what one takes too long is given back
_SAVED_STEPS = 128  # whose part of a slowdown may be saved up to read prompts whole: TPOT is a mean over as many
_SAVED_SHARE = 0.8  # of that: steps that read prompts are longer for background sequences, too, and not counted
_LINGERS = 2.0  # times a slowdown's part of a step, up to which sequences that decode stay: to be read anew costs more
# Of a prompt: a runtime that has forgotten what it read of it would never come to its end
_MOST_PAUSES, _MOST_PAUSES_BOUNDED = 4, 64  # the latter where --live-slowdown says what live prompts may pay for it


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Limits of the current step."""

    step_s: float
    stay_s: float  # up to which sequences that decode already may stay
    fill_s: float  # up to which background work fills a step: what live prompts take now and then is left out
    admit_s: float  # up to which another sequence is let in
    prefill_tokens: int
    admit_share: float


@dataclass(frozen=True, slots=True)
class _Room:
    """Capacity that is left for waiting background sequences."""

    places: int
    all_tokens: int  # of the KV cache, with none of them in it
    free_tokens: int  # of that, beside those that run
    readable_tokens: int  # of their prompts, in a step; 1: it has no time to read


class GovernorPolicy:
    """Limits background sequences to the step time and the KV cache that live streams leave free."""

    def __init__(self, cost: Curve, settings: GovernorSettings, alone: Curve | None = None) -> None:
        """`alone` is the curve of steps without background sequences, where it is known apart."""
        self.cost, self._alone = cost, alone or cost
        self.settings = settings
        # A slowdown is of the usual step: where steps scatter, a late one beside a usual one would leave nothing
        self._quantile = settings.quantile if settings.live_slowdown == math.inf else 0.5
        self._live_s = -math.inf  # when live load was last seen
        self._lent_s = 0.0  # by which steps took longer than TPOT, and others have not given back yet
        self._saved_s = 0.0  # of what a slowdown leaves, by steps that took less; beside live streams
        self._aborted_s = -math.inf
        self._pauses: dict[int, int] = {}  # of prompts, by key: how often they have left for live ones
        self._first: tuple[int, float] | None = None  # the first one waiting that did not fit, and since when

    def decide(
        self,
        live: LiveLoad,
        running: Sequence[BackgroundSequence],
        waiting: Sequence[BackgroundSequence],
        now_s: float,
    ) -> GovernorDecision:
        """Sequences to admit or abort now, and the prefill limit of the next step."""
        if not live.is_idle:
            self._live_s = now_s
        bounds = self._bounds(live, now_s)
        aborted = self._to_abort(live, running, bounds)
        left = _without(running, aborted)
        paused = self._to_pause(live, left, bounds)
        self._count_pauses(paused, (*running, *waiting))
        if len(aborted) > max(0, live.running + live.waiting + len(running) - self.settings.max_sequences):
            self._aborted_s = now_s  # for more than places: some of those stay free anyway
        if aborted or paused:
            reason = "live requests need the capacity" if aborted else "live prompts are processed first"
            return self._decision(live, _without(left, paused), bounds, aborted=[*aborted, *paused], reason=reason)
        if live.waiting and self.settings.live_slowdown < math.inf:  # to let somebody in takes the interpreter's time
            return self._decision(live, running, bounds, reason="live prompts are processed first")
        ahead = tuple(islice(waiting, self.settings.lookahead))
        too_large = [each for each in ahead if not self._can_ever_fit(each)]
        if now_s - self._aborted_s < self.settings.settle_s:
            return self._decision(
                live,
                running,
                bounds,
                too_large=too_large,
                reason="waiting a moment after background sequences were aborted",
            )
        fitting = [each for each in ahead if self._can_ever_fit(each)]
        admitted, reason = self._to_admit(live, running, fitting, bounds, now_s)
        held = [*running, *admitted]
        if admitted and self._saves(bounds) and self._reads_whole(live, len(held), _unread(held), bounds):
            self._saved_s -= self._reading_s(live, len(held), _unread(held))
        return self._decision(live, held, bounds, admitted=admitted, too_large=too_large, reason=reason)

    def stepped(self, seconds: float, streams: int = 0) -> None:
        """A step with live sequences has ended: TPOT is a mean, so what it took beyond that others give back.

        `streams` is how many of them it decoded, if neither this step nor the next one reads a prompt.
        """
        settings = self.settings
        most_s = _GIVEN_BACK_STEPS * settings.tpot_s
        self._lent_s = min(most_s, max(0.0, self._lent_s + seconds - settings.tpot_s))
        if streams and settings.live_slowdown < math.inf:
            alone_s = self._alone.seconds(CallSize.uniform(streams), self._quantile)
            allowed_s = _SAVED_SHARE * (settings.live_slowdown - 1.0) * alone_s
            saved_s = self._saved_s + alone_s + allowed_s - seconds
            most_s = _most_saved_s(settings, alone_s)
            self._saved_s = min(most_s, max(-most_s, saved_s))

    def predicted_s(self, live: LiveLoad, sequences: int, prefilling: int, prefill_tokens: int) -> float:
        """Predicted time of a step with these background sequences, of which some prefill this many prompt tokens."""
        size = _step(live, sequences, prefilling, prefill_tokens)
        return self.cost.seconds(size, self._quantile) if size.rows else 0.0

    def _alone_s(self, live: LiveLoad) -> float:
        """Of live streams while no prompt is read; one at least: the next is likely near."""
        return self._alone.seconds(CallSize.uniform(max(1, live.running + live.waiting)), self._quantile)

    def _bounds(self, live: LiveLoad, now_s: float) -> _Bounds:
        settings = self.settings
        if now_s - self._live_s < settings.idle_after_s or now_s == self._live_s:
            alone_s = self._alone_s(live)
            step_s = min(settings.tpot_s, settings.live_slowdown * alone_s)
            stay_s = min(settings.tpot_s, alone_s + _LINGERS * (step_s - alone_s))
            within_s = settings.tpot_s - self._lent_s / _GIVEN_BACK_STEPS
            admit_s = alone_s + settings.admit_share * (min(within_s, step_s) - alone_s)
            fill_s = min(within_s, step_s + max(0.0, self._saved_s))
            return _Bounds(step_s, stay_s, fill_s, admit_s, settings.prefill_tokens, settings.admit_share)
        self._lent_s = self._saved_s = 0.0
        step_s = math.inf if settings.idle_step_s is None else settings.idle_step_s
        return _Bounds(step_s, step_s, step_s, step_s, settings.idle_prefill_tokens, 1.0)

    def _saves(self, bounds: _Bounds) -> bool:
        """Whether prompts are read by what steps beside live streams have saved of a slowdown."""
        return self.settings.live_slowdown < math.inf and bounds.admit_share < 1.0

    def _reads_whole(self, live: LiveLoad, count: int, unread: Sequence[int], bounds: _Bounds) -> bool:
        decoding_s = self.predicted_s(live, count, 0, 0)
        return decoding_s + self._reading_s(live, count, unread) <= bounds.fill_s

    def _reading_s(self, live: LiveLoad, count: int, unread: Sequence[int]) -> float:
        """By how much longer a step takes because it reads these prompts, as far as one step may."""
        most = self.settings.prefill_tokens
        tokens = min(most, sum(unread))
        return self.predicted_s(live, count, len(unread), tokens) - self.predicted_s(live, count, 0, 0)

    def _can_ever_fit(self, sequence: BackgroundSequence) -> bool:
        return sequence.kv_tokens <= self.settings.kv_mark_tokens

    def _fits(self, live: LiveLoad, count: int, unread: Sequence[int], most: int, step_s: float) -> bool:
        """Whether a step of so many keeps the bound that reads at most `most` tokens of each prompt."""
        if step_s == math.inf:
            return True
        return self.predicted_s(live, count, len(unread), sum(min(most, each) for each in unread)) <= step_s

    def _to_abort(
        self, live: LiveLoad, running: Sequence[BackgroundSequence], bounds: _Bounds
    ) -> list[BackgroundSequence]:
        """Sequences to abort, those with the least to lose first, and no more than needed.

        Live prompts make a step or two longer; sequences that only decode hardly add to such a step, and stay.
        """
        most = max(0, min(len(running), self.settings.max_sequences - live.running - live.waiting))
        room = _largest(most, lambda count: self._fits(live.decoding(), count, (), 0, bounds.stay_s))
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
        return gone

    def _to_pause(
        self, live: LiveLoad, running: Sequence[BackgroundSequence], bounds: _Bounds
    ) -> list[BackgroundSequence]:
        """Background prompts to remove from a step with live prompts that would be too long: the longest first.

        A runtime has one prefill limit for all prompts, and live prompts must not be chunked.
        """
        if not live.prefill_tokens:
            return []
        reading = [each for each in running if each.prefill_left_tokens]
        most = _MOST_PAUSES if self.settings.live_slowdown == math.inf else _MOST_PAUSES_BOUNDED
        staying = [each for each in reading if self._pauses.get(each.key, 0) >= most]
        reading = staying + sorted(_without(reading, staying), key=lambda s: s.prefill_left_tokens)
        unread, count = _unread(reading), len(running)
        while len(unread) > len(staying) and not self._fits(live, count, unread, live.prefill_tokens, bounds.step_s):
            unread.pop()
            count -= 1
        return reading[len(unread) :]

    def _count_pauses(self, paused: Sequence[BackgroundSequence], known: Iterable[BackgroundSequence]) -> None:
        if not paused and not self._pauses:
            return
        self._pauses = {each.key: self._pauses[each.key] for each in known if each.key in self._pauses}
        self._pauses.update((each.key, self._pauses.get(each.key, 0) + 1) for each in paused)

    def _to_admit(
        self,
        live: LiveLoad,
        running: Sequence[BackgroundSequence],
        waiting: Sequence[BackgroundSequence],
        bounds: _Bounds,
        now_s: float,
    ) -> tuple[list[BackgroundSequence], str]:
        """Sequences to admit, in order; a first sequence that was passed over for long is not passed over again."""
        if not waiting:
            self._first = None
            return [], "no background sequence is waiting"
        room = self._room(live, running, bounds)
        # waiting for a first one that would not fit an empty engine either would wait in vain
        may_pass = waiting[0].kv_tokens > room.all_tokens or self._may_pass(waiting[0], room.free_tokens, now_s)
        admitted, is_filled = self._joining(live, running, waiting if may_pass else waiting[:1], bounds, room)
        few = len(admitted) < min(_AT_ONCE, _AT_ONCE_SHARE * len(running), len(waiting))
        if few and not is_filled and room.readable_tokens > 1:
            held = [*running, *admitted]
            if not self._is_worth_reading(live, len(held), _unread(held)):
                return [], "waiting until several prompts can begin in one step"
        if not admitted:
            return [], self._why_none(live, running)
        return admitted, f"capacity for {len(admitted)} of {len(waiting)} waiting sequences"

    def _room(self, live: LiveLoad, running: Sequence[BackgroundSequence], bounds: _Bounds) -> _Room:
        share = bounds.admit_share
        whole = math.floor(self.settings.kv_mark_tokens * share) - live.kv_tokens - live.waiting_kv_tokens
        return _Room(
            places=self._places(share) - live.running - live.waiting - len(running),
            all_tokens=whole,
            free_tokens=whole - sum(each.kv_tokens for each in running),
            readable_tokens=self._readable(live, len(running), bounds),
        )

    def _joining(
        self,
        live: LiveLoad,
        running: Sequence[BackgroundSequence],
        waiting: Sequence[BackgroundSequence],
        bounds: _Bounds,
        room: _Room,
    ) -> tuple[list[BackgroundSequence], bool]:
        """Sequences that fit, in order, and whether their prompts fill the step, so that others must wait."""
        most = max(self.settings.admit_prefill_tokens, live.prefill_tokens)
        unread, free, readable = _unread(running), room.free_tokens, room.readable_tokens
        admitted: list[BackgroundSequence] = []
        for each in waiting:
            if len(admitted) >= room.places:
                break
            if 1 < readable < sum(unread) + each.prefill_left_tokens and unread:
                return admitted, True  # unread prompts queue better outside, and one read in two steps costs both more
            if each.kv_tokens > free:
                continue
            more, count = [*unread, *_unread([each])], len(running) + len(admitted) + 1
            if not self._fits(live.decoding(), count, (), 0, bounds.admit_s):
                break
            if not self._fits(live, count, more, most, bounds.fill_s) or self._must_save(live, count, more, bounds):
                return admitted, True
            admitted.append(each)
            free -= each.kv_tokens
            unread = more
        return admitted, False

    def _must_save(self, live: LiveLoad, count: int, unread: Sequence[int], bounds: _Bounds) -> bool:
        """Whether prompts wait until steps have saved what it takes to read them whole.

        As little as a token a step costs no less in all. Where all that may be saved is too little, they come in so.
        """
        if not self._saves(bounds) or self._saved_s >= _most_saved_s(self.settings, self._alone_s(live)):
            return False
        return not self._reads_whole(live, count, unread, bounds)

    def _places(self, share: float) -> int:
        """Number of sequences that the engine may hold; some slots stay free for live sequences."""
        most = self.settings.max_sequences
        return most if share == 1 else most - max(_PLACES, round(_PLACES_SHARE * most))

    def _why_none(self, live: LiveLoad, running: Sequence[BackgroundSequence]) -> str:
        if running or live.is_idle or self.settings.live_slowdown == math.inf:
            return "the step, the KV cache or the prefill budget has no capacity for another sequence"
        streams = live.running + live.waiting
        slowdown = f"the live slowdown limit of {self.settings.live_slowdown:g}"
        return f"{slowdown} leaves no capacity for background sequences beside {streams} live streams"

    def _is_worth_reading(self, live: LiveLoad, count: int, unread: Sequence[int]) -> bool:
        """Whether the tokens of these prompts take about as long as it takes to read at all, however little."""
        reading = len(unread)
        decoding_s, least_s = self.predicted_s(live, count, 0, 0), self.predicted_s(live, count, reading, 2 * reading)
        return self.predicted_s(live, count, reading, sum(unread)) - least_s >= _WORTH * (least_s - decoding_s)

    def _readable(self, live: LiveLoad, count: int, bounds: _Bounds) -> int:
        """Background prompt tokens that a step has time for beside so many sequences.

        1: it has no time to read, and prompts come in token by token, as if they were decoded.
        """
        whole = [bounds.prefill_tokens]
        return max(1, _largest(whole[0], lambda n: self._fits(live, count + 1, whole, n, bounds.fill_s)))

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
        most = self._most_of_each(live, held, bounds)
        return GovernorDecision(_keys(admitted), _keys(aborted), most, _keys(too_large), reason)

    def _most_of_each(self, live: LiveLoad, held: Sequence[BackgroundSequence], bounds: _Bounds) -> int:
        """Tokens that the step may read of each prompt: together they keep the bounds, and live ones are read whole."""
        unread = _unread(held)
        if not unread or bounds.fill_s == math.inf:
            return max(unread, default=0)

        def keeps(most: int) -> bool:
            together = sum(min(most, each) for each in unread)
            return together <= bounds.prefill_tokens and self._fits(live, len(held), unread, most, bounds.fill_s)

        return max(1, live.prefill_tokens, _largest(max(unread), keeps))


def _most_saved_s(settings: GovernorSettings, alone_s: float) -> float:
    return _SAVED_STEPS * (settings.live_slowdown - 1.0) * alone_s


def _step(live: LiveLoad, sequences: int, prefilling: int, prefill_tokens: int) -> CallSize:
    live_rows, decoding = live.running + live.waiting, sequences - prefilling
    singles = live_rows + decoding
    most = 1 if prefill_tokens <= prefilling else prefill_tokens  # a token of each: as if they were decoded
    return CallSize(
        rows=live_rows + sequences,
        tokens=singles + live.prefill_tokens + prefill_tokens,
        longest=max(int(singles > 0), live.prefill_tokens, most if prefilling else 0),
        squares=singles + live.prefill_tokens**2 + prefill_tokens**2,
    )


def _unread(sequences: Sequence[BackgroundSequence]) -> list[int]:
    return [each.prefill_left_tokens for each in sequences if each.prefill_left_tokens]


def _without(sequences: Sequence[BackgroundSequence], gone: Sequence[BackgroundSequence]) -> list[BackgroundSequence]:
    keys = {each.key for each in gone}
    return [each for each in sequences if each.key not in keys]


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `most` that meets the condition, if all smaller counts do; at least 0."""
    if holds(most):  # as it mostly does
        return most
    low, high = 0, max(0, most - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _keys(sequences: Sequence[BackgroundSequence]) -> tuple[int, ...]:
    return tuple(each.key for each in sequences)
