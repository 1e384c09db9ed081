"""The waiting live rows in deadline order, already divided into the calls that will run them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.call_cutter import CallCutter, LiveEntry, are_alike
from twoshift.policy.planned_calls import CallRoom, JoinedCall, PlannedCall, ends
from twoshift.types import CallSize, Item

__all__ = ["LiveQueue"]


@dataclass(slots=True)
class _Coming:
    """Rows that admission has asked about, the plan with them, and how many of them have arrived since."""

    items: Sequence[Item]
    plan: deque[PlannedCall]
    here: int = 0


def _first(row: tuple[float, Item, float]) -> float:
    return row[0]


def _deadline_s(entry: LiveEntry) -> float:
    return entry[0]


def _by_deadline(entry: LiveEntry) -> tuple[float, int]:
    return entry[:2]


def _first_row(call: tuple[tuple[float, int], PlannedCall]) -> tuple[float, int]:
    return call[0]


def _has_call_of(plan: Iterable[PlannedCall], signature: int) -> bool:
    return any(call.signature == signature for call in plan)


class LiveQueue:
    """Waiting rows and the calls that they will make; the calls are updated as rows come and go.

    Rows of different signatures are in different calls; calls run in the order of their first deadlines.
    """

    def __init__(self, cutter: CallCutter) -> None:
        self.cutter = cutter
        self._has_whole = False  # the plan, of several lanes, a call for all
        self._entries: list[LiveEntry] = []  # sorted by deadline, then arrival
        self._where: dict[int, tuple[float, int]] = {}  # key of every row in _entries -> its sort key
        self._signature = 0  # of all rows, unless they are mixed
        self.is_mixed = False  # rows have different signatures
        self.tokens = self.squares = 0  # of them together
        self._plan: deque[PlannedCall] = deque()  # covers _entries exactly, unless stale
        self._plan_s = 0.0  # that its calls are predicted to take of the device
        self._stale = False
        self._tried: tuple[Item, JoinedCall] | None = None  # what `joined` was asked last, while nothing changed
        self._coming: _Coming | None = None  # what `plan_with` was asked last, while nothing else has changed since
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_deadline_s(self) -> float:
        """The earliest deadline of all waiting rows."""
        return self._entries[0][0] if self._entries else math.inf

    @property
    def first_signature(self) -> int:
        """Signature of the rows of the first call."""
        return self._entries[0][2].signature if self._entries else 0

    @property
    def last_signature(self) -> int:
        """Signature of the row with the latest deadline."""
        return self._entries[-1][2].signature if self._entries else 0

    def __contains__(self, key: int) -> bool:
        return key in self._where

    def add(self, item: Item, now_s: float) -> None:
        """Queue a row by its deadline; equal deadlines go by arrival."""
        key, deadline_s, n, signature = item
        if key in self._where:
            raise InvalidInput("key", key, "a key that no queued row has")
        if signature != self._signature:
            self.is_mixed = bool(self._entries)
            self._signature = signature
        where = self._where[key] = (deadline_s, next(self._arrivals))
        entry = (*where, item, now_s)
        self.tokens += n
        self.squares += n * n
        if self._entries and deadline_s < self._entries[-1][0]:  # an equal one came before it
            bisect.insort(self._entries, entry, key=_by_deadline)
            if self._coming is None:
                self.reprice()
                return
        else:
            self._entries.append(entry)
        if (coming := self._coming) is not None:
            self._arrive(coming, item)
            return
        tried, self._tried = self._tried, None
        if self._stale or tried is None or tried[0] != item:
            self._stale = True  # nobody has asked: many are cut at once for less than one by one
            return
        joined = tried[1]
        if not joined.opens:
            self._plan.pop()
        self._plan.append(joined.call)
        self._has_whole |= self.cutter.whole_s is not None and joined.call.is_whole
        self._plan_s = joined.before_s + joined.call.share_s

    def add_together(self, items: Sequence[Item], now_s: float) -> None:
        """Queue the rows of one request, which have one deadline and one signature."""
        coming = self._coming
        if len(items) < 2 or not self._is_behind_all(items[0]) or (coming is not None and coming.items is not items):
            for item in items:
                self.add(item, now_s)
            return
        if clash := [item.key for item in items if item.key in self._where]:
            raise InvalidInput("key", clash[0], "a key that no queued row has")
        self.is_mixed = False
        arrivals, (_, deadline_s, _, self._signature) = self._arrivals, items[0]
        entries = [(deadline_s, next(arrivals), item, now_s) for item in items]
        self._where.update([(entry[2].key, entry[:2]) for entry in entries])
        self._entries += entries
        self.tokens += sum([item.tokens for item in items])
        self.squares += sum([item.tokens * item.tokens for item in items])
        self.reprice()
        if coming is not None:
            self._keep(coming.plan)

    def _is_behind_all(self, item: Item) -> bool:
        """Whether every waiting row has an earlier deadline and the same signature."""
        if not self._entries:
            return True
        is_alike = item.signature == self._signature and not self.is_mixed
        return is_alike and item.deadline_s >= self._entries[-1][0]

    def _arrive(self, coming: _Coming, item: Item) -> None:
        """A row for which a plan was made has arrived; with the last of these rows, that plan becomes the plan."""
        self._tried, self._stale = None, True
        if item != coming.items[coming.here] or self.is_mixed:
            self._coming = None
            return
        coming.here += 1
        if coming.here == len(coming.items):
            self._coming = None
            self._keep(coming.plan)

    def _keep(self, plan: deque[PlannedCall]) -> None:
        self._plan, self._stale = plan, False
        self._plan_s = sum([call.share_s for call in plan])
        self._has_whole = self.cutter.whole_s is not None and any(call.is_whole for call in plan)

    def remove(self, key: int) -> bool:
        """Remove a row; False if it does not wait here."""
        where = self._where.pop(key, None)
        if where is None:
            return False
        at = bisect.bisect_left(self._entries, where, key=_by_deadline)
        self._leave(self._entries[at : at + 1])
        del self._entries[at]
        self.reprice()
        return True

    def take(self, rows: int) -> list[Item]:
        """Remove and return the first `rows` rows of the first call's signature."""
        taken = self._leave((self._of_first() if self.is_mixed else self._entries)[:rows])
        for item in taken:
            del self._where[item.key]
        if self.is_mixed:
            self._entries = [entry for entry in self._entries if entry[2].key in self._where]
        else:
            del self._entries[:rows]
        self._tried = self._coming = None
        if not self._stale and self._plan and self._plan[0].size.rows == rows:
            first = self._plan.popleft()
            self._plan_s = self._plan_s - first.share_s if self._plan else 0.0
        elif rows:
            self._stale = True
        return taken

    def fill(self, room: CallRoom) -> None:
        """Divide rows into calls with other limits from now on."""
        if room != self.cutter.room:
            self.cutter.room = room
            self.reprice()

    def reprice(self) -> None:
        """The cost curve has changed: divide the rows again before the next answer."""
        self._stale = True
        self._tried = self._coming = None

    def plan(self) -> deque[PlannedCall]:
        """The calls that the waiting rows will make, in order. Read-only."""
        if self._stale:
            self._keep(self._all_cut() if self.is_mixed else self.cutter.cut_alike(self._entries))
        return self._plan

    def planned_s(self, more: CallSize, deadline_s: float) -> tuple[float, float]:
        """About when, once the device is free, the call ends in which so many rows with that deadline run.

        Also returns the deadline of the rows that are already in that call, if these rows come behind all others.
        """
        seconds, entries = self.cutter.room.seconds, self._entries
        if entries and deadline_s < entries[-1][0]:  # others wait longer
            before = bisect.bisect_right(entries, deadline_s, key=_deadline_s) / len(entries)
            self.plan()
            return before * self._plan_s + self.cutter.predict_s(more), math.inf
        before_s, own, due_s = 0.0, more, math.inf
        if plan := self.plan():
            last = plan[-1]
            before_s, grown = self._plan_s, last.size.plus(more)
            if self.cutter.fits(grown):
                before_s, own, due_s = before_s - last.share_s, grown, last.deadline_s
        own_s = self.cutter.predict_s(own)
        # What no call may hold goes into several, which share the lanes
        return before_s + (own_s if own_s <= seconds else seconds + (own_s - seconds) * self.cutter.share), due_s

    def late(self, now_s: float) -> int:
        """Number of rows, earliest deadline first, that would miss their deadline in the next call.

        Later rows take their places. The call is not shrunk to save the oldest row: under overload, calls would become
        ever smaller.
        """
        late, entries = 0, self._entries
        while late < len(entries):
            first = self.plan()[0] if late == 0 else self.cutter.first_of(entries[late:])
            end_s = now_s + first.predicted_s
            if first.deadline_s >= end_s - 1e-9:
                return late
            entries = self._of_first()
            late = bisect.bisect_left(entries, end_s - 1e-9, late, late + first.size.rows, key=lambda e: e[0])
        return late

    def slack_s(self, free_s: Sequence[float]) -> float:
        """How much longer the next call may take before a waiting row misses its deadline; as `ends`."""
        plan = self.plan()
        timed = zip(plan, ends(plan, free_s), strict=True)
        return min((call.deadline_s - end_s for call, end_s in timed), default=math.inf)

    def joined(self, item: Item, now_s: float) -> JoinedCall | None:
        """The last call of the plan with this row added; None if rows with later deadlines wait.

        A fast form of `plan_with` for one row; also None if a call needs all lanes, or if the row would join an earlier
        call.
        """
        if self._entries and item.deadline_s < self._entries[-1][0]:
            return None
        if self._stale:
            self.plan()
        if self._plan and self._plan[-1].signature != item.signature and _has_call_of(self._plan, item.signature):
            return None
        plan, cutter = self._plan, self.cutter
        last = plan[-1] if plan else None
        grown = None
        if last is not None and last.signature == item.signature:
            grown = cutter.grown(last, item, now_s)
        if last is not None and grown is not None:
            found = JoinedCall(grown, False, self._plan_s - last.share_s, len(plan) - 1)
        else:
            found = JoinedCall(cutter.alone(item, now_s), True, self._plan_s, len(plan))
        self._tried, self._coming = (item, found), None
        if cutter.whole_s is not None and (self._has_whole or found.call.is_whole):
            return None
        return found

    def plan_with(self, items: Sequence[Item], now_s: float) -> Sequence[PlannedCall]:
        """The plan with these rows added, for admission. Does not queue the rows."""
        last_s = self._entries[-1][0] if self._entries else -math.inf
        is_alike = not self.is_mixed and all(item.signature == self._signature for item in items)
        if is_alike and items[0].deadline_s < last_s:
            coming = [(item.deadline_s, 0, item, now_s) for item in items]
            calls = self.cutter.cut_alike(sorted([*self._entries, *coming], key=_deadline_s))  # behind their equals
            self._coming = _Coming(items, calls)
            return calls
        rows = sorted(((item.deadline_s, item, now_s) for item in items), key=_first)
        if rows[0][0] >= last_s:
            calls = self.plan().copy()
        else:
            calls = deque[PlannedCall]()
            waiting = [(deadline_s, item, arrived_s) for deadline_s, _, item, arrived_s in self._entries]
            rows = sorted([*waiting, *rows], key=_first)
        if len(rows) == len(items) and are_alike(items):
            self.cutter.append_alike(calls, items, now_s)
            self._coming = _Coming(items, calls)
            return calls
        for _, item, arrived_s in rows:
            self.cutter.append(calls, item, arrived_s)
        return calls

    def cut(self, items: Sequence[Item], now_s: float) -> Sequence[PlannedCall]:
        """The calls that these rows would make on their own."""
        return self.cutter.cut(items, now_s)

    def _leave(self, entries: Sequence[LiveEntry]) -> list[Item]:
        items = [entry[2] for entry in entries]
        for item in items:
            self.tokens -= item.tokens
            self.squares -= item.tokens * item.tokens
        return items

    def _of_first(self) -> list[LiveEntry]:
        """The rows of the first call's signature."""
        if not self.is_mixed:
            return self._entries
        signature = self._entries[0][2].signature
        return [entry for entry in self._entries if entry[2].signature == signature]

    def _all_cut(self) -> deque[PlannedCall]:
        """The plan anew: as if row after row were put into its signature's last call or the next."""
        groups: dict[int, list[LiveEntry]] = {}
        for entry in self._entries:
            groups.setdefault(entry[2].signature, []).append(entry)
        calls: list[tuple[tuple[float, int], PlannedCall]] = []
        for group in groups.values():
            at = 0
            for call in self.cutter.cut_alike(group):
                calls.append((_by_deadline(group[at]), call))
                at += call.size.rows
        self._signature, self.is_mixed = self._entries[-1][2].signature if groups else 0, len(groups) > 1
        return deque(call for _, call in sorted(calls, key=_first_row))
