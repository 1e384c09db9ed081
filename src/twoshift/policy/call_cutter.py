"""Divides rows into calls, in order, each as large as its limits allow."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence

from twoshift.policy.planned_calls import CallRoom, PlannedCall
from twoshift.types import CallSize, Item

__all__ = ["CallCutter", "LiveEntry", "are_alike"]

_EPSILON_S = 1e-9
_EMPTY = CallSize(0, 0, 0, 0)
LiveEntry = tuple[float, int, Item, float]  # deadline, arrival number, row, arrival time


def are_alike(items: Sequence[Item]) -> bool:
    """Whether the rows are of one request: they have one deadline and one signature."""
    if len(items) < 2:
        return False
    _, deadline_s, _, signature = items[0]
    return all(item.deadline_s == deadline_s and item.signature == signature for item in items)


class CallCutter:
    """Divides rows into planned calls; rows of different signatures never share a call."""

    def __init__(
        self,
        room: CallRoom,
        predict_s: Callable[[CallSize], float],
        lanes: int = 1,
        whole_s: Callable[[CallSize], float] | None = None,
        lane_s: float = math.inf,
    ) -> None:
        """Where calls run in lanes side by side, a row that takes over `lane_s` in one, or has no time for that, has
        them all, and takes `whole_s`.
        """
        self.room, self.predict_s = room, predict_s
        self.share, self.whole_s, self._lane_s = 1.0 / lanes, whole_s, lane_s

    def fits(self, size: CallSize) -> bool:
        """Whether one call has room for all of it."""
        max_rows, max_tokens, seconds = self.room
        return size.rows <= max_rows and size.tokens <= max_tokens and self.predict_s(size) <= seconds

    def cut(self, items: Sequence[Item], now_s: float) -> deque[PlannedCall]:
        """The calls that these rows would make on their own."""
        calls: deque[PlannedCall] = deque()
        if are_alike(items):
            self.append_alike(calls, items, now_s)
            return calls
        for item in sorted(items, key=lambda item: item.deadline_s):
            self.append(calls, item, now_s)
        return calls

    def cut_alike(self, entries: list[LiveEntry]) -> deque[PlannedCall]:
        """Like `cut`, for rows of one signature, without a look at each row."""
        calls, start = deque[PlannedCall](), 0
        signature = entries[0][2].signature if entries else 0
        lengths = [entry[2].tokens for entry in entries]
        tokens = [0, *itertools.accumulate(lengths)]
        squares = [0, *itertools.accumulate([n * n for n in lengths])]
        max_rows, max_tokens, seconds = self.room

        def size_to(stop: int) -> CallSize:
            longest = max(lengths[start:stop])
            return CallSize(stop - start, tokens[stop] - tokens[start], longest, squares[stop] - squares[start])

        def is_too_much(stop: int) -> bool:
            size = size_to(stop)
            return size.tokens > max_tokens or self.predict_s(size) > seconds

        while start < len(entries):
            last = min(len(entries), start + max(1, max_rows))
            stop = last
            if last > start + 1 and is_too_much(last):
                stop = start + 1 + bisect.bisect_left(range(start + 2, last), True, key=is_too_much)
            oldest_s = min([entry[3] for entry in entries[start:stop]])
            if stop == start + 1:
                calls.append(self.alone(entries[start][2], oldest_s))
            else:
                calls.append(self._planned(size_to(stop), entries[start][0], oldest_s, signature))
            start = stop
        return calls

    def first_of(self, entries: list[LiveEntry]) -> PlannedCall:
        """The first call that these rows would make."""
        calls: deque[PlannedCall] = deque()
        for entry in entries:
            self.append(calls, entry[2], entry[3])
            if len(calls) > 1:
                break
        return calls[0]

    def append(self, calls: deque[PlannedCall], item: Item, arrived_s: float) -> None:
        """Add a row to the last call of its signature, or to a new call if it does not fit."""
        last = len(calls) - 1
        while last >= 0 and calls[last].signature != item.signature:
            last -= 1
        if last >= 0 and (grown := self.grown(calls[last], item, arrived_s)) is not None:
            calls[last] = grown
        else:
            calls.append(self.alone(item, arrived_s))

    def append_alike(self, calls: deque[PlannedCall], items: Sequence[Item], arrived_s: float) -> None:
        """Like `append`, for all rows of one request, in one step per call."""
        _, deadline_s, _, signature = items[0]
        lengths = [item.tokens for item in items]
        sums = list(itertools.accumulate(lengths, initial=0))
        squares = list(itertools.accumulate([n * n for n in lengths], initial=0))
        max_rows, max_tokens, seconds = self.room
        start, at = 0, len(calls) - 1
        while at >= 0 and calls[at].signature != signature:
            at -= 1
        before = calls[at] if at >= 0 else None

        def size_to(stop: int) -> CallSize:
            rows, tokens, longest, square = _EMPTY if before is None else before.size
            longest = max(longest, *lengths[start:stop])
            return CallSize(
                rows + stop - start, tokens + sums[stop] - sums[start], longest, square + squares[stop] - squares[start]
            )

        def is_too_much(stop: int) -> bool:
            size = size_to(stop)
            return size.rows > max_rows or size.tokens > max_tokens or self.predict_s(size) > seconds

        while start < len(items):
            stop = len(items)
            if is_too_much(stop):
                stop = start + bisect.bisect_left(range(start + 1, stop), True, key=is_too_much)
            if before is not None:
                if stop > start:
                    first_s, oldest_s = min(before.deadline_s, deadline_s), min(before.oldest_s, arrived_s)
                    calls[at] = self._planned(size_to(stop), first_s, oldest_s, signature)
                before = None
            elif stop <= start + 1:
                stop = start + 1
                calls.append(self.alone(items[start], arrived_s))
            else:
                calls.append(self._planned(size_to(stop), deadline_s, arrived_s, signature))
            start = stop

    def _planned(self, size: CallSize, deadline_s: float, oldest_s: float, signature: int) -> PlannedCall:
        predicted_s = self.predict_s(size)
        return PlannedCall(size, predicted_s, deadline_s, oldest_s, predicted_s * self.share, signature)

    def grown(self, last: PlannedCall, item: Item, arrived_s: float) -> PlannedCall | None:
        """The call with one more row; None if the row does not fit."""
        # Unpacked and without `min` and `max`: every live row comes here.
        _, deadline_s, n, signature = item
        (rows, tokens, longest, squares), _, first_s, oldest_s, _, _ = last
        max_rows, max_tokens, seconds = self.room
        if rows >= max_rows or tokens + n > max_tokens:
            return None
        if n > longest:
            longest = n
        size = CallSize(rows + 1, tokens + n, longest, squares + n * n)
        predicted_s = self.predict_s(size)
        if predicted_s > seconds:
            return None
        if deadline_s < first_s:
            first_s = deadline_s
        if arrived_s < oldest_s:
            oldest_s = arrived_s
        return PlannedCall(size, predicted_s, first_s, oldest_s, predicted_s * self.share, signature)

    def alone(self, item: Item, arrived_s: float) -> PlannedCall:
        """A call with one row."""
        _, deadline_s, n, signature = item
        size = CallSize(1, n, n, n * n)
        predicted_s = self.predict_s(size)
        if self.whole_s is not None and predicted_s > min(self._lane_s, deadline_s - arrived_s) + _EPSILON_S:
            whole_s = self.whole_s(size)
            return PlannedCall(size, whole_s, deadline_s, arrived_s, whole_s, signature)
        return PlannedCall(size, predicted_s, deadline_s, arrived_s, predicted_s * self.share, signature)
