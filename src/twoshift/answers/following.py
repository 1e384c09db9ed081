"""The current table of answers, open, while it may be replaced: a new one is opened beside the old one, then used."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from twoshift.answers.generations import (
    Generation,
    Pointer,
    current,
    file_location,
    read_generation,
    table_place,
)
from twoshift.answers.table import AnswerTable
from twoshift.closable_thread import ClosableThread
from twoshift.config import home
from twoshift.errors import Broken, TwoshiftError
from twoshift.ports import Blobs

__all__ = ["BuildTable", "FollowedAnswers", "Follower", "OpenAnswers", "open_answers"]

_logger = logging.getLogger("twoshift.answers")
_EVERY_S = 2.0
_REST_PER_BUILD = 9.0  # a stream's table is built in a tenth of the time, however large it is
_CLOSE_S = 5.0  # for a look that is under way; one that builds is left behind
BlobsFor = Callable[[str], Blobs]
BuildTable = Callable[[str, str, str], object]  # of an output folder, by a key, at a place; raises why it cannot


@dataclass(frozen=True, slots=True)
class OpenAnswers:
    """One generation; any thread may ask it, as long as it is held."""

    pointer: Pointer
    generation: Generation
    table: AnswerTable


@dataclass(slots=True)
class FollowedCounts:
    """What an operator sees."""

    swaps: int = 0
    problems: int = 0  # looks that found something that cannot be served


class Follower(ABC):
    """Looks now and then whether there is something new, in a thread of its own."""

    def __init__(self, location: str, key: str, every_s: float = _EVERY_S) -> None:
        self.location, self.key, self._every_s = location.rstrip("/"), key, every_s
        self.why_none = f"the precomputed answers {location} are being opened"
        self.counts = FollowedCounts()
        self._thread = ClosableThread(self._follow, "twoshift-answers", _CLOSE_S)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def close(self) -> None:
        """No more."""
        self._thread.close()

    @abstractmethod
    def look(self) -> None:
        """Whatever there is now."""

    def _opened(self, made: Generation) -> None:
        """Another one answers from now on."""
        self.why_none = ""
        self.counts.swaps += 1
        left_out = ", ".join(f"{count:,} {why}" for why, count in made.left_out.items())
        more = f"; rows left out: {left_out}" if left_out else ""
        _logger.info(
            "the precomputed answers %s are now at generation %s, with %d keys from the column %s%s",
            self.location, made.name, made.rows, made.key, more,
        )  # fmt: skip

    def _tell(self, why: str) -> None:
        """Once, and not every two seconds."""
        self.counts.problems += 1
        if why != self.why_none:
            _logger.warning("%s", why)
        self.why_none = why

    def _tell_gone(self) -> None:
        what = "were removed and are no longer served" if self.counts.swaps else "do not exist yet"
        self._tell(f"the precomputed answers {self.location} {what}")

    def _follow(self, closed: Event) -> None:
        self.look()
        while not closed.wait(self._every_s):
            self.look()


class FollowedAnswers(Follower):
    """A table of files: a new generation is opened beside the old one."""

    def __init__(
        self, location: str, key: str, blobs_for: BlobsFor, build: BuildTable | None, every_s: float = _EVERY_S
    ) -> None:
        """`build` makes the table of an output folder that has none; None: somebody else does."""
        super().__init__(location, key, every_s)
        self._blobs_for, self._build = blobs_for, build
        self._open: OpenAnswers | None = None
        self._damaged = ""  # why what is open is not used
        self._built_from: tuple[str, ...] = ()  # the output as it was when its table was last built
        self._next_build_s = 0.0  # on the monotonic clock

    def close(self) -> None:
        """No more."""
        super().close()
        self._open = None

    def now(self) -> OpenAnswers | None:
        """The generation that is open; None where there is none, by `why_none`."""
        return None if self._damaged else self._open

    def look(self) -> None:
        """Open what is current, if it is another one; what is open stays where that fails, and goes with its files."""
        try:
            place = self._place()
            pointer = current(self._blobs_for(place), place)
            if pointer is None:
                self._gone()
            elif self._open is None or pointer != self._open.pointer or self._open.table.is_changed:
                again = _how_again(place, is_in_output=place != self.location)
                self._use(open_answers(self._blobs_for(place), place, pointer, self.key, again), again)
            elif self._damaged:
                self._tell(self._damaged)
        except (TwoshiftError, OSError, ValueError) as error:
            self._tell(f"the precomputed answers {self.location} cannot be used: {error}")

    def _place(self) -> str:
        """Where the generations lie; the table of an output folder is built where it is missing or another's."""
        blobs = self._blobs_for(self.location)
        if current(blobs, self.location) is not None:
            return self.location
        place = table_place(self.location, self.key)
        if self._build is None:
            return place
        seen = self._output_now(blobs)
        if seen and seen != self._built_from and time.monotonic() >= self._next_build_s:
            began_s = time.monotonic()
            self._build(self.location, self.key, place)
            self._built_from, ended_s = seen, time.monotonic()
            self._next_build_s = ended_s + (ended_s - began_s) * _REST_PER_BUILD
        return place

    def _output_now(self, blobs: Blobs) -> tuple[str, ...]:
        """What another content would make another: of a job that has ended, or the parts of a stream; else nothing."""
        plan, success = (blobs.stat(f"{self.location}/{name}") for name in ("_twoshift/plan.json", "_SUCCESS"))
        if plan is None:
            return ()
        if success is not None:
            return tuple(f"{each.identity} {each.written}" for each in (plan, success))
        names = tuple(sorted(blobs.names(self.location)))
        return (f"{plan.identity} {plan.written}", *names) if names else ()

    def _use(self, found: OpenAnswers, again: str) -> None:
        """From now on, unless it is damaged: then nothing, until its files are others."""
        try:
            found.table.check(found.generation.checksums)
        except Broken as error:
            why = f"the precomputed answers {self.location} cannot be used, because {error}"
            self._damaged = f"{why}. To build the table again, {again}"
            self._open = found
            self._tell(self._damaged)
            return
        self._open = found
        self._damaged = ""
        self._opened(found.generation)
        found.table.preload()

    def _gone(self) -> None:
        self._open, self._damaged, self._built_from = None, "", ()
        self._tell_gone()


