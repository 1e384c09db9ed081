"""Which job is next where not all run at once."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from twoshift.ports import JobRecord
from twoshift.units import parse_duration

__all__ = ["in_turn"]


def in_turn(waiting: Sequence[JobRecord], at_work: Counter[str]) -> Iterator[JobRecord]:
    """First the owner with the fewest jobs at work; of its jobs the one whose window ends first, then the oldest."""
    by_owner: dict[str, deque[tuple[float, int, JobRecord]]] = defaultdict(deque)
    for due in sorted((_due_unix_s(record), number, record) for number, record in enumerate(waiting)):
        by_owner[due[2].owner].append(due)
    turns = [(at_work[owner], theirs[0][:2], owner) for owner, theirs in by_owner.items()]
    heapq.heapify(turns)
    while turns:
        count, _, owner = heapq.heappop(turns)
        theirs = by_owner[owner]
        yield theirs.popleft()[2]
        if theirs:
            heapq.heappush(turns, (count + 1, theirs[0][:2], owner))


def _due_unix_s(record: JobRecord) -> float:
    """When its window ends."""
    due, window = record.settings.get("due_unix_s"), record.settings.get("window")
    if due is not None:
        return due
    return math.inf if window is None else record.created_unix_s + parse_duration(window, "window")
