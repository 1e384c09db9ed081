"""A window: rows of a source that are scored and committed together, as one shard of a job."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import msgspec

from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.plan import Plan
from twoshift.policy.freshness import OpenWindow
from twoshift.ports import Blob, Blobs
from twoshift.streams.source import Age, Arrived, Position

__all__ = ["StreamWindow"]

BlobsFor = Callable[[str], Blobs]


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    """Files in memory; jobs read their input with these two alone."""

    contents: Mapping[str, bytes]

    def stat(self, location: str) -> Blob | None:
        data = self.contents.get(location)
        return None if data is None else Blob(location, len(data), location)

    def open(self, location: str) -> BinaryIO:
        return io.BytesIO(self.contents[location])


@dataclass(slots=True)
class StreamWindow:
    """Rows that were taken, in order, and when."""

    number: int
    taken: list[tuple[float, Arrived]] = field(default_factory=list[tuple[float, Arrived]])
    rows: int = 0
    size_bytes: int = 0
    unreadable: dict[str, str] = field(default_factory=dict[str, str])  # files that are left out, and why

    def add(self, arrived: Arrived, now_s: float) -> None:
        """More rows, taken now."""
        self.taken.append((now_s, arrived))
        self.rows += arrived.rows
        self.size_bytes += arrived.size_bytes
        self.unreadable |= arrived.unreadable

    @property
    def state(self) -> OpenWindow:
        """As the policy sees it."""
        ages = (taken_s - age.seconds for taken_s, each in self.taken for age in each.ages)
        rows = max(self.rows, len(self.taken))  # a file that was given up is to be committed, too
        return OpenWindow(rows, min(ages, default=min((taken_s for taken_s, _ in self.taken), default=0.0)))

    @property
    def positions(self) -> list[Position]:
        """In order."""
        return [each.position for _, each in self.taken]

    def ages_at(self, now_s: float) -> list[Age]:
        """Of its rows, if they are committed now."""
        return [Age(age.seconds + now_s - taken_s, age.rows) for taken_s, each in self.taken for age in each.ages]

    def plan(self, frozen: Plan) -> Plan:
        """The stream's plan with this window as its only shard."""
        files, pieces = self.input()
        return msgspec.structs.replace(frozen, files=files, shards=(pieces,), first_shard=self.number)

    def input(self) -> tuple[tuple[InputFile, ...], tuple[Piece, ...]]:
        """What it reads."""
        files, pieces = list[InputFile](), list[Piece]()
        for _, each in self.taken:
            readable = (piece for piece in each.pieces if each.files[piece.file].location not in self.unreadable)
            pieces += [msgspec.structs.replace(piece, file=piece.file + len(files)) for piece in readable]
            files += each.files
        return tuple(files), tuple(pieces)

    def blobs_for(self, outside: BlobsFor) -> BlobsFor:
        """Where its files lie."""
        contents = {location: data for _, each in self.taken for location, data in each.contents.items()}
        inside = cast("Blobs", _MemoryFiles(contents))
        return lambda location: inside if location in contents else outside(location)

    def payload(self, row: int) -> bytes | None:
        """What the row of that number was, if it was a message."""
        for _, each in self.taken:
            if row < each.rows and each.contents:
                (content,) = each.contents.values()
                return content.split(b"\n")[row]
            row -= each.rows
        return None
