"""Places of jobs and streams in the background lanes of replicas that serve, wherever those run."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from twoshift.batch.device import SharedDevice, WorkDevice
from twoshift.batch.llm_device import LlmDevice
from twoshift.batch.messages import FromWorker, ToWorker
from twoshift.batch.preparing.local_line import LocalPlaces
from twoshift.batch.preparing.spare_lines import SpareLines
from twoshift.batch.settings import JobSettings
from twoshift.batch.worker import ShardWorker
from twoshift.engine import Engine
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.llm import LlmEngine
from twoshift.engine.waiting import BlockOwner
from twoshift.ports import Blobs
from twoshift.types import Lane

__all__ = [
    "EngineReplica",
    "JobSeat",
    "LaneReplica",
    "LaneWorker",
    "Latencies",
    "LiveFleet",
    "Payer",
    "Seat",
    "SeatTask",
    "ShardTask",
    "Used",
]

_keys = itertools.count(1)  # of this process

Latencies = Callable[[], Sequence[tuple[float, float]]]  # of live requests: when each ended, and its seconds; in order


Payer = tuple[str, str, str]  # an owner, a model, and the registry's number of its version


class Used(NamedTuple):
    """What a job has had of devices."""

    device_s: float = 0.0
    riding_s: float = 0.0  # of those: in calls that live rows were in
    rows: int = 0
    tokens: int = 0
    output_tokens: int = 0  # that a language model generated
    output_s: float = 0.0  # of the device time: for those

    def plus(self, other: Used) -> Used:
        """Both together."""
        return Used(
            self.device_s + other.device_s,
            self.riding_s + other.riding_s,
            self.rows + other.rows,
            self.tokens + other.tokens,
            self.output_tokens + other.output_tokens,
            self.output_s + other.output_s,
        )


class LaneWorker(Protocol):
    """A worker of a job or a stream beside a replica."""

    def tell(self, message: Any) -> None:
        """A message; None: it shall end."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        ...

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        ...


class Seat(NamedTuple):
    """What a job or a stream finds at a replica."""

    device: WorkDevice
    owner: BlockOwner
    spares: SpareLines | None = None  # preparing processes that wait for jobs


class SeatTask(Protocol):
    """What somebody with a place at a replica has done there; it goes to the replica's process."""

    def begin(self, seat: Seat, name: str, send: Callable[[Any], None], ended: Callable[[], None]) -> LaneWorker:
        """A worker in a thread; what it says goes to `send`."""
        ...


class JobSeat(Protocol):
    """A job or a stream in a background lane of one replica; any thread may call it."""

    def hold(self) -> None:
        """Its rows wait from the next call on."""
        ...

    def release(self) -> None:
        """Its rows run again."""
        ...

    def follow(self, deadline_s: float, owed: bool) -> None:
        """How urgent it is from now on."""
        ...

    def used(self) -> Used:
        """What it has had of the device."""
        ...

    def work(self, task: SeatTask, name: str, send: Callable[[Any], None]) -> LaneWorker:
        """A worker of that name; what it says goes to `send`."""
        ...

    def leave(self) -> None:
        """Nothing more will come."""
        ...


class LaneReplica(Protocol):
    """A model that serves, on one device."""

    @property
    def gone(self) -> str:
        """How it ended; empty where it has not."""
        ...

    def live_device_s(self) -> float:
        """That live rows have had of its device."""
        ...

    def place(self, weight: float, lane: Lane = Lane.BATCH) -> JobSeat:
        """A place in a background lane."""
        ...


