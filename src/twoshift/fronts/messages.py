"""What a server and the front processes that it has started tell each other, over a pipe to its own child."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twoshift.fleet.control import Loaded
from twoshift.policy.rollout_values import Compared
from twoshift.serve.counts import MetricCounts, TenantCounts
from twoshift.serve.deployments import DeploymentState
from twoshift.serve.host import HostFacts

__all__ = [
    "BackendFacts",
    "CandidateFacts",
    "CandidateReport",
    "DeploymentFacts",
    "Drain",
    "FrontReport",
    "ReplicaLoaded",
    "Report",
    "Snapshot",
    "ToFront",
]


# To a front


@dataclass(frozen=True, slots=True)
class ReplicaLoaded:
    """A replica of a backend, before the first snapshot that names it."""

    backend: int
    number: int
    loaded: Loaded


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What answers for a deployment: replicas, which the fronts ask themselves."""

    number: int
    is_language: bool
    replicas: tuple[int, ...]  # that take requests
    why_none: str  # where there is none
    killed: tuple[int, ...] = ()  # the last replicas that something outside ended: what they ran did not


@dataclass(frozen=True, slots=True)
class CandidateFacts:
    """A version that is tried beside the one that answers."""

    rollout: str
    backend: int
    share: float  # of the live requests
    copies: bool  # whether it answers copies of them, too


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """A deployment as clients see it."""

    name: str
    version: str
    created_unix_s: int
    state: DeploymentState
    reason: str
    backend: int | None
    adapters: tuple[str, ...] = ()
    candidate: CandidateFacts | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that there is, whatever was said before: a message that is missed is healed by the next."""

    number: int
    deployments: tuple[DeploymentFacts, ...] = ()
    backends: tuple[BackendFacts, ...] = ()
    fronts: int = 1  # that there are
    is_started: bool = False  # every deployment of the start is loaded, or has failed


@dataclass(frozen=True, slots=True)
class Report:
    """Say how you are, now."""

    number: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Take nothing new, answer what was admitted, and end."""

    grace_s: float


ToFront = ReplicaLoaded | Snapshot | Report | Drain

# From a front


@dataclass(frozen=True, slots=True)
class CandidateReport:
    """What a front has seen of a rollout since its last report; `counts` are since its start."""

    rollout: str
    stable: list[tuple[float, bool]]  # seconds of replies, and whether they failed
    candidate: list[tuple[float, bool]]
    compared: list[Compared]
    differences: dict[str, Any] | None
    counts: MetricCounts  # of the candidate


@dataclass(frozen=True, slots=True)
class FrontReport:
    """How a front is, and what it has counted since its start."""

    snapshot: int  # the last one that it follows
    asked: int  # the last `Report` that it has heard
    host: HostFacts
    outstanding: dict[tuple[int, int], int]  # requests that a backend's replica has not answered; none: not named
    inside: dict[int, int]  # requests that a backend has not answered
    rows_per_request: dict[str, float]
    metrics: dict[str, MetricCounts]  # by deployment, as is the next
    recent: dict[str, list[tuple[float, float]]]  # since the last report: when requests ended, and their seconds
    tenants: dict[str, TenantCounts]
    candidates: dict[str, CandidateReport]  # by deployment
    drained: bool | None = None  # after `Drain`: whether everything was answered in time
