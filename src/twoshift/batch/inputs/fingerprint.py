"""What files hold, so that one whose time of change alone is another counts as the same."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import msgspec

from twoshift.batch.inputs.file import InputFile
from twoshift.errors import TwoshiftError
from twoshift.ports import Blobs
from twoshift.units import format_bytes

__all__ = ["ContentSums"]

_MOST_FILES, _MOST_BYTES = 10_000, 32 << 30  # of more only the times of change are known
_READ_AT_ONCE, _PIECE_BYTES = 8, 1 << 20
_LOOK_S, _TELL_S = 0.2, 5.0

BlobsFor = Callable[[str], Blobs]


class ContentSums:
    """SHA-256 of whole files, in threads: while a model loads, all of an input's are made."""

    def __init__(self, blobs_for: BlobsFor, tell: Callable[[str], None]) -> None:
        """`tell` gets what takes long."""
        self._blobs_for, self._tell = blobs_for, tell
        self._made: dict[str, Future[str]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._closed = threading.Event()
        self._read_bytes = 0

    def begin(self, files: Sequence[InputFile]) -> None:
        """Files of a disk, from now on; an object in a bucket has an etag instead."""
        total_bytes = sum(file.size_bytes for file in files)
        if len(files) > _MOST_FILES or total_bytes > _MOST_BYTES or any("://" in file.location for file in files):
            return
        self._threads = self._threads or ThreadPoolExecutor(_READ_AT_ONCE, "twoshift-sums")
        for file in files:
            self._made.setdefault(file.location, self._threads.submit(self._sum, file))

    def filled(self, files: Sequence[InputFile], check: Callable[[], None]) -> tuple[InputFile, ...]:
        """The same files with their checksums, once those are made; `check` raises where nobody waits any more."""
        made = {file.location: self._made[file.location] for file in files if file.location in self._made}
        self._await(made.values(), sum(file.size_bytes for file in files), check)
        sums = {location: each.result() for location, each in made.items()}
        return tuple(msgspec.structs.replace(file, fingerprint=sums.get(file.location, "")) for file in files)

    def of(self, file: InputFile) -> str:
        """Of a file as it is now; empty where it cannot be read."""
        if file.size_bytes > _PIECE_BYTES:
            size = format_bytes(file.size_bytes)
            self._tell(f"Checking {file.location} ({size}) against its checksum: its modification time has changed")
        return self._sum(file)

    def close(self) -> None:
        """Nobody waits for any."""
        self._closed.set()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _await(self, made: Iterable[Future[str]], total_bytes: int, check: Callable[[], None]) -> None:
        told_s = time.monotonic()
        while wait(made, _LOOK_S).not_done:
            check()
            if time.monotonic() > told_s + _TELL_S:
                told_s = time.monotonic()
                done = f"{format_bytes(self._read_bytes)} of {format_bytes(total_bytes)}"
                self._tell(f"Computing checksums of the input: {done}")

    def _sum(self, file: InputFile) -> str:
        digest = hashlib.sha256(str(file.size_bytes).encode())
        try:
            with self._blobs_for(file.location).open(file.location) as source:
                while not self._closed.is_set() and (piece := source.read(_PIECE_BYTES)):
                    digest.update(piece)
                    self._read_bytes += len(piece)
        except (OSError, TwoshiftError):
            return ""
        return digest.hexdigest()
