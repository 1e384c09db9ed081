"""A job's workers beside replicas that also answer live requests: its rows ride in their batch lanes."""

from __future__ import annotations

import contextlib
import itertools
import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import JobSeat, LaneReplica, LaneWorker, ShardTask
from twoshift.batch.messages import FromWorker, ToWorker
from twoshift.batch.pool import Died, FromPool, Joined, Left
from twoshift.batch.settings import JobSettings
from twoshift.ports import Blobs

__all__ = ["EnginePool"]


@dataclass(frozen=True, slots=True)
class _Placed:
    replica: LaneReplica
    worker: LaneWorker


class EnginePool:
    """A worker a replica. One that hangs is told to give up and forgotten: it is the replica's to end."""

    def __init__(self, settings: JobSettings, lane: JobOnFleet, blobs_for: Callable[[str], Blobs]) -> None:
        self._settings, self._lane, self._blobs_for = settings, lane, blobs_for
        self._heard: queue.SimpleQueue[tuple[int, FromPool]] = queue.SimpleQueue()
        self._placed: dict[int, _Placed] = {}
        self._unplaced: deque[int] = deque()  # workers that wait for a replica
        self._seen: set[LaneReplica] = set()  # that have had a worker: who ends one starts the next
        self._forgotten: set[int] = set()
        self._closed: list[LaneWorker] = []
        self._numbers = itertools.count()

    def start(self) -> int:
        """A new worker; its model is loaded already, once there is a replica that has none."""
        number = next(self._numbers)
        self._unplaced.append(number)
        self._settle()
        return number

    def send(self, worker: int, message: ToWorker) -> None:
        """A message to a worker; lost where it is gone."""
        if worker in self._placed:
            self._placed[worker].worker.tell(message)

    def poll(self, timeout_s: float) -> list[tuple[int, FromPool]]:
        """What workers have said since, waiting for the first of it."""
        self._follow_replicas()
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
        self._forget(worker, Died("the worker hung and was abandoned"))

    def close(self, grace_s: float) -> None:
        """End them all: in peace where they go in time."""
        workers = [each.worker for each in self._placed.values()]
        self._placed.clear()
        self._unplaced.clear()
        self._closed += workers
        until_s = time.monotonic() + grace_s
        for worker in workers:
            worker.tell(None)
        for worker in workers:
            worker.join(max(0.0, until_s - time.monotonic()))

    def is_stuck(self) -> bool:
        """Whether a worker does not end."""
        return any(worker.is_alive() for worker in self._closed)

    def _follow_replicas(self) -> None:
        """Workers of replicas that are gone are lost; a replica that has come brings one."""
        places = self._lane.places()
        for number, each in tuple(self._placed.items()):
            if each.replica not in places:
                self._forget(number, Died(each.replica.gone) if each.replica.gone else Left())
        self._settle()
        for replica in [each for each in self._free(places) if each not in self._seen]:
            number = next(self._numbers)
            self._heard.put((number, Joined()))
            self._put(number, replica, places[replica])

    def _settle(self) -> None:
        places = self._lane.places()
        for replica in self._free(places)[: len(self._unplaced)]:
            self._put(self._unplaced.popleft(), replica, places[replica])

    def _free(self, places: dict[LaneReplica, JobSeat]) -> list[LaneReplica]:
        taken = {each.replica for each in self._placed.values()}
        return [replica for replica in places if replica not in taken]

    def _put(self, number: int, replica: LaneReplica, place: JobSeat) -> None:
        def send(message: FromWorker) -> None:
            if number not in self._forgotten:  # what such a one says is of no interest
                self._heard.put((number, message))

        self._seen.add(replica)
        worker = place.work(ShardTask(self._settings, self._blobs_for), f"lane:{number}", send)
        self._placed[number] = _Placed(replica, worker)

    def _forget(self, number: int, fate: Died | Left) -> None:
        each = self._placed.pop(number, None)
        if each is not None:
            self._forgotten.add(number)
            self._closed.append(each.worker)
            each.worker.tell(None)
            self._heard.put((number, fate))
