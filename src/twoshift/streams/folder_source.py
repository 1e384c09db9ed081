"""A folder or a bucket prefix that keeps growing: each file is read once, when nobody writes to it any more."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from twoshift.batch.folder import is_below
from twoshift.batch.inputs import InputFile, Piece, ShardTarget, cut
from twoshift.batch.inputs.file import known_encoding, named_encoding
from twoshift.batch.inputs.patterns import is_hidden, is_pattern, matcher, pattern_folder
from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.ports import Blob, Blobs
from twoshift.streams.source import Age, Arrived, Position, Waiting
from twoshift.units import counted

__all__ = ["FolderSource", "SeenFile", "check_is_there"]

_log = logging.getLogger(__name__)
_CUT = ShardTarget(8192)  # never another: how far a file was read is told in these pieces
_LOOK_EVERY_S = 0.25  # at the most often
_LISTING_SHARE = 0.1  # of the time, at the most, that is spent on listing
_GIVE_UP_S = 60.0  # after which a file that cannot be read, and does not change, is a dead letter
_ROW_BYTES = 100.0  # until some were read
_ONCE = "a stream reads each file once: put new rows into a new file"


def check_is_there(place: str) -> None:
    """Raises InvalidInput for a local folder that is not there: a run that ends would find nothing in it."""
    if not _is_there(place):
        raise InvalidInput("source", place, "a folder that exists; without --once, the stream waits for the folder")


class SeenFile(msgspec.Struct, frozen=True, array_like=True):
    """How far a file was read; of one that could not be read there is nothing."""

    location: str
    identity: str
    upto: int  # where its next piece begins
    is_done: bool
    is_dead: bool = False  # it could not be read; where it is not done: its rest is gone, and was reported


@dataclass(slots=True)
class _Found:
    """A file that was listed and is not read."""

    blob: Blob
    since_s: float  # when it was first listed as it is now
    problem: str = ""  # why it cannot be read


@dataclass(slots=True)
class _Reading:
    """A file that is read, and its pieces that are left."""

    file: InputFile
    found: _Found
    pieces: deque[Piece] = field(default_factory=deque[Piece])


class FolderSource:
    """A StreamSource."""

    needs_all_marks = True

    def __init__(
        self,
        place: str,
        blobs_for: Callable[[str], Blobs],
        output: str,
        input_format: str | None = None,
        settle_s: float = 2.0,
    ) -> None:
        """`settle_s` is how long a local file has to stay as it is; objects of a bucket appear whole."""
        self.name, self._blobs_for, self._output, self._format = place, blobs_for, output, input_format
        self._blobs = blobs_for(place)
        self._settle_s = 0.0 if "://" in place else settle_s
        self._prefix = pattern_folder(place) if is_pattern(place) else f"{place.rstrip('/')}/"
        self._matches = matcher(place) if is_pattern(place) else None
        self._seen: dict[str, SeenFile] = {}
        self._partly: dict[str, SeenFile] = {}  # an earlier run has begun them, and this one has not gone on
        self._lost: list[tuple[SeenFile, str, str]] = []  # those that are gone, from where on, and why; not told yet
        self._is_missing = False
        self._found: dict[str, _Found] = {}  # listed, and not read yet
        self._ready: deque[_Found] = deque()  # settled, in the order of their names
        self._reading: _Reading | None = None
        self._row_bytes = _ROW_BYTES
        self._next_look_s = 0.0
        self._changed: set[str] = set()  # after they were read

    def begin(self, marks: Sequence[Position]) -> None:
        """What was read is what any part says."""
        for mark in marks:
            for each in msgspec.convert(mark["files"], list[SeenFile]):
                self._seen[each.location] = each
        self._partly = {name: each for name, each in self._seen.items() if not each.is_done and not each.is_dead}

    def take(self, most_rows: int, most_bytes: int, wait_s: float) -> Arrived | None:
        """Pieces of the next files, as many as fit; at least one."""
        until_s = time.monotonic() + wait_s
        while True:
            if (arrived := self._next(most_rows, most_bytes)) is not None:
                return arrived
            now_s = time.monotonic()
            if (dead := self._dead(now_s)) is not None:
                return dead
            if now_s >= self._next_look_s:
                self._look(now_s)
                continue
            if now_s >= until_s:
                return None
            time.sleep(max(0.0, min(until_s, self._next_look_s) - now_s))

    def waiting(self) -> Waiting:
        """By the size of the files, where nobody has looked into them."""
        reading = 0.0 if self._reading is None else sum(self._rows(each) for each in self._reading.pieces)
        files = (*self._ready, *(each for each in self._found.values() if not each.problem))
        rows = reading + sum(each.blob.size_bytes for each in files) / self._row_bytes
        now_s = time.monotonic()
        return Waiting(rows, max((self._age(each, now_s) for each in files), default=0.0), self._notice())

    def merged(self, positions: Sequence[Position]) -> Position:
        """The last word on each file."""
        last: dict[str, SeenFile] = {}
        for position in positions:
            last |= {each.location: each for each in msgspec.convert(position["files"], list[SeenFile])}
        return {"files": msgspec.to_builtins(list(last.values()))}

    def close(self) -> None:
        """Nothing is open."""

    # Which files

    def _look(self, now_s: float) -> None:
        try:
            listed = self._blobs.list(self._prefix)
        except NotFound:
            listed = []
        self._look_for_place(bool(listed))
        known = {each.blob.location for each in self._ready}
        current = dict[str, _Found]()
        for blob in listed:
            if blob.location in known or not self._is_new(blob):
                continue
            found = self._found.get(blob.location)
            if found is None or found.blob.identity != blob.identity:
                found = _Found(blob, now_s)
            current[blob.location] = found
        settled = [each for each in current.values() if not each.problem and now_s - each.since_s >= self._settle_s]
        self._ready.extend(settled)
        for each in settled:
            del current[each.blob.location]
        self._found = current
        self._look_for_lost(listed)
        took_s = time.monotonic() - now_s
        self._next_look_s = now_s + max(_LOOK_EVERY_S, took_s / _LISTING_SHARE)

    def _look_for_place(self, has_files: bool) -> None:
        is_missing = not has_files and not _is_there(self._prefix)
        if is_missing and not self._is_missing:
            _log.warning("%s does not exist yet: the stream waits for the folder", self._prefix)
        self._is_missing = is_missing

    def _look_for_lost(self, listed: Sequence[Blob]) -> None:
        """Files that an earlier run has read in part, and that are gone; with their folder they may come back."""
        if not self._partly or self._is_missing:
            return
        there = {blob.location: blob.identity for blob in listed if blob.location in self._partly}
        for location, seen in list(self._partly.items()):
            if there.get(location) == seen.identity:
                continue
            file = InputFile(location, 0, seen.identity, *named_encoding(location, self._format))
            upto = f"{'byte' if file.is_cut_by_bytes else 'row'} {seen.upto:,}"
            what = "replaced" if location in there else "deleted"
            gone = f"{location} was {what} after the stream had read it up to {upto}"
            why = f"{gone}: put the unread rows into a file with another name"
            _log.warning("%s", why)
            self._seen[location] = msgspec.structs.replace(seen, is_dead=True)
            self._lost.append((self._seen[location], f"{location} after {upto}", why))
            del self._partly[location]

    def _notice(self) -> str:
        if self._is_missing:
            return f"{self._prefix} does not exist yet: the stream waits for the folder"
        said, problems = list[str](), [each.problem for each in self._found.values() if each.problem]
        if problems:
            said.append(f"{counted(len(problems), 'file')} cannot be read yet: {problems[0]}")
        if self._changed:
            files = counted(len(self._changed), "file has", "files have")
            said.append(f"{files} changed after being read: {min(self._changed)}; {_ONCE}")
        return "; ".join(said)

    def _is_new(self, blob: Blob) -> bool:
        if blob.size_bytes == 0 or not self._is_input(blob.location):
            return False
        seen = self._seen.get(blob.location)
        if seen is None:
            return True
        if seen.identity == blob.identity:
            return not seen.is_done and not self._is_reading(blob.location)
        if not seen.is_done:
            return False  # its rest is gone: the new file may have rows that were read
        if seen.is_dead:
            return True  # it was written again
        if blob.location not in self._changed:
            self._changed.add(blob.location)
            _log.warning("%s has changed since it was read; %s", blob.location, _ONCE)
        return False

    def _is_reading(self, location: str) -> bool:
        return self._reading is not None and self._reading.file.location == location

    def _is_input(self, location: str) -> bool:
        below = location.removeprefix(self._prefix)
        if is_hidden(below) or is_below(location, self._output):
            return False
        if self._matches is not None and not self._matches.fullmatch(location):
            return False
        return self._format is not None or known_encoding(below) is not None

    # Their rows

    def _next(self, most_rows: int, most_bytes: int) -> Arrived | None:
        files, pieces, seen, ages = list[InputFile](), list[Piece](), dict[str, SeenFile](), list[Age]()
        rows = size = 0.0
        for reading, piece in self._pieces():
            each_rows = self._rows(piece)
            if pieces and (rows + each_rows > most_rows or size + piece.bytes > most_bytes):
                break
            reading.pieces.popleft()
            if not files or files[-1] is not reading.file:
                files.append(reading.file)
            _append(pieces, msgspec.structs.replace(piece, file=len(files) - 1))
            rows, size = rows + each_rows, size + piece.bytes
            ages.append(Age(self._age(reading.found, time.monotonic()), max(1, int(each_rows))))
            seen[reading.file.location] = self._read_upto(reading)
        if not pieces:
            return None
        self._seen |= seen
        if rows:
            self._row_bytes = 0.5 * (self._row_bytes + size / rows)
        has_more = bool(self._ready) or (self._reading is not None and bool(self._reading.pieces))
        position = {"files": msgspec.to_builtins(list(seen.values()))}
        return Arrived(tuple(files), tuple(pieces), max(1, int(rows)), int(size), position, tuple(ages), has_more)

    def _pieces(self) -> Iterator[tuple[_Reading, Piece]]:
        """What is next, until nothing is left; who takes a piece removes it."""
        while True:
            if self._reading is None or not self._reading.pieces:
                self._reading = self._opened()
                if self._reading is None:
                    return
                continue
            yield self._reading, self._reading.pieces[0]

    def _opened(self) -> _Reading | None:
        """The next file that can be read."""
        while self._ready:
            found = self._ready.popleft()
            blob = found.blob
            try:
                file = InputFile(
                    blob.location, blob.size_bytes, blob.identity, *named_encoding(blob.location, self._format)
                )
                shards = cut([file], self._blobs_for, _CUT)
            except (Broken, InvalidInput) as error:
                found.problem = str(error)
                self._found[blob.location] = found
                _log.warning("%s cannot be read yet: %s", blob.location, error)
                continue
            seen = self._seen.get(blob.location)
            start = 0 if seen is None else seen.upto
            self._partly.pop(blob.location, None)
            pieces = deque(piece for shard in shards for piece in shard if piece.start >= start)
            if pieces:
                return _Reading(file, found, pieces)
            self._seen[blob.location] = SeenFile(blob.location, blob.identity, 0, is_done=True)  # it has no rows
        return None

    def _read_upto(self, reading: _Reading) -> SeenFile:
        file, left = reading.file, reading.pieces
        return SeenFile(file.location, file.identity, left[0].start if left else 0, is_done=not left)

    def _dead(self, now_s: float) -> Arrived | None:
        """What is gone, and files that cannot be read and have not changed for so long that nobody writes to them."""
        dead = [seen for seen, _, _ in self._lost]
        why = {where: reason for _, where, reason in self._lost}
        for location, found in list(self._found.items()):
            if found.problem and self._age(found, now_s) >= _GIVE_UP_S:
                del self._found[location]
                dead.append(SeenFile(location, found.blob.identity, 0, is_done=True, is_dead=True))
                why[location] = found.problem
        if not dead:
            return None
        self._lost.clear()
        self._seen |= {each.location: each for each in dead}
        return Arrived((), (), 0, 0, {"files": msgspec.to_builtins(dead)}, (), unreadable=why)

    def _rows(self, piece: Piece) -> float:
        return piece.rows if piece.rows is not None else max(1.0, piece.bytes / self._row_bytes)

    def _age(self, found: _Found, now_s: float) -> float:
        """By this machine's clock since it was listed, or by the file's own time where that is longer ago."""
        written_s = found.blob.written_s
        return max(now_s - found.since_s, 0.0 if written_s <= 0 else time.time() - written_s, 0.0)


def _is_there(place: str) -> bool:
    """Whether a local folder is; in a bucket there are no folders."""
    folder = pattern_folder(place) if is_pattern(place) else place
    return "://" in place or Path(folder or ".").exists()


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Pieces that lie side by side are read as one."""
    last = pieces[-1] if pieces else None
    if last is None or last.file != piece.file or last.stop != piece.start:
        pieces.append(piece)
        return
    rows = None if last.rows is None or piece.rows is None else last.rows + piece.rows
    pieces[-1] = Piece(last.file, last.start, piece.stop, rows, last.bytes + piece.bytes)
