"""A job's workers as threads beside engines that also answer live requests: its rows ride in their batch lane."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from twoshift.batch.device import SharedDevice
from twoshift.batch.lane import JobLane
from twoshift.batch.messages import FromWorker, ToWorker
from twoshift.batch.pool import Died
from twoshift.batch.settings import JobSettings
from twoshift.batch.worker import ShardWorker
from twoshift.ports import Blobs

__all__ = ["EnginePool"]


class _Place:
    """A worker's thread, and what it is told."""

    def __init__(self, worker: ShardWorker) -> None:
        self.worker = worker
        self.told: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="twoshift-job-worker", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        self.worker.start()
        while (message := self.told.get()) is not None:
            self.worker.handle(message)
        self.worker.close()


class EnginePool:
    """A worker an engine, in turn. A thread cannot be killed: one that hangs is told to give up and forgotten."""

    def __init__(self, settings: JobSettings, lane: JobLane, blobs_for: Callable[[str], Blobs]) -> None:
        self._settings, self._lane, self._blobs_for = settings, lane, blobs_for
        self._heard: queue.SimpleQueue[tuple[int, FromWorker | Died]] = queue.SimpleQueue()
        self._places: dict[int, _Place] = {}
        self._forgotten: set[int] = set()
        self._closed: list[_Place] = []
        self._started = 0

    def start(self) -> int:
        """A new worker; its model is loaded already."""
        number, self._started = self._started, self._started + 1
        place = number % len(self._lane.replicas)
        engine, owner = self._lane.replicas[place].engine, self._lane.owners[place]

        def send(message: FromWorker) -> None:
            if number not in self._forgotten:  # what such a one says is of no interest
                self._heard.put((number, message))

        worker = ShardWorker(
            self._settings, f"lane:{number}", lambda _: SharedDevice(engine), self._blobs_for, send, owner
        )  # fmt: skip
        self._places[number] = _Place(worker)
        return number

    def send(self, worker: int, message: ToWorker) -> None:
        """A message to a worker; lost where it is gone."""
        if worker in self._places:
            self._places[worker].told.put(message)

    def poll(self, timeout_s: float) -> list[tuple[int, FromWorker | Died]]:
        """What workers have said since, waiting for the first of it."""
        try:
            heard = [self._heard.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        with contextlib.suppress(queue.Empty):
            while True:
                heard.append(self._heard.get_nowait())
        return heard

    def kill(self, worker: int) -> None:
        """Forget a worker that hangs; `poll` will say that it died."""
        place = self._places.pop(worker, None)
        if place is not None:
            self._forgotten.add(worker)
            self._closed.append(place)
            place.told.put(None)
            self._heard.put((worker, Died("it hung, and was given up")))

    def close(self, grace_s: float) -> None:
        """End them all: in peace where they go in time."""
        places, self._places = list(self._places.values()), {}
        self._closed += places
        until_s = time.monotonic() + grace_s
        for place in places:
            place.told.put(None)
        for place in places:
            place.thread.join(max(0.0, until_s - time.monotonic()))

    def is_stuck(self) -> bool:
        """A thread cannot be killed."""
        return any(place.thread.is_alive() for place in self._closed)
