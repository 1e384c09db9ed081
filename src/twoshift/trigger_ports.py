"""What fires jobs, and who is told of their end: records and their stores, as Protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twoshift.types import DeliveryState, RunState

__all__ = ["Delivery", "Notice", "NoticeStore", "ScheduleRecord", "ScheduleStore", "ScheduledRun"]


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """What fires jobs, as a server remembers it."""

    id: str
    owner: str
    name: str  # one of its owner's
    spec: dict[str, Any]  # JSON-ready
    created_unix_s: float
    since_unix_s: float  # times up to this one are decided on
    marker: str = ""  # the one that it last fired for
    is_paused: bool = False
    problem: str = ""  # why nobody can tell whether it is due


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run of a schedule. It is decided on first, and then submitted: once, whatever happens in between."""

    id: str  # of the job, too
    schedule_id: str
    key: str  # what it is for: one run for each
    due_unix_s: float
    state: RunState
    output: str = ""
    reason: str = ""
    job_state: str | None = None  # None where there is no job


class ScheduleStore(Protocol):
    """The schedules of a fleet, with the errors of a JobStore; any thread may call it."""

    def add(self, schedule: ScheduleRecord) -> bool:
        """Remember it; False where its owner has one of that name."""
        ...

    def all(self, owner: str | None = None) -> list[ScheduleRecord]:
        """Those of an owner or of all, by name."""
        ...

    def change(self, schedule_id: str, **values: Any) -> None:
        """Some of its fields."""
        ...

    def remove(self, schedule_id: str) -> None:
        """It and its runs, not their jobs."""
        ...

    def decide(self, run: ScheduledRun, **values: Any) -> bool:
        """A run, and fields of its schedule, both or neither; False where there was a run for its key already."""
        ...

    def settle(self, run_id: str, state: RunState, reason: str | None = None) -> None:
        """What has become of a run, and why, where that is new."""
        ...

    def runs(self, schedule_id: str, limit: int = 100) -> list[ScheduledRun]:
        """The newest first."""
        ...

    def waiting(self) -> list[ScheduledRun]:
        """Those that are decided on and have no job yet, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """Something has ended, and somebody may want to know."""

    owner: str
    kind: str  # job.completed
    subject: str  # the id of what it is about
    data: dict[str, Any]  # JSON-ready
    at_unix_s: float
    named: tuple[str, ...] = ()  # webhooks that were asked for


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notice on its way to one webhook."""

    id: str  # the same at every attempt
    owner: str
    kind: str
    subject: str
    webhook: str  # as the server's settings name it
    url: str
    target: str  # host and port: who must not be asked too often
    body: str
    created_unix_s: float
    due_unix_s: float
    attempts: int = 0
    state: DeliveryState = DeliveryState.WAITING
    told: str = ""  # of the last attempt


class NoticeStore(Protocol):
    """Notices and deliveries, with the errors of a JobStore; any thread may call it."""

    def post(self, notice: Notice) -> None:
        """Remember it."""
        ...

    def spread(self, deliveries_of: Callable[[Notice], Sequence[Delivery]], limit: int = 100) -> int:
        """The oldest notices become deliveries, both or neither; how many there were."""
        ...

    def due(self, now_unix_s: float, each: int) -> list[Delivery]:
        """Those to be tried now, oldest first, at most so many of a target."""
        ...

    def tried(self, delivery: Delivery) -> None:
        """As it is after an attempt."""
        ...

    def list(self, limit: int = 100, owner: str | None = None) -> list[Delivery]:
        """The newest first, of one owner or of all."""
        ...
