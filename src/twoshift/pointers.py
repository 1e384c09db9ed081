"""Numbered pointers: `FOLDER/current-000007.json` says which generation is the current one; the highest number counts.

A pointer is created if its number is free, on disks and in buckets alike, and is never written again: a generation is
switched to once, and a job that is resumed late does not switch back to its own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from twoshift.decodable import decodable
from twoshift.errors import Broken, NotFound
from twoshift.ports import Blobs

__all__ = [
    "add_pointer",
    "check_format",
    "current_pointer",
    "delete_replaced",
    "pointers_newest_first",
    "read_manifest",
]

_POINTER = re.compile(r"current-(\d{6,})\.json")
_KEPT = 2  # generations whose files stay: the current one, and the one that somebody may be reading still


class _Names(Protocol):
    @property
    def generation(self) -> str: ...


_P = TypeVar("_P", bound=_Names)


class _Manifest(Protocol):
    @property
    def format(self) -> int: ...


_M = TypeVar("_M", bound=_Manifest)


@decodable
class _Formatted(msgspec.Struct):
    """As much as records of every version have in common."""

    format: int


def check_format(data: bytes, location: str, known_format: int) -> None:
    """Raises Broken where a newer Twoshift has written it; asked before the rest is read, which may be unreadable."""
    try:
        found = msgspec.json.decode(data, type=_Formatted).format
    except msgspec.DecodeError:
        return  # damaged: whoever reads the rest says how
    if found > known_format:
        raise Broken(
            f"{location} was written by a newer version of Twoshift (format {found}; this version reads up to "
            f"{known_format}): use that version, or a newer one"
        )


def read_manifest(blobs: Blobs, location: str, kind: type[_M], known_format: int) -> _M | None:
    """What commits a generation; None where it is not committed. Raises Broken where it cannot be read."""
    data = blobs.read(location)
    if data is None:
        return None
    check_format(data, location, known_format)
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise Broken(f"{location} is damaged ({error})") from error
    if found.format != known_format:
        raise Broken(
            f"{location} was written by an older version of Twoshift (format {found.format}; this version reads "
            f"{known_format}): use that version, or run the job again with another output folder"
        )
    return found


def current_pointer(blobs: Blobs, folder: str, kind: type[_P]) -> _P | None:
    """What the last one says; None where there is none yet. Raises Broken where it is damaged."""
    numbers = _numbers(blobs, folder)
    return None if not numbers else _read(blobs, folder, max(numbers), kind)


def pointers_newest_first(blobs: Blobs, folder: str, kind: type[_P]) -> Sequence[_P]:
    """All that there are."""
    return [_read(blobs, folder, number, kind) for number in sorted(_numbers(blobs, folder), reverse=True)]


def add_pointer(blobs: Blobs, folder: str, numbered: Callable[[int], object]) -> bool:
    """Create the next one, as `numbered` makes it; False where somebody else has just created that."""
    number = max(_numbers(blobs, folder), default=0) + 1
    return blobs.create(f"{folder}/current-{number:06d}.json", msgspec.json.encode(numbered(number)))


def delete_replaced(blobs: Blobs, folder: str, kind: type[_Names]) -> None:
    """Delete the files of generations that were replaced; their pointers stay, so that none is switched to again."""
    names = list(dict.fromkeys(each.generation for each in pointers_newest_first(blobs, folder, kind)))
    for name in names[_KEPT:]:
        with contextlib.suppress(NotFound):
            for blob in blobs.list(f"{folder}/generations/{name}/"):
                blobs.delete(blob.location)


def _numbers(blobs: Blobs, folder: str) -> list[int]:
    return [int(found[1]) for name in blobs.names(folder) if (found := _POINTER.fullmatch(name))]


def _read(blobs: Blobs, folder: str, number: int, kind: type[_P]) -> _P:
    location = f"{folder}/current-{number:06d}.json"
    try:
        return msgspec.json.decode(blobs.read(location) or b"", type=kind)
    except msgspec.DecodeError as error:
        raise Broken(f"{location} is damaged ({error})") from error
