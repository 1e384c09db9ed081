"""What each part should be: a small record that is there before the part is.

A record's name has the part's name, size and SHA-256, so that one listing tells them all; it holds the part's stats.
A part is whole if any record of its shard has its bytes: two workers may have written one each, and one was first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

import msgspec

from twoshift.batch.part_file import Seal
from twoshift.batch.part_stats import PartStats
from twoshift.errors import NotFound
from twoshift.ports import Blobs

__all__ = ["Listing", "delete_record", "list_output", "read_record", "write_record"]

_FOLDER = "_twoshift/parts"
_NAME = re.compile(rf"{_FOLDER}/(part-\d+(?:-\d+)?)-(\d+)-([0-9a-f]{{64}})\.json")


@dataclass(frozen=True, slots=True)
class Listing:
    """An output folder by its names alone."""

    sizes: Mapping[str, int]  # of what readers see, by name
    seals: Mapping[str, Set[Seal]]  # by the part's name, without its suffix

    def seals_of(self, part: str) -> Set[Seal]:
        """Those that a part of that name may have; none where it was written by an earlier release."""
        return self.seals.get(part.partition(".")[0], frozenset())

    def checksum(self, part: str) -> str | None:
        """None where it has none, or where two workers wrote the part and nobody has looked whose it is."""
        fitting = [seal for seal in self.seals_of(part) if seal.size_bytes == self.sizes.get(part)]
        return fitting[0].sha256 if len(fitting) == 1 else None


def list_output(output: Blobs, folder: str) -> Listing:
    """Parts and records, in one listing."""
    prefix = f"{folder.rstrip('/')}/"
    sizes: dict[str, int] = {}
    seals: dict[str, set[Seal]] = defaultdict(set)
    try:
        found = output.list(prefix)
    except NotFound:
        found = []
    for blob in found:
        name = blob.location.removeprefix(prefix)
        if record := _NAME.fullmatch(name):
            seals[record[1]].add(Seal(int(record[2]), record[3]))
        elif not any(each.startswith(("_", ".")) for each in name.split("/")):
            sizes[name] = blob.size_bytes
    return Listing(sizes, seals)


def write_record(output: Blobs, part: str, seal: Seal, stats: PartStats) -> None:
    """Before the part, at that location, is published: there is no part without its record."""
    output.create(_location(part, seal), msgspec.json.encode(stats))


def read_record(output: Blobs, part: str, seal: Seal) -> PartStats | None:
    """What became of the shard; None where the record is gone or damaged."""
    try:
        return msgspec.json.decode(output.read(_location(part, seal)) or b"", type=PartStats)
    except msgspec.DecodeError:
        return None


def delete_record(output: Blobs, part: str, seal: Seal) -> None:
    """Of a part that is not there, or no more."""
    output.delete(_location(part, seal))


def _location(part: str, seal: Seal) -> str:
    folder, _, name = part.rpartition("/")
    return f"{folder}/{_FOLDER}/{name.partition('.')[0]}-{seal.size_bytes}-{seal.sha256}.json"
