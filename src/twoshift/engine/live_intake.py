"""The live side of an engine: rows admitted together where one look at the plan is enough, or one by one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, assert_never

from twoshift.engine.waiting import LiveRow, LiveRows, Waiting, lengths_of
from twoshift.errors import InvalidInput, Late, TooLarge, TryLater, TwoshiftError
from twoshift.policy.admission import AdmissionPolicy, Admit, Never, Refuse, Try
from twoshift.policy.lanes import LanePolicy
from twoshift.types import CallSize, Item

__all__ = ["LiveIntake"]


class LiveIntake:
    """Takes live rows of one engine, whose lock guards it, or says when they could be answered. Any thread may ask."""

    def __init__(
        self,
        policy: LanePolicy,
        admission: AdmissionPolicy,
        waiting: Waiting,
        lock: AbstractContextManager[object],
        changed: threading.Condition,
        clock: Callable[[], float],
        check_open: Callable[[], None],
    ) -> None:
        """`changed` is the lock's own, which costs more to enter."""
        self._policy, self._admission, self._waiting = policy, admission, waiting
        self._lock, self._changed, self._clock, self._check_open = lock, changed, clock, check_open
        self.most_rows = admission.max_waiting  # of the largest request that can ever be admitted
        self.resting = 0  # threads of the engine that look at what was submitted only when they are woken
        self.gather_until_s = -math.inf  # no call begins before that or `wake`: more rows are on their way

    def submit(self, asked: LiveRows) -> list[int]:
        """As `submit_together`, for one request; raises why it is not taken."""
        with self._lock:
            self._check_open()
            return self._queue(self._sized((asked,))[0], self._clock())

    def submit_together(self, asked: Sequence[LiveRows]) -> list[list[int] | Exception]:
        """Requests that come together: the keys of each, which `forget` takes, or why it is not taken.

        The device may rest until `wake` is called: a caller may have more rows to submit at this moment.
        """
        with self._lock:
            self._check_open()
            now_s, sized = self._clock(), self._sized(asked)
            if len(sized) > 1 and self._admits_together(sized, now_s):
                return [*self._queue_all(sized, now_s)]
            found, refused = list[list[int] | Exception](), None
            for each in sized:
                if refused is not None and _asks_more(each, refused[0]):
                    found.append(refused[1])
                    continue
                try:
                    found.append(self._queue(each, now_s))
                except TwoshiftError as error:
                    found.append(error)
                    refused = (each, error) if type(error) is TryLater and len(each.lengths) == 1 else refused
            return found

    def wake(self) -> None:
        """Let the device look at what was submitted."""
        with self._lock:
            self.gather_until_s = -math.inf
            self._changed.notify_all()

    def forget(self, keys: Sequence[int]) -> int:
        """Rows that nobody wants any more: what is not on the device yet never will be; how many those are."""
        with self._lock:
            return sum([self._waiting.forget_row(key) for key in keys])

    def finish_in_s(self, size: CallSize, left_s: float) -> float:
        """Until rows of that size would be answered: about; 0: surely long before `left_s`.

        Behind all that are due before them; behind all that wait if `left_s` is 0.
        """
        if self._policy.seems_idle(size, left_s):  # without the lock: most requests of most days
            return 0.0
        with self._lock:
            if not self._policy.has_live:
                return 0.0
            now_s = self._clock()
            return self._policy.finish_about_s(size, now_s, left_s or math.inf) - now_s

    def check_room(self, lengths: Sequence[int], deadline_s: float, since_s: float) -> None:
        """Raises TryLater, TooLarge where rows of at least these lengths would be refused: before they are prepared."""
        with self._lock:
            signature = self._policy.live.last_signature  # at the best they join the last call
            self._admit([Item(-1, deadline_s, n, signature) for n in lengths], self._clock(), since_s)

    def _admit(self, items: list[Item], now_s: float, since_s: float | None, spare_s: float = 0.0) -> float | None:
        """The deadline that its rows are queued with, where that is not their own; raises TryLater, TooLarge."""
        answer = self._admission.decide(items, now_s, since_s, spare_s)
        match answer:
            case Admit():
                return None
            case Try(until_s):
                return until_s
            case Refuse(retry_after_s, reason):
                raise TryLater(reason, retry_after_s)
            case Never():
                raise _too_large(answer)
            case _:
                assert_never(answer)

    def _sized(self, asked: Sequence[LiveRows]) -> list[_Sized]:
        found, rows, lengths, signature = list[_Sized](), None, list[int](), 0
        for each in asked:
            if each.rows is not rows:
                rows = each.rows
                lengths, signature = lengths_of(rows).tolist(), self._waiting.signatures.number(rows.signature)
            count = len(each.sinks)
            found.append(
                _Sized(each, lengths if len(lengths) == count else lengths[each.start : each.start + count], signature)
            )
        return found

    def _admits_together(self, sized: Sequence[_Sized], now_s: float) -> bool:
        """Whether all requests are admitted, by one look at the plan: one for each would cost more than their calls."""
        deadlines_s = [asked.deadline_s for asked, _, _ in sized]
        first_s = min([asked.deadline_s - asked.spare_s for asked, _, _ in sized])
        if not first_s > now_s or math.isnan(sum(deadlines_s)):
            return False
        signature = sized[0].signature
        is_alike = all(each.signature == signature for each in sized)
        size = CallSize.of([tokens for _, lengths, _ in sized for tokens in lengths])
        if is_alike and self._admission.admits_all(size, signature, first_s, now_s):
            return True
        items = [Item(-1, asked.deadline_s, tokens, number) for asked, lengths, number in sized for tokens in lengths]
        return self._admission.admits_each(items, now_s, max([asked.spare_s for asked, _, _ in sized]))

    def _queue(self, sized: _Sized, now_s: float) -> list[int]:
        (rows, start, sinks, deadline_s, tenant, since_s, spare_s), lengths, signature = sized
        if math.isnan(deadline_s):
            raise InvalidInput("deadline_s", deadline_s, "a time on the clock of engine.now_s(), or inf")
        if deadline_s <= now_s and sinks:
            why = f"the deadline, {deadline_s:.3f} s, has passed: engine.now_s() is {now_s:.3f} s"
            raise Late(why, begun=False, for_clients="the deadline passed before the request could start")
        waiting = self._waiting
        items = [Item(waiting.new_key(), deadline_s, tokens, signature) for tokens in lengths]
        if (until_s := self._admit(items, now_s, since_s, spare_s)) is not None:
            items = [item._replace(deadline_s=until_s) for item in items]
        queued = [
            LiveRow(rows, at, sink, now_s, deadline_s, tokens, tenant)
            for at, (sink, tokens) in enumerate(zip(sinks, lengths, strict=True), start)
        ]
        waiting.add_rows(items, queued, now_s)
        return [item.key for item in items]

    def _queue_all(self, sized: Sequence[_Sized], now_s: float) -> list[list[int]]:
        """Requests that are known to be admitted."""
        found, items, queued, new_key = list[list[int]](), list[Item](), list[LiveRow](), self._waiting.new_key
        for (rows, start, sinks, deadline_s, tenant, _, _), lengths, signature in sized:
            keys = list[int]()
            for at, tokens in enumerate(lengths):
                keys.append(key := new_key())
                items.append(Item(key, deadline_s, tokens, signature))
                queued.append(LiveRow(rows, start + at, sinks[at], now_s, deadline_s, tokens, tenant))
            found.append(keys)
        self._waiting.add_each(items, queued, now_s)
        return found


class _Sized(NamedTuple):
    """A request, and what its rows need."""

    asked: LiveRows
    lengths: Sequence[int]
    signature: int


def _asks_more(each: _Sized, refused: _Sized) -> bool:
    """Whether a single row has no more time than one like it that was refused just now, and is no shorter."""
    if (
        len(each.lengths) != 1
        or each.signature != refused.signature
        or each.asked.deadline_s > refused.asked.deadline_s
    ):
        return False
    return each.lengths[0] >= refused.lengths[0]


def _too_large(never: Never) -> TooLarge:
    return TooLarge("request", never.reason, never.accepted)