@dataclass(frozen=True, slots=True)
class LiveFleet:
    """The replicas of a model as they are now, and what live requests took."""

    replicas: Callable[[], Sequence[LaneReplica]]
    latencies: Latencies
    is_llm: bool = False
    why_dead: Callable[[], str] = str  # until the server is started again; empty where it is not
    why_away: Callable[[], str] = str  # why the model takes no rows now: it loads, or was unloaded; empty where it does
    model: str = ""  # whose they are, by its own name
    adapter: str | None = None  # where it was asked for by the name of one
    slo_s: Callable[[], float | None] = lambda: None  # of whole live requests; None: there is none
    most_workers: int = 1  # replicas that a job may ask for
    version: str | None = None  # NAME:3 of a registered model, where it was asked for by its version or an alias


class EngineReplica:
    """A replica in this process."""

    gone = ""

    def __init__(self, engine: BlockEngine, spares: SpareLines | None = None) -> None:
        """`spares`: preparing processes that wait for jobs."""
        self._engine, self._spares = engine, spares

    def live_device_s(self) -> float:
        """That live rows have had of its device."""
        return self._engine.stats().lanes[Lane.ONLINE].device_s

    def place(self, weight: float, lane: Lane = Lane.BATCH) -> EnginePlace:
        """A place in a background lane."""
        return EnginePlace(self._engine, BlockOwner(next(_keys), weight, lane=lane), self._spares)


class EnginePlace:
    """A job or a stream in a background lane of an engine of this process."""

    def __init__(self, engine: BlockEngine, owner: BlockOwner, spares: SpareLines | None = None) -> None:
        self._engine, self._owner, self._spares = engine, owner, spares

    def hold(self) -> None:
        """Its rows wait from the next call on."""
        self._engine.hold(self._owner)

    def release(self) -> None:
        """Its rows run again."""
        self._engine.release(self._owner)

    def follow(self, deadline_s: float, owed: bool) -> None:
        """How urgent it is from now on."""
        self._owner.deadline_s, self._owner.owed = deadline_s, owed

    def used(self) -> Used:
        """What it has had of the device."""
        use = self._owner.use
        return Used(use.device_s, self._owner.riding_s, use.rows, use.tokens, use.output_tokens, use.output_s)

    def work(
        self, task: SeatTask, name: str, send: Callable[[Any], None], ended: Callable[[], None] = lambda: None
    ) -> LaneWorker:
        """A worker in a thread."""
        return task.begin(Seat(_shared(self._engine, self._owner), self._owner, self._spares), name, send, ended)

    def leave(self) -> None:
        """Nothing of it waits any more."""
        self._engine.retire(self._owner)


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A job's shards."""

    settings: JobSettings
    blobs_for: Callable[[str], Blobs]  # what it may touch

    def begin(
        self, seat: Seat, name: str, send: Callable[[FromWorker], None], ended: Callable[[], None]
    ) -> EngineWorker:
        """A worker that is told which shards to score."""
        asked = self.settings.preparers
        places = LocalPlaces(asked) if seat.spares is None else LocalPlaces(asked, seat.spares.take)
        worker = ShardWorker(self.settings, name, lambda _: seat.device, self.blobs_for, send, seat.owner, places)
        return EngineWorker(worker, ended)


def _shared(engine: BlockEngine, owner: BlockOwner) -> WorkDevice:
    """What a job's rows run on, of an engine that serves."""
    if isinstance(engine, LlmEngine):
        return LlmDevice(engine, owner)
    assert isinstance(engine, Engine)  # noqa: S101 - there are two
    return SharedDevice(engine, owner)


class EngineWorker:
    """A worker's thread, and what it is told."""

    def __init__(self, worker: ShardWorker, ended: Callable[[], None]) -> None:
        self._worker, self._ended = worker, ended
        self._told: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="twoshift-job-worker", daemon=True)
        self._thread.start()

    def tell(self, message: ToWorker | None) -> None:
        """A message; None: it shall end."""
        self._told.put(message)

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        """A thread cannot be killed."""
        return self._thread.is_alive()

    def _work(self) -> None:
        self._worker.start()
        while (message := self._told.get()) is not None:
            self._worker.handle(message)
        self._worker.close()
        self._ended()
