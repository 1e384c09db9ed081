"""What every model has whose replicas run elsewhere, whatever they answer with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.fleet.control import Loaded
from twoshift.fleet.group import LiveReplica, ReplicaFleet, ReplicaGroup
from twoshift.fleet.wire import Heartbeat
from twoshift.ports import RuntimeInfo
from twoshift.serve.completions import Completions
from twoshift.serve.derived import Derived
from twoshift.serve.llm_derived import LlmDerived
from twoshift.types import Lane, ReplicaCounts, Tensor

if TYPE_CHECKING:
    from twoshift.fleet.remote_lane import RemoteReplica

__all__ = ["FleetBackend"]

_Derived = TypeVar("_Derived", Derived, LlmDerived)


class FleetBackend(ABC, Generic[_Derived]):
    """For the faces it is a model like any other; a `ReplicaFleet` says what becomes of its replicas."""

    derived: _Derived  # from the curves that they began with

    def __init__(self, name: str) -> None:
        self.name = name
        self.outputs: tuple[Tensor, ...] = ()
        self.group = ReplicaGroup(self)

    def open(self, fleet: ReplicaFleet) -> None:
        """Start the replicas and wait for them; raises what the first that cannot start says."""
        opened = self.group.begin(fleet)
        self._fleet, self._first, self.outputs = fleet, opened[0], opened[0].outputs
        self.derived = self._opened(opened)

    def start(self, _completions: Completions) -> None:
        """On the loop that will serve: the replicas are listened to from now on."""
        self.group.start(self.derived.slo_s)

    @property
    def crashes(self) -> int:
        """How many replicas have ended by themselves."""
        return self._fleet.crashes

    @property
    def info(self) -> RuntimeInfo:
        """Of the model; each replica has the same."""
        return self._first.info

    @property
    def most_rows(self) -> int:
        """Of a request: one replica answers it."""
        return self._first.most_rows

    @property
    def scales_itself(self) -> bool:
        """Whether something else than a scaler of this process adds and removes replicas."""
        return self._fleet.scales_itself

    def health(self) -> Health:
        """Whether a replica can be asked; one that hangs is replaced."""
        return self.group.health()

    def stats(self) -> EngineStats:
        """Of all replicas since the start, those that are no more included."""
        return self.group.stats()

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for a device."""
        return self.group.waiting()

    def replicas(self) -> ReplicaCounts:
        """How many there are."""
        return self._fleet.replicas()

    def members(self) -> Sequence[LiveReplica]:
        """Those that take requests, now."""
        return self._fleet.members()

    def killed(self) -> Sequence[int]:
        """The numbers of the last replicas that something outside ended."""
        return self._fleet.killed()

    def why_none(self) -> str:
        """Why there is no replica, for people."""
        return self._fleet.why_none()

    def lane_replicas(self) -> list[RemoteReplica]:
        """Those in whose batch lanes jobs may run."""
        return self.group.lane_replicas()

    @property
    def cold_start_s(self) -> float:
        """What the last start of a replica took; 0: not known."""
        return self._fleet.cold_start_s

    def wakes_in_s(self) -> float | None:
        """Until it answers, where it sleeps; None where it does not."""
        return self.group.wakes_in_s()

    def scale_to(self, replicas: int) -> None:
        """So many: new ones start in the background, those that go finish first."""
        self._fleet.scale_to(replicas)

    def close(self) -> None:
        """End the replicas."""
        self._fleet.close()

    @abstractmethod
    def _opened(self, opened: Sequence[Loaded]) -> _Derived:
        """What follows from all of them together."""

    # What the group says of replicas

    @abstractmethod
    def joined(self, replica: int, opened: Loaded) -> None:
        """It takes requests from now on."""

    @abstractmethod
    def left(self, replica: int) -> None:
        """It takes no more."""

    @abstractmethod
    def heard(self, replica: int, beat: Heartbeat) -> None:
        """How it is now."""

    @abstractmethod
    def started(self, replica: int, requests: Sequence[int], now_s: float) -> None:
        """Rows of these requests are on its device."""