def open_answers(blobs: Blobs, place: str, pointer: Pointer, key: str, again: str = "run the job again") -> OpenAnswers:
    """A generation, whole; raises Broken where it is not, or has another key. `again`: how to get the table anew."""
    half_there = f". If the table is still being copied, wait until the copy is complete. Otherwise {again}"
    generation = read_generation(blobs, place, pointer.generation)
    if generation is None:
        raise Broken(f"generation {pointer.generation} in {place} has no manifest{half_there}")
    if generation.key != key:
        raise Broken(
            f"the answers in {place} have the key column {generation.key}, not {key}: start the server with --key "
            f"{generation.key}"
        )
    return OpenAnswers(pointer, generation, AnswerTable(_local(blobs, place, generation, half_there)))


def _local(blobs: Blobs, place: str, generation: Generation, half_there: str) -> Path:
    """The folder of its files on this machine, whole; fetched where they lie elsewhere."""
    folder = Path(file_location(place, generation.name, ""))
    if "://" in place:
        folder = home() / "answers" / generation.name
        for name, size in generation.files.items():
            if not (folder / name).exists() or (folder / name).stat().st_size != size:
                _fetch(blobs, file_location(place, generation.name, name), folder / name)
    for name, size in generation.files.items():
        there = (folder / name).stat().st_size if (folder / name).exists() else None
        if there != size:
            found = "is missing" if there is None else f"has {there:,} bytes, expected {size:,}"
            raise Broken(f"{folder / name} {found}{half_there}")
    return folder / next(iter(generation.files)).partition("/")[0]


def _how_again(place: str, is_in_output: bool) -> str:
    """How to get a table anew: the server builds that of an output folder, a job builds any other."""
    if is_in_output:
        return f"delete {place}, so that the server builds the table"
    return f"delete {place} and run the job again with the same --answer-table"


def _fetch(blobs: Blobs, location: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.twoshift-tmp")
    try:
        with blobs.open(location) as source, beside.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
