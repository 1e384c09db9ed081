"""Limits that several processes of a server share: a mapped file, locked record by record."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol, Self

import msgspec

from twoshift.decodable import decodable
from twoshift.errors import Broken, InvalidInput
from twoshift.serve.connection_counts import SharedConnectionCounts, table_bytes
from twoshift.serve.limit_record import LimitRecord

__all__ = ["SharedLimits"]

_LINE_BYTES = 64  # records begin on cache lines of their own: what one process writes does not slow down the others
_LENGTH = struct.Struct("=Q")  # of the contents, at the beginning of the file


class _Settings(Protocol):
    """Of a key or a tenant."""

    @property
    def is_limited(self) -> bool: ...


@decodable
class _Contents(msgspec.Struct, frozen=True):
    """What the file says of itself."""

    processes: int
    keys: tuple[str, ...]
    tenants: tuple[str, ...]
    salt: bytes  # of addresses: nobody can tell which of them share a place


class SharedLimits:
    """The records of limited keys and tenants, and counts of connections. Of one thread of each process: so are locks.

    A record of each key, each tenant and all connections lie one after the other; the table of addresses is the end.
    """

    def __init__(self, file: int, process: int) -> None:
        """Over an open file, which is its own from now on."""
        self._file = file
        self._map = mmap.mmap(file, 0)
        length = _LENGTH.unpack_from(self._map)[0]
        contents = msgspec.json.decode(self._map[_LENGTH.size : _LENGTH.size + length], type=_Contents)
        if not 0 <= process < contents.processes:
            raise InvalidInput("process", process, f"a number from 0 to {contents.processes - 1}")
        self._contents, self._process = contents, process
        self._view = memoryview(self._map)
        self._begin = _whole_lines(_LENGTH.size + length)
        self._keys = self._records(contents.keys, 0)
        self._tenants = self._records(contents.tenants, len(contents.keys))
        self._all_connections = self._record(len(contents.keys) + len(contents.tenants))
        self._table = self._view[-table_bytes(contents.processes) :].cast("q")
        self.connections = SharedConnectionCounts(
            self._all_connections, self._table, contents.salt, partial(self.guard, self._all_connections)
        )

    @classmethod
    def create(
        cls, path: Path, keys: Mapping[str, _Settings], tenants: Mapping[str, _Settings], processes: int
    ) -> None:
        """A new file, in place of one that is there, for so many processes; it belongs into a folder in memory."""
        contents = _Contents(
            processes,
            tuple(name for name, each in keys.items() if each.is_limited),
            tuple(name for name, each in tenants.items() if each.is_limited),
            secrets.token_bytes(16),
        )
        about = msgspec.json.encode(contents)
        head = _LENGTH.pack(len(about)) + about
        records = [LimitRecord.untouched(processes)] * (len(contents.keys) + len(contents.tenants) + 1)
        path.unlink(missing_ok=True)  # who has the old one open keeps it
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for each in (head, *records):
                file.write(each.ljust(_whole_lines(len(each)), b"\0"))
            file.truncate(file.tell() + table_bytes(processes))
            if sys.platform == "linux":  # or a disk that is full by then would kill who writes
                os.posix_fallocate(file.fileno(), 0, file.tell() + table_bytes(processes))

    @classmethod
    def open(cls, path: Path, process: int) -> Self:
        """As one of its processes, of which no request runs: what one of this number held before is forgotten."""
        made = cls(os.open(path, os.O_RDWR), process)
        made.forget(process)
        return made

    def key(self, name: str) -> LimitRecord:
        """Of a limited key."""
        return _found(self._keys, name)

    def tenant(self, name: str) -> LimitRecord:
        """Of a limited tenant."""
        return _found(self._tenants, name)

    def forget(self, process: int) -> None:
        """A process that has ended has no requests running, and no connections."""
        for record in self._keys.values():
            record.running[process] = 0
        self.connections.forget(process)

    def guard(self, *records: LimitRecord) -> AbstractContextManager[None]:
        """Nobody else has these meanwhile. Always tenants before keys: so nobody waits for one who waits for him."""
        return _Guard(self._file, tuple(each.offset for each in records))

    def close(self) -> None:
        """Nothing is limited by it any more."""
        for record in (*self._keys.values(), *self._tenants.values(), self._all_connections):
            record.release()
        self._table.release()
        self._view.release()
        self._map.close()
        os.close(self._file)

    def _records(self, names: Sequence[str], first: int) -> dict[str, LimitRecord]:
        return {name: self._record(first + number) for number, name in enumerate(names)}

    def _record(self, number: int) -> LimitRecord:
        size = len(LimitRecord.untouched(self._contents.processes))
        offset = self._begin + number * _whole_lines(size)
        return LimitRecord(self._view[offset : offset + size], self._process, offset)


class _Guard:
    """Locks of the file; the kernel gives back those of a process that is killed."""

    __slots__ = ("_file", "_offsets")

    def __init__(self, file: int, offsets: tuple[int, ...]) -> None:
        self._file, self._offsets = file, offsets

    def __enter__(self) -> None:
        try:
            for offset in self._offsets:
                fcntl.lockf(self._file, fcntl.LOCK_EX, 1, offset)
        except BaseException:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
            raise

    def __exit__(self, *exc: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)  # all that this process has: one call for several


def _found(records: Mapping[str, LimitRecord], name: str) -> LimitRecord:
    if name not in records:
        raise Broken(f"{name} has limits that did not exist when the front-end processes started: restart the server")
    return records[name]


def _whole_lines(size: int) -> int:
    return -(-size // _LINE_BYTES) * _LINE_BYTES
