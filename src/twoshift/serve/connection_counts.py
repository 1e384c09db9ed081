"""How many connections are open, in all and from each address."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Protocol

from twoshift.serve.limit_record import LimitRecord

__all__ = ["ConnectionCounts", "OwnConnectionCounts", "SharedConnectionCounts", "table_bytes"]

_SETS, _WAYS = 1024, 16  # an address has a place in one set: four times as many places as connections by default
_WORD_BYTES = 8


class ConnectionCounts(Protocol):
    """What limits of connections are held against."""

    def guard(self) -> AbstractContextManager[None]:
        """What is asked in here stays so until something is added."""
        ...

    def total(self) -> int:
        """In all."""
        ...

    def at(self, address: str) -> int:
        """From this address."""
        ...

    def add(self, address: str) -> None:
        """One more; in the guard."""
        ...

    def remove(self, address: str) -> None:
        """One less."""
        ...


class OwnConnectionCounts:
    """Of this process alone."""

    def __init__(self) -> None:
        self._total = 0
        self._at: dict[str, int] = {}

    def guard(self) -> AbstractContextManager[None]:
        """Nobody else is there."""
        return nullcontext()

    def total(self) -> int:
        """In all."""
        return self._total

    def at(self, address: str) -> int:
        """From this address."""
        return self._at.get(address, 0)

    def add(self, address: str) -> None:
        """One more."""
        self._total += 1
        self._at[address] = self.at(address) + 1

    def remove(self, address: str) -> None:
        """One less."""
        self._total -= 1
        left = self._at[address] - 1
        if left:
            self._at[address] = left
        else:
            del self._at[address]


class SharedConnectionCounts:
    """Of all processes that share a file; what each has is counted by itself.

    An address that finds its set full is not counted: it has the limit of all. That takes 17 addresses of one set at
    a time, and nobody outside can tell which those are.
    """

    def __init__(
        self,
        record: LimitRecord,
        table: memoryview[int],
        salt: bytes,
        guard: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """The table is of entries: an address's digest, then one count for each process."""
        self._record, self._table, self._salt, self._guard = record, table, salt, guard
        self._entry_words = 1 + len(record.running)

    def guard(self) -> AbstractContextManager[None]:
        """Nobody else adds any meanwhile."""
        return self._guard()

    def total(self) -> int:
        """In all."""
        return sum(self._record.running)

    def by_process(self) -> list[int]:
        """Of each process, by its number."""
        return self._record.running.tolist()

    def at(self, address: str) -> int:
        """From this address."""
        entry, _ = self._find(self._digest(address))
        return 0 if entry is None else sum(self._counts(entry))

    def add(self, address: str) -> None:
        """One more; in the guard."""
        self._record.running[self._record.process] += 1
        digest = self._digest(address)
        entry, free = self._find(digest)
        if entry is None and free is not None:
            self._table[free] = digest
            entry = free
        if entry is not None:
            self._table[self._own(entry)] += 1

    def remove(self, address: str) -> None:
        """One less; nobody else writes what is ours, and nobody takes an entry with a count."""
        self._record.running[self._record.process] -= 1
        entry, _ = self._find(self._digest(address))
        if entry is not None and self._table[self._own(entry)]:
            self._table[self._own(entry)] -= 1

    def forget(self, process: int) -> None:
        """A process that has ended has none."""
        self._record.running[process] = 0
        for at in range(1 + process, len(self._table), self._entry_words):
            self._table[at] = 0

    def _digest(self, address: str) -> int:
        return int.from_bytes(blake2b(address.encode(), digest_size=_WORD_BYTES, key=self._salt).digest(), signed=True)

    def _find(self, digest: int) -> tuple[int | None, int | None]:
        """Where its entry is, and else where one could be."""
        words, free = self._entry_words, None
        first = digest % _SETS * _WAYS * words
        for entry in range(first, first + _WAYS * words, words):
            if self._table[entry] == digest:
                return entry, None
            if free is None and not any(self._counts(entry)):
                free = entry
        return None, free

    def _counts(self, entry: int) -> memoryview[int]:
        return self._table[entry + 1 : entry + self._entry_words]

    def _own(self, entry: int) -> int:
        return entry + 1 + self._record.process


def table_bytes(processes: int) -> int:
    """Of a table for so many processes."""
    return _SETS * _WAYS * (1 + processes) * _WORD_BYTES
