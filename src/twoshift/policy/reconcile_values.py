"""What is wanted of a deployment, what is there, and the actions that lead from one to the other, as values."""

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
    """Where a replica is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # takes nothing new, finishes what it has
    STOPPING = "stopping"  # was asked to end


@dataclass(frozen=True, slots=True)
class VersionWanted:
    """One version of a deployment."""

    version: str
    replicas: int
    share: float = 1.0  # of the traffic
    asked_s: float = -math.inf  # when the number last changed: earlier failed starts no longer count as giving up


@dataclass(frozen=True, slots=True)
class Wanted:
    """A deployment as it should be. A version that is not named is wanted no longer."""

    versions: tuple[VersionWanted, ...]
    floor: int = 1  # ready replicas that no action of ours goes below
    surge: int = 1  # replicas beyond the wanted number while one version replaces another

    def __post_init__(self) -> None:
        names = {each.version for each in self.versions}
        if len(names) < len(self.versions) or any(each.replicas < 0 or each.share < 0 for each in self.versions):
            raise InvalidInput("versions", self.versions, "each version once, with replicas and a share from 0")
        if self.versions and not math.isclose(sum(each.share for each in self.versions), 1.0):
            raise InvalidInput("share", [each.share for each in self.versions], "shares that sum to 1")
        if any(each.share > 0 and not each.replicas for each in self.versions) and self.replicas:
            raise InvalidInput("share", self.versions, "no share for a version without replicas")
        if not 0 <= self.floor <= self.replicas:
            raise InvalidInput("floor", self.floor, f"0 to {self.replicas}, the replicas of all versions")
        if self.surge < 1:
            raise InvalidInput("surge", self.surge, "at least 1: a version is replaced by starting one replica first")

    @property
    def replicas(self) -> int:
        """Of all versions."""
        return sum(each.replicas for each in self.versions)


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as it is now."""

    number: int
    version: str
    stage: ReplicaStage
    since_s: float  # in that stage
    ready_s: float | None = None  # when it became ready; None: it has not
    load: int = 0  # requests that it has not answered yet
    fault: str = ""  # why it must end at once: it hangs, or nobody can reach it

    @property
    def is_live(self) -> bool:
        """Whether it serves or will; the others are on their way out."""
        return self.stage in (ReplicaStage.STARTING, ReplicaStage.READY)

    @property
    def serves(self) -> bool:
        """Whether requests can go to it."""
        return self.stage is ReplicaStage.READY and not self.fault


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica that ended though nobody asked it to, or that could not be started."""

    version: str
    at_s: float
    ready_s: float | None = None  # when it had become ready; None: it never was
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """A deployment as it is: all that the policy knows of the past is in here."""

    replicas: Sequence[Replica] = ()
    failures: Sequence[Failure] = ()  # the newest so many, oldest first
    shares: Mapping[str, float] | None = None  # of the traffic, by version; None: there is only one version


@dataclass(frozen=True, slots=True)
class Start:
    """Start a replica."""

    version: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Send it nothing new; it finishes what it has."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask it to end."""

    number: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End it now; safe to repeat."""

    number: int
    why: str  # empty: it was asked to end and did not


@dataclass(frozen=True, slots=True)
class Shift:
    """Divide the traffic like this from now on."""

    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do before then, unless something changes."""

    until_s: float


Action = Start | Drain | Stop | Kill | Shift | Wait
