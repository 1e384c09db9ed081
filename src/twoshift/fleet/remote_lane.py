"""Jobs and streams at a replica in another process, as the front sees them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Protocol, assert_never

from twoshift.batch.job_seats import SeatTask, Used
from twoshift.fleet.control import (
    Follow,
    Hold,
    Leave,
    Resume,
    TakePlace,
    ToChild,
    UsageReport,
    Work,
    WorkEnded,
    WorkSaid,
    WorkTold,
)
from twoshift.fleet.wire import Heartbeat
from twoshift.types import Lane

__all__ = ["Remote", "RemoteReplica"]

_numbers = itertools.count(1)  # of places and of workers, in this process


class ReplicaChannel(Protocol):
    """A way to a replica."""

    def send(self, message: ToChild) -> None:
        """From any thread; lost where it is gone."""
        ...


class Remote(Protocol):
    """A replica as its front knows it."""

    number: int
    beat: Heartbeat | None
    gone: str  # how it ended; empty where it has not

    @property
    def child(self) -> ReplicaChannel: ...


class RemoteReplica:
    """A replica whose background lanes jobs and streams may use."""

    def __init__(self, member: Remote) -> None:
        self.member = member
        self.places: dict[int, RemotePlace] = {}
        self.workers: dict[int, RemoteWorker] = {}

    @property
    def gone(self) -> str:
        """How it ended; empty where it has not."""
        return self.member.gone

    def live_device_s(self) -> float:
        """That live rows have had of its device, as it said last."""
        return 0.0 if self.member.beat is None else self.member.beat.stats.lanes[Lane.ONLINE].device_s

    def place(self, weight: float, lane: Lane = Lane.BATCH) -> RemotePlace:
        """A place in a background lane."""
        number = next(_numbers)
        made = self.places[number] = RemotePlace(self, number)
        self.member.child.send(TakePlace(number, weight, lane))
        return made

    def hear(self, message: UsageReport | WorkSaid | WorkEnded) -> None:
        """What the replica says of them; in the supervisor's thread."""
        match message:
            case UsageReport(number, used):
                if number in self.places:
                    self.places[number].had = used
            case WorkSaid(number, said):
                if number in self.workers:
                    self.workers[number].send(said)
            case WorkEnded(number):
                if (worker := self.workers.pop(number, None)) is not None:
                    worker.ended.set()
            case _:
                assert_never(message)


class RemotePlace:
    """A job or a stream in a background lane of a replica in another process."""

    def __init__(self, replica: RemoteReplica, number: int) -> None:
        self._replica, self._number = replica, number
        self._child = replica.member.child
        self.had = Used()

    def hold(self) -> None:
        """Its rows wait from the next call on."""
        self._child.send(Hold(self._number))

    def release(self) -> None:
        """Its rows run again."""
        self._child.send(Resume(self._number))

    def follow(self, deadline_s: float, owed: bool) -> None:
        """How urgent it is from now on."""
        self._child.send(Follow(self._number, deadline_s, owed))

    def used(self) -> Used:
        """What it has had of the device, as the replica said last."""
        return self.had

    def work(self, task: SeatTask, name: str, send: Callable[[Any], None]) -> RemoteWorker:
        """A worker in the replica's process."""
        number = next(_numbers)
        worker = self._replica.workers[number] = RemoteWorker(self._replica.member, number, send)
        shown = f"replica-{self._replica.member.number}:{name}"
        self._child.send(Work(number, self._number, task, shown))
        return worker

    def leave(self) -> None:
        """Nothing more will come."""
        self._child.send(Leave(self._number))
        self._replica.places.pop(self._number, None)


class RemoteWorker:
    """A worker in a replica's process."""

    def __init__(self, member: Remote, number: int, send: Callable[[Any], None]) -> None:
        self._member, self._number, self.send = member, number, send
        self.ended = threading.Event()

    def tell(self, message: Any) -> None:
        """A message; None: it shall end."""
        self._member.child.send(WorkTold(self._number, message))

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        if not self._member.gone:
            self.ended.wait(timeout_s)

    def is_alive(self) -> bool:
        """Never for ever: its process can be killed."""
        return False
