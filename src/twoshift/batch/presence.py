"""A process that works on a piece of a job, as the others see it: a small file that changes while it lives."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid

import msgspec

from twoshift.decodable import decodable
from twoshift.errors import NotFound, TwoshiftError
from twoshift.known_process import is_running
from twoshift.ports import Blobs

__all__ = ["PieceProcess", "Presence", "Seen", "processes_in"]

_FOLDER = "_twoshift/pieces"
_NAME_DIGITS = 12


@decodable
class PieceProcess(msgspec.Struct, frozen=True):
    """What it tells the others."""

    piece: str
    host: str
    pid: int
    namespace: str = ""  # in which its number counts
    beat: int = 0  # one more each time: the file is another one
    is_over: bool = False  # it has ended, and has nothing in work
    dead: dict[int, str] = {}  # shards that it could not do, and why

    @classmethod
    def here(cls, piece: str) -> PieceProcess:
        """This process."""
        try:
            namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it is no path
        except OSError:  # not Linux
            namespace = ""
        return cls(piece, socket.gethostname(), os.getpid(), namespace)

    def is_known_dead(self, here: PieceProcess) -> bool:
        """Whether it ran on this machine, or in this pod before its restart, and is no more."""
        if self.host != here.host:
            return False
        if self.namespace != here.namespace:  # a container numbers its processes from 1; a pod's name is its host's
            return self.piece == here.piece
        return self.pid == here.pid or not is_running(self.pid)


class Seen(msgspec.Struct, frozen=True):
    """Another process, with its sign of life."""

    name: str
    sign: str
    process: PieceProcess


class Presence:
    """This process; a thread of its own writes the file, so that a long step does not make it look dead."""

    def __init__(self, output: Blobs, folder: str, piece: str, every_s: float) -> None:
        self.name = f"{piece.partition('/')[0].zfill(6)}-{uuid.uuid4().hex[:_NAME_DIGITS]}"
        self._output, self._location = output, f"{folder.rstrip('/')}/{_FOLDER}/{self.name}.json"
        self.here = self._process = PieceProcess.here(piece)
        self._every_s, self._closed = every_s, threading.Event()
        self._lock = threading.Lock()  # guards `_process`, and the order in which it is written
        self._thread = threading.Thread(target=self._live, name="twoshift-piece", daemon=True)

    def start(self) -> None:
        """Before the first claim: whoever finds that finds this, too. Raises what the bucket does."""
        self._write()
        self._thread.start()

    def tell_dead(self, dead: dict[int, str]) -> None:
        """These shards could not be done, and why."""
        if dead != self._process.dead:
            self._write(dead=dead)

    def close(self) -> None:
        """It has ended: others take over at once what it leaves."""
        self._closed.set()
        if not self._thread.is_alive():
            return
        self._thread.join()
        with contextlib.suppress(TwoshiftError, OSError):  # they take it over later
            self._write(is_over=True)

    def _live(self) -> None:
        while not self._closed.wait(self._every_s):
            with contextlib.suppress(TwoshiftError, OSError):  # the next one may be heard
                self._write()

    def _write(self, **changed: object) -> None:
        with self._lock:
            self._process = msgspec.structs.replace(self._process, beat=self._process.beat + 1, **changed)
            self._output.write(self._location, msgspec.json.encode(self._process))


def processes_in(output: Blobs, folder: str, known: dict[str, Seen]) -> dict[str, Seen]:
    """All that have worked on the job, by name; those that have not changed since they were known are not read."""
    try:
        listed = output.list(f"{folder.rstrip('/')}/{_FOLDER}/")
    except NotFound:
        return {}
    found = dict[str, Seen]()
    for blob in listed:
        name = blob.location.rpartition("/")[2].removesuffix(".json")
        before = known.get(name)
        if before is not None and before.sign == blob.identity:
            found[name] = before
            continue
        with contextlib.suppress(msgspec.DecodeError):  # damaged: it is gone after a while
            process = msgspec.json.decode(output.read(blob.location) or b"", type=PieceProcess)
            found[name] = Seen(name, blob.identity, process)
    return found
