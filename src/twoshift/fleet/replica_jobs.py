"""Jobs and streams at a replica, in its own process: workers that the front tells what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, assert_never

from twoshift.batch.job_seats import EnginePlace, EngineReplica, LaneWorker
from twoshift.batch.preparing.local_line import LocalPlaces
from twoshift.batch.preparing.preparers import WARM
from twoshift.batch.preparing.spare_lines import SpareLines
from twoshift.engine import Engine
from twoshift.engine.blocks import BlockEngine
from twoshift.fleet.control import (
    Follow,
    FromChild,
    Hold,
    Leave,
    Resume,
    Stop,
    TakePlace,
    ToChild,
    UsageReport,
    Work,
    WorkEnded,
    WorkSaid,
    WorkTold,
)
from twoshift.ports import PreparedElsewhere

__all__ = ["ReplicaJobs"]

_CLOSE_S = 2.0  # for workers to give up what they have


class ReplicaJobs:
    """Handles messages one at a time; answers go to `send`, from several threads."""

    def __init__(self, engine: BlockEngine, send: Callable[[FromChild], None]) -> None:
        if isinstance(engine, Engine):
            engine.gentle = None  # replicas share their cores: one's rests are no rest for another's live calls
        self._spares = _spares_for(engine)
        self._replica, self._send = EngineReplica(engine, self._spares), send
        self._places: dict[int, EnginePlace] = {}
        self._workers: dict[int, LaneWorker] = {}

    def handle(self, message: ToChild) -> None:
        """Do what it says, or begin to."""
        match message:
            case TakePlace(place, weight, lane):
                self._places[place] = self._replica.place(weight, lane)
            case Hold(place):
                self._with(place, EnginePlace.hold)
            case Resume(place):
                self._with(place, EnginePlace.release)
            case Follow(place, deadline_s, owed):
                self._with(place, lambda found: found.follow(deadline_s, owed))
            case Leave(place):
                self._with(place, EnginePlace.leave)
                self._places.pop(place, None)
            case Work():
                self._begin(message)
            case WorkTold(work, told):
                if (worker := self._workers.get(work)) is not None:
                    worker.tell(told)
                if told is None:
                    self._workers.pop(work, None)
            case Stop():
                self.close()
            case _:
                assert_never(message)

    def close(self) -> None:
        """Give up what is in work: others will do it."""
        if self._spares is not None:
            self._spares.close()
        until_s = time.monotonic() + _CLOSE_S
        for worker in self._workers.values():
            worker.tell(None)
        for worker in self._workers.values():
            worker.join(max(0.0, until_s - time.monotonic()))

    def _with(self, place: int, do: Callable[[EnginePlace], None]) -> None:
        """A job that has just left is no error: what concerns it was on the way."""
        if (found := self._places.get(place)) is not None:
            do(found)

    def _begin(self, work: Work) -> None:
        place = self._places.get(work.place)
        if place is None:
            self._send(WorkEnded(work.work))
            return

        def send(message: Any) -> None:
            self._send(UsageReport(work.place, place.used()))
            self._send(WorkSaid(work.work, message))

        def ended() -> None:
            self._send(UsageReport(work.place, place.used()))
            self._send(WorkEnded(work.work))

        self._workers[work.work] = place.work(work.task, work.name, send, ended)


def _spares_for(engine: BlockEngine) -> SpareLines | None:
    """For a GPU whose rows other processes can prepare; a CPU's cores are better left to live requests."""
    if not isinstance(engine, Engine) or not engine.runtime.info.live_stream:
        return None
    if not isinstance(engine.runtime, PreparedElsewhere):
        return None
    return SpareLines(min(WARM, LocalPlaces().policy(on_cpu=False).most))
