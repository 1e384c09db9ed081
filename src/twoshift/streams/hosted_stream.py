"""A stream on a server: at one replica of its model at a time, at another one when that is gone."""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections import Counter
from dataclasses import dataclass, replace

from twoshift.batch.folder import FolderTaken
from twoshift.batch.job_seats import JobSeat, LaneReplica, LaneWorker, LiveFleet, Payer, Used
from twoshift.errors import Broken, TryLater, TwoshiftError
from twoshift.policy.retries import RetryPolicy
from twoshift.registry.names import parse_ref
from twoshift.streams.commits import OutputGone
from twoshift.streams.dead_letters import DeadLetters
from twoshift.streams.progress import StreamSnapshot
from twoshift.streams.stream_worker import StopStream, StreamEnded, StreamReport, StreamTask
from twoshift.types import Lane

__all__ = ["HostedStream", "StreamEnd"]

_AGAIN = RetryPolicy(0.5, 30.0, math.inf)
_TRIES = 3  # of a run that breaks and has committed nothing since
_TAKEN_S = 1.0  # after which it looks again whether its folder is free
_STOP_S = 10.0  # for a worker whose replica goes; after it the lock of its folder keeps two from writing
_WEIGHT = 1.0  # streams share a device evenly


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended for good: an error, or nothing is left."""

    error: TwoshiftError | None


@dataclass(slots=True)
class _Seated:
    """At a replica."""

    replica: LaneReplica
    seat: JobSeat
    worker: LaneWorker
    heard: queue.SimpleQueue[StreamReport | StreamEnded]
    is_held: bool = False
    stop_asked_s: float | None = None
    gives_up: bool = False  # what is in work

    def is_overdue(self) -> bool:
        """Whether it should have stopped by now."""
        return self.stop_asked_s is not None and time.monotonic() > self.stop_asked_s + _STOP_S


class HostedStream:
    """`tick` is called a few times a second, by one thread, as is all else but `stop`."""

    def __init__(self, stream_id: str, task: StreamTask, fleet: LiveFleet, owner: str) -> None:
        self.id, self.task, self.fleet, self.owner = stream_id, task, fleet, owner
        self.model = fleet.model or task.job.model
        self.last: StreamSnapshot | None = None  # of the run at the last replica
        self.is_told = True  # whether the store knows it
        self.end: StreamEnd | None = None
        self.why_waits = ""  # for people; empty where it runs
        self.remarks: list[str] = []  # for its log
        self._seated: _Seated | None = None
        self._gone = Used()  # of replicas that it has left
        self.has_committed = task.has_committed
        self._version = "1"
        self._is_wanted, self._gives_up = True, False
        self._retry_s, self._failures, self._committed = 0.0, 0, 0

    @property
    def replica(self) -> LaneReplica | None:
        """Where it is."""
        return None if self._seated is None else self._seated.replica

    @property
    def is_wanted(self) -> bool:
        """Whether it is to run."""
        return self._is_wanted

    @property
    def is_idle(self) -> bool:
        """Whether nothing works on it."""
        return self._seated is None

    @property
    def payer(self) -> Payer:
        """Who has had the device time, of which version."""
        return self.owner, self.model, self._version

    def used(self) -> Used:
        """What it has had of the devices."""
        return self._gone if self._seated is None else self._gone.plus(self._seated.seat.used())

    def stop(self, now: bool = False) -> None:
        """Nobody wants it any more: windows in work are committed, or given up."""
        self._is_wanted, self._gives_up = False, self._gives_up or now

    def go_on(self) -> None:
        """It is wanted again."""
        self._is_wanted, self._gives_up = True, False

    def tick(self, withheld: str, streams_at: Counter[LaneReplica]) -> None:
        """Hear what it says, and put it where it can run; `streams_at` tells how many streams each replica has."""
        seated = self._seated
        if seated is not None:
            self._hear(seated)
        if self._seated is None:
            self._place(streams_at, withheld)
        else:
            self._look_after(self._seated, withheld)

    def join(self, timeout_s: float) -> bool:
        """Wait for its end after `stop`; whether it has ended."""
        seated = self._seated
        if seated is None:
            return True
        self._ask_to_stop(seated, now=self._gives_up or seated.is_held)
        seated.worker.join(timeout_s)
        is_over = not seated.worker.is_alive()
        self._hear(seated)
        self._leave()
        return is_over

    # In the host's thread

    def _place(self, streams_at: Counter[LaneReplica], withheld: str) -> None:
        if not self._is_wanted or self.end is not None or time.monotonic() < self._retry_s:
            return
        self.why_waits = self.fleet.why_away() or self.fleet.why_dead() or withheld
        replicas = () if self.why_waits else self.fleet.replicas()
        if not replicas:
            self.why_waits = self.why_waits or f"no replica of {self.model} is ready"
            return
        replica = min(replicas, key=lambda each: streams_at[each])
        streams_at[replica] += 1
        heard = queue.SimpleQueue[StreamReport | StreamEnded]()
        seat = replica.place(_WEIGHT, Lane.MICRO)
        task = replace(self.task, has_committed=self.has_committed)
        self._seated = _Seated(replica, seat, seat.work(task, self.id, heard.put), heard)
        self._committed = 0

    def _look_after(self, seated: _Seated, withheld: str) -> None:
        away = self.fleet.why_away() or (
            "" if seated.replica in self.fleet.replicas() else "the replica of the stream has ended"
        )
        if seated.replica.gone or (away and seated.is_overdue()):
            self._retry(f"{seated.replica.gone or away}; the stream continues on another replica", 0.0)
            self._drop(seated)
        elif away or not self._is_wanted:
            self.why_waits = away
            self._ask_to_stop(seated, now=bool(away) or self._gives_up or bool(withheld))
        else:
            self.why_waits = withheld
            if bool(withheld) is not seated.is_held:
                seated.is_held = bool(withheld)
                (seated.seat.hold if withheld else seated.seat.release)()

    def _ask_to_stop(self, seated: _Seated, now: bool) -> None:
        if seated.stop_asked_s is None or (now and not seated.gives_up):
            seated.stop_asked_s, seated.gives_up = time.monotonic(), now
            seated.worker.tell(None if now else StopStream())

    def _hear(self, seated: _Seated) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                message = seated.heard.get_nowait()
                if isinstance(message, StreamReport):
                    self._remark(message.now)
                    self.last, self.is_told = message.now, False
                    self.has_committed = self.has_committed or message.now.windows > 0 or message.now.parts > 0
                    ref = parse_ref(message.version)
                    self._version = "1" if ref is None or ref.version is None else str(ref.version)
                    if message.now.windows > self._committed:
                        self._failures, self._committed = 0, message.now.windows
                else:
                    self._ended(message)

    def _remark(self, now: StreamSnapshot) -> None:
        """What is new since it last said something."""
        if now.notice and now.notice != (self.last and self.last.notice):
            self.remarks.append(now.notice)
        if now.dead_letters and not (self.last and self.last.dead_letters):
            folder = DeadLetters.folder_of(self.task.job.output)
            self.remarks.append(f"this run has written its first dead letters, with the reason for each, to {folder}/")

    def _ended(self, message: StreamEnded) -> None:
        self._leave()
        error = message.error
        if error is None or (message.was_stopped and isinstance(error, Broken)):  # its engine was closed under it
            self.end = None if message.was_stopped else StreamEnd(None)
        elif isinstance(error, TryLater | FolderTaken):
            self._retry(str(error), _TAKEN_S)
        elif isinstance(error, OutputGone):
            self.has_committed = True
            self.end = StreamEnd(OutputGone.on_server(self.task.job.output))
        elif isinstance(error, Broken) and self._failures + 1 < _TRIES:
            self._failures += 1
            self._retry(str(error), _AGAIN.pause_s(self._failures, 0.0) or _AGAIN.longest_s)
        else:
            self.end = StreamEnd(error)

    def _retry(self, why: str, wait_s: float) -> None:
        self.why_waits, self._retry_s = why, time.monotonic() + wait_s

    def _leave(self) -> None:
        if (seated := self._seated) is not None:
            self._drop(seated)
            seated.seat.leave()

    def _drop(self, seated: _Seated) -> None:
        self._gone = self._gone.plus(seated.seat.used())
        self._seated = None
