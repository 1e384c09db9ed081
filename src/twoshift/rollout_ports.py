"""Rollouts as a server remembers them, and their store, as Protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["FINAL", "RolloutEvent", "RolloutRecord", "RolloutStore", "told_data"]

FINAL = ("promoted", "rolled_back")  # stages that stay


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A candidate of a deployment, from the wish to its end."""

    id: str
    deployment: str
    configured: str  # the model in the server's settings when it began
    stable: str  # the model that answered then
    candidate: str  # NAME:4
    mode: str  # canary, shadow, now or replace
    who: str
    settings: dict[str, Any]  # of the policy; JSON-ready, as is the next
    created_unix_s: float
    state: dict[str, Any] = field(default_factory=dict[str, Any])  # of the policy; empty: it has decided nothing yet
    stage: str = "loading"
    share: float = 0.0  # of the live requests
    paused: bool = False
    reason: str = ""  # what was decided last, and why
    asked: tuple[str, ...] = ()  # what people want of it, until its leader has heard it: "promote alice"
    updated_unix_s: float = 0.0
    leader: str = ""  # for people: the server that judges it

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be decided."""
        return self.stage in FINAL


@dataclass(frozen=True, slots=True)
class RolloutEvent:
    """A decision, with its evidence."""

    at_unix_s: float
    text: str
    figures: tuple[str, ...] = ()


class RolloutStore(Protocol):
    """Rollouts of all servers on one database; any thread may call it. Raises TryLater where it does not answer."""

    def add(self, record: RolloutRecord) -> bool:
        """Remember it; False where its deployment has one that is not over."""
        ...

    def get(self, rollout_id: str) -> RolloutRecord:
        """Raises NotFound."""
        ...

    def list(self, limit: int = 100, deployment: str | None = None) -> list[RolloutRecord]:
        """The newest first."""
        ...

    def active(self) -> list[RolloutRecord]:
        """Those that are not over, oldest first."""
        ...

    def last(self, deployment: str, configured: str) -> RolloutRecord | None:
        """The newest one of a deployment whose settings named that model."""
        ...

    def ask(self, rollout_id: str, what: str) -> bool:
        """For its leader to hear; False where it is over."""
        ...

    def lead(self, rollout_id: str) -> bool:
        """Whether this server judges it from now on, or still does; to be asked every few seconds."""
        ...

    def save(self, rollout_id: str, event: RolloutEvent | None = None, heard: int = 0, **values: Any) -> bool:
        """Some of its fields, with what was decided; False where another server leads it, or it is over.

        `heard`: so many of what was asked are done with.
        """
        ...

    def events(self, rollout_id: str) -> list[RolloutEvent]:
        """What was decided, oldest first."""
        ...

    def release(self) -> None:
        """Others may lead at once what this server has led."""
        ...


def told_data(record: RolloutRecord) -> Mapping[str, Any]:
    """What a webhook is told of it."""
    return {
        "id": record.id, "deployment": record.deployment, "stable": record.stable, "candidate": record.candidate,
        "stage": record.stage, "reason": record.reason,
    }  # fmt: skip
