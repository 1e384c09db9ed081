"""A stream at a replica that serves: its rows are in the micro lane, after live requests and before jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from twoshift.batch.device import WorkDevice
from twoshift.batch.job_seats import Seat
from twoshift.batch.settings import JobSettings
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import described
from twoshift.errors import Broken, TwoshiftError
from twoshift.ports import Blobs
from twoshift.streams.known import outlet_for, source_for
from twoshift.streams.progress import StreamSnapshot
from twoshift.streams.settings import StreamSettings
from twoshift.streams.stream import Stream, StreamParts

__all__ = ["StopStream", "StreamEnded", "StreamReport", "StreamTask", "StreamWorker"]

_REPORT_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class StopStream:
    """To a worker: commit what is in work and end."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """From a worker: how it stands."""

    now: StreamSnapshot
    version: str  # of the model, as it was loaded


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """From a worker: it is over, because of an error, because it was told to stop, or because nothing is left."""

    error: TwoshiftError | None
    was_stopped: bool


@dataclass(frozen=True, slots=True)
class StreamTask:
    """What a stream does at a replica; it goes to the replica's process."""

    settings: StreamSettings
    job: JobSettings
    blobs_for: Callable[[str], Blobs]  # what it may touch
    has_committed: bool = False  # at another replica, or before a restart

    def begin(
        self, seat: Seat, name: str, send: Callable[[StreamReport | StreamEnded], None], ended: Callable[[], None]
    ) -> StreamWorker:
        """Begin, or go on behind what is committed."""
        return StreamWorker(self, seat.device, seat.owner, send, ended)


class StreamWorker:
    """A thread with a stream."""

    def __init__(
        self,
        task: StreamTask,
        device: WorkDevice,
        owner: BlockOwner,
        send: Callable[[StreamReport | StreamEnded], None],
        ended: Callable[[], None],
    ) -> None:
        self._task, self._device, self._owner, self._send, self._ended = task, device, owner, send, ended
        self._lock = threading.Lock()  # guards the next two
        self._stream: Stream | None = None
        self._is_stopped = False
        self._due_s = 0.0
        self._thread = threading.Thread(target=self._work, name="twoshift-stream", daemon=True)
        self._thread.start()

    def tell(self, message: StopStream | None) -> None:
        """Commit what is in work and end; None: give it up."""
        with self._lock:
            self._is_stopped = True
            if self._stream is not None:
                self._stream.stop(now=message is None)

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        """A thread cannot be killed."""
        return self._thread.is_alive()

    def _work(self) -> None:
        error: TwoshiftError | None = None
        try:
            stream = self._made()
            if stream is not None:
                self._report(stream.run(self._seldom))
        except TwoshiftError as found:
            error = found
        except Exception as found:  # one stream's failure is its own
            error = Broken(described(found))
        self._send(StreamEnded(error, self._is_stopped))
        self._ended()

    def _made(self) -> Stream | None:
        task = self._task
        source = source_for(task.settings, task.job, task.blobs_for)
        parts = StreamParts(
            source, lambda _: self._device, task.blobs_for, outlet_for(task.settings), task.has_committed, self._owner
        )  # fmt: skip
        with self._lock:
            if not self._is_stopped:
                self._stream = Stream(task.settings, task.job, parts)
            return self._stream

    def _seldom(self, now: StreamSnapshot) -> None:
        """A stream tells it at every step."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _REPORT_EVERY_S
            self._report(now)

    def _report(self, now: StreamSnapshot) -> None:
        self._send(StreamReport(now, self._device.info.model))
