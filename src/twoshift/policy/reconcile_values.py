"""Values of the reconciler: the wanted state of a deployment, its observed state, and the actions between them."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = [
    "Action",
    "Drain",
    "Failure",
    "Kill",
    "Observed",
    "Replica",
    "ReplicaStage",
    "Shift",
    "Start",
    "Stop",
    "VersionWanted",
    "Wait",
    "Wanted",
]


class ReplicaStage(enum.StrEnum):
    """Stage in the life of a replica."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # takes no new requests, finishes the admitted ones
    STOPPING = "stopping"  # was asked to end


@dataclass(frozen=True, slots=True)
class VersionWanted:
    """The wanted state of one version."""

    version: str
    replicas: int
    share: float = 1.0  # of the traffic
    asked_s: float = -math.inf  # when the number last changed; earlier failed starts do not count


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted state of a deployment. A version that is not listed should be removed."""

    versions: tuple[VersionWanted, ...]
    floor: int = 1  # actions keep at least this many replicas ready
    surge: int = 1  # replicas beyond the wanted number while one version replaces another

    def __post_init__(self) -> None:
        names = {each.version for each in self.versions}
        if len(names) < len(self.versions) or any(each.replicas < 0 or each.share < 0 for each in self.versions):
            accepted = "each version once, with a number of replicas and a share of at least 0"
            raise InvalidInput("versions", self.versions, accepted)
        if self.versions and not math.isclose(sum(each.share for each in self.versions), 1.0):
            raise InvalidInput("share", [each.share for each in self.versions], "shares that sum to 1")
        if any(each.share > 0 and not each.replicas for each in self.versions) and self.replicas:
            raise InvalidInput("share", self.versions, "a share of 0 for each version without replicas")
        if not 0 <= self.floor <= self.replicas:
            raise InvalidInput("floor", self.floor, f"at least 0 and at most {self.replicas}, the number of replicas")
        if self.surge < 1:
            accepted = (
                "at least 1: an update starts a replica of the new version before it stops one of the old version"
            )
            raise InvalidInput("surge", self.surge, accepted)

    @property
    def replicas(self) -> int:
        """Of all versions."""
        return sum(each.replicas for each in self.versions)


@dataclass(frozen=True, slots=True)
class Replica:
    """The observed state of a replica."""

    number: int
    version: str
    stage: ReplicaStage
    since_s: float  # start of the current stage
    ready_s: float | None = None  # when it became ready; None: it has not
    load: int = 0  # unanswered requests
    fault: str = ""  # why it must be killed: it hangs, or is unreachable

    @property
    def is_live(self) -> bool:
        """Whether the replica serves or will serve; other replicas are being removed."""
        return self.stage in (ReplicaStage.STARTING, ReplicaStage.READY)

    @property
    def serves(self) -> bool:
        """Whether requests can be sent to the replica."""
        return self.stage is ReplicaStage.READY and not self.fault


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica that ended without being asked to, or that could not start."""

    version: str
    at_s: float
    ready_s: float | None = None  # when it became ready; None: never
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state of a deployment, including all that the policy knows of the past."""

    replicas: Sequence[Replica] = ()
    failures: Sequence[Failure] = ()  # the latest failures, oldest first
    shares: Mapping[str, float] | None = None  # of the traffic, by version; None: there is only one version


@dataclass(frozen=True, slots=True)
class Start:
    """Start a replica."""

    version: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Send the replica no new requests; it finishes its admitted ones."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the replica to end."""

    number: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End the replica now; safe to repeat."""

    number: int
    why: str  # reason; empty: it was asked to end and did not


@dataclass(frozen=True, slots=True)
class Shift:
    """Divide the traffic like this from now on."""

    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do before this time, unless something changes."""

    until_s: float


Action = Start | Drain | Stop | Kill | Shift | Wait
