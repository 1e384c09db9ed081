"""Tables as they lie somewhere: generations side by side, and a pointer to the current one.

`PLACE/generations/NAME/table.json` commits a generation once its files are there; `PLACE/current-000007.json` makes it
the one that answers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from twoshift.answers.keys import KeyKind
from twoshift.answers.layout import ColumnLayout
from twoshift.answers.reading import ReadFile
from twoshift.answers.writing import SLOTS, STARTS, SUPERSEDED, TableWriter
from twoshift.decodable import decodable
from twoshift.errors import TryLater
from twoshift.pointers import add_pointer, current_pointer, delete_replaced, pointers_newest_first, read_manifest
from twoshift.ports import Blobs

__all__ = [
    "FolderTables",
    "Generation",
    "Pointer",
    "build_generation",
    "current",
    "file_location",
    "is_switched",
    "read_generation",
    "switch",
    "table_place",
]

_FORMAT = 1
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_DELAY_S = 60.0


@decodable
class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one job."""

    name: str
    key: str  # the column
    kind: KeyKind
    columns: tuple[ColumnLayout, ...]  # of an answer
    model: str
    checksum: str  # of its weights: no other version's answers are served
    precision: str
    too_long: str  # what became of texts that are longer than the model takes
    prompt_name: str | None  # put before each text
    text: str | None  # the column with the text, where the model takes texts
    output: str  # of the job
    rows: int = 0  # keys
    left_out: dict[str, int] = {}  # rows of the job that have none here, by why
    oldest_unix_s: float = 0.0
    newest_unix_s: float = 0.0
    files: dict[str, int] = {}  # their names, below the generation, and sizes
    checksums: dict[str, int] = {}  # of the files that find the rows, by their names in the folder
    build_s: float = 0.0
    format: int = _FORMAT

    @property
    def superseded(self) -> int:
        """Rows whose key a newer row has, too."""
        return self.left_out.get(SUPERSEDED, 0)


@decodable
class Pointer(msgspec.Struct, frozen=True):
    """The generation that answers."""

    generation: str
    number: int = 0


def table_place(output: str, key: str, place: str | None = None) -> str:
    """In the output folder, where nobody says otherwise: readers of datasets pass over names with an underscore."""
    if place is not None:
        return place.rstrip("/")
    named = key if _PLAIN.fullmatch(key) else f"x{key.encode().hex()}"
    return f"{output.rstrip('/')}/_answers/{named}"


def file_location(place: str, name: str, file: str) -> str:
    """A file of a generation."""
    return f"{place}/generations/{name}/{file}"


def read_generation(blobs: Blobs, place: str, name: str) -> Generation | None:
    """One that is committed; raises Broken where it cannot be read."""
    return read_manifest(blobs, file_location(place, name, "table.json"), Generation, _FORMAT)


def current(blobs: Blobs, place: str) -> Pointer | None:
    """What the last pointer says; None where there is none yet."""
    return current_pointer(blobs, place, Pointer)


def is_switched(blobs: Blobs, place: str, name: str) -> bool:
    """Whether it is or was the current one."""
    return any(each.generation == name for each in pointers_newest_first(blobs, place, Pointer))


def switch(blobs: Blobs, place: str, name: str) -> None:
    """Make it the current one, once; files of those that were replaced before are deleted."""
    while not is_switched(blobs, place, name):
        if add_pointer(blobs, place, lambda number: Pointer(name, number)):
            break
    delete_replaced(blobs, place, Pointer)


class FolderTables:
    """A folder or a prefix of a bucket."""

    def __init__(self, blobs: Blobs, place: str) -> None:
        self._blobs, self._place = blobs, place

    def is_switched(self, name: str) -> bool:
        """Whether a generation is or was the current one."""
        return is_switched(self._blobs, self._place, name)

    def commit(self, asked: Generation, fill: Callable[[TableWriter], None]) -> Generation:
        """Build and switch, each once. Raises TryLater for a full disk."""
        made = build_generation(self._blobs, self._place, asked, fill)
        switch(self._blobs, self._place, made.name)
        return made


def build_generation(blobs: Blobs, place: str, asked: Generation, fill: Callable[[TableWriter], None]) -> Generation:
    """The generation of that name, which may be there already; `fill` adds the rows. Raises TryLater for a full disk.

    Its files come first, under names of this attempt, and its manifest last: a reader sees all of it, or nothing.
    """
    began_s = time.monotonic()
    with _alone(place), _staging(blobs, place, asked.name) as folder:
        if (found := read_generation(blobs, place, asked.name)) is not None:
            return found
        writer = TableWriter(folder)
        try:
            fill(writer)
            writer.finish()
        finally:
            writer.discard()
        attempt = uuid.uuid4().hex[:8]
        staged = sorted(folder.iterdir())
        sizes = {f"{attempt}/{path.name}": path.stat().st_size for path in staged}
        made = msgspec.structs.replace(
            asked,
            **writer.facts(),
            files=sizes,
            checksums={name: ReadFile(folder / name).checksum() for name in (SLOTS, STARTS)},
            build_s=time.monotonic() - began_s,
        )
        for path, name in zip(staged, sizes, strict=True):
            blobs.publish(path, file_location(place, asked.name, name))
    manifest = msgspec.json.format(msgspec.json.encode(made), indent=1)
    if blobs.create(file_location(place, asked.name, "table.json"), manifest):
        return made
    for name in sizes:  # somebody else was first
        blobs.delete(file_location(place, asked.name, name))
    return read_generation(blobs, place, asked.name) or made


@contextlib.contextmanager
def _alone(place: str) -> Iterator[None]:
    """The only builder at a place of this machine, so that what others left is nobody's. A bucket needs none."""
    if "://" in place:
        yield
        return
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".build.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _staging(blobs: Blobs, place: str, name: str) -> Iterator[Path]:
    """A folder of our own beside the generations."""
    try:
        beside = blobs.staging(f"{place}/table")
        if "://" not in place:
            for left in beside.glob("*-????????"):  # by a build that was killed
                shutil.rmtree(left, ignore_errors=True)
        folder = beside / f"{name}-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TryLater(f"the disk with the answers {place} is full: free some disk space", _DELAY_S) from error
        raise
