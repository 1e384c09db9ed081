"""What a stream has committed: its parts, each with the offset after it. Nothing else says how far it is."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from twoshift.batch.part_file import Seal, seal_of
from twoshift.batch.part_records import Listing, delete_record, list_output, read_record
from twoshift.batch.part_stats import PartStats, StreamMark
from twoshift.errors import Broken
from twoshift.ports import Blobs

__all__ = ["CommittedPart", "OutputGone", "StreamOutput"]

_PART = re.compile(r"part-(\d+)(?:-(\d+))?\.\w+")
_READERS = 8


class OutputGone(Broken):
    """What a stream has committed is no more where it was: to begin again would commit all rows twice."""

    @classmethod
    def on_server(cls, output: str) -> OutputGone:
        """With what a stream's owner can do about it on a server."""
        return cls(
            f"{output} was deleted or replaced after the stream had committed rows there. Put the folder back and "
            "resume the stream, or submit the stream again to start from the beginning"
        )


@dataclass(frozen=True, slots=True)
class CommittedPart:
    """A part of one window, or of several that were merged."""

    name: str
    first: int
    last: int
    size_bytes: int

    @property
    def windows(self) -> int:
        """That it holds."""
        return self.last - self.first + 1

    def covers(self, other: CommittedPart) -> bool:
        """Whether the other one was merged into it."""
        return self != other and self.first <= other.first and other.last <= self.last and self.windows > other.windows


class StreamOutput:
    """The output folder of a stream, as its names tell it."""

    def __init__(self, output: Blobs, folder: str) -> None:
        self._output, self._folder = output, folder.rstrip("/")

    def recover(self) -> list[CommittedPart]:
        """The parts, in order and without those that were merged; removes what a run that was killed has left.

        Raises Broken where a part is missing.
        """
        listing = list_output(self._output, self._folder)
        found = sorted(_parts(listing), key=lambda each: (each.first, -each.last))
        kept = list[CommittedPart]()
        for part in found:
            if kept and kept[-1].covers(part):
                self.remove(part, listing)
            else:
                kept.append(part)
        self._check_whole(kept)
        self._remove_records(listing, kept)
        return kept

    def part(self, name: str) -> CommittedPart:
        """One that is there."""
        listing = list_output(self._output, self._folder)
        return next(each for each in _parts(listing) if each.name == name)

    def stats(self, part: CommittedPart, listing: Listing | None = None) -> PartStats:
        """What a part says of itself; raises Broken where it is damaged, or none of a stream."""
        listing = listing or list_output(self._output, self._folder)
        fitting = [seal for seal in listing.seals_of(part.name) if seal.size_bytes == part.size_bytes]
        seal = fitting[0] if len(fitting) == 1 else self._seal(part)
        stats = read_record(self._output, f"{self._folder}/{part.name}", seal)
        if stats is None or stats.stream is None:
            raise Broken(
                f"{self._folder}/{part.name} is damaged, or was not written by a stream: restore the part from a "
                "backup, or remove the file if it does not belong to the stream"
            )
        return stats

    def marks(self, parts: list[CommittedPart]) -> list[StreamMark]:
        """How far the stream was with each."""
        if not parts:
            return []
        listing = list_output(self._output, self._folder)
        with ThreadPoolExecutor(_READERS) as reading:
            found = [each.stream for each in reading.map(lambda part: self.stats(part, listing), parts)]
        return [mark for mark in found if mark is not None]

    def remove(self, part: CommittedPart, listing: Listing | None = None) -> None:
        """A part that was merged into another one, and its records."""
        listing = listing or list_output(self._output, self._folder)
        location = f"{self._folder}/{part.name}"
        self._output.delete(location)
        for seal in listing.seals_of(part.name):
            delete_record(self._output, location, seal)

    def _seal(self, part: CommittedPart) -> Seal:
        with self._output.open(f"{self._folder}/{part.name}") as file:
            return seal_of(file)

    def _check_whole(self, parts: list[CommittedPart]) -> None:
        expected = 0
        for part in parts:
            if part.first != expected:
                raise Broken(
                    f"part-{expected:06d} is missing in {self._folder}, and the stream has committed later parts, too; "
                    "restore the part from a backup, or start again with another output folder"
                )
            expected = part.last + 1

    def _remove_records(self, listing: Listing, kept: list[CommittedPart]) -> None:
        """Of parts that were never published; in a bucket another writer may be about to publish one."""
        if "://" in self._folder:
            return
        there = {part.name.partition(".")[0] for part in kept}
        for stem, seals in listing.seals.items():
            if stem not in there:
                for seal in seals:
                    delete_record(self._output, f"{self._folder}/{stem}", seal)


def _parts(listing: Listing) -> list[CommittedPart]:
    found = [(match, size) for name, size in listing.sizes.items() if (match := _PART.fullmatch(name))]
    return [CommittedPart(match[0], int(match[1]), int(match[2] or match[1]), size) for match, size in found]
