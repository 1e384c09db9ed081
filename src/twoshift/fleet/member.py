"""One replica of a fleet, from its start to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twoshift.fleet.child import Child
from twoshift.fleet.control import Loaded
from twoshift.fleet.link import Link
from twoshift.fleet.wire import Heartbeat
from twoshift.policy.reconcile_values import Replica, ReplicaStage

if TYPE_CHECKING:  # a server without jobs does without their packages
    from twoshift.fleet.remote_lane import RemoteReplica

__all__ = ["Member"]


@dataclass(slots=True, eq=False)
class Member:
    """The supervisor's thread moves it on; the server's loop has the link and what comes over it."""

    number: int
    slot: int  # of the devices
    child: Child
    version: str
    since_s: float  # in its stage
    stage: ReplicaStage = ReplicaStage.STARTING
    ready_s: float | None = None  # when it became ready
    opened: Loaded | None = None
    link: Link | None = None
    beat: Heartbeat | None = None
    lanes: RemoteReplica | None = None  # jobs at it
    elsewhere: Callable[[], int] = lambda: 0  # requests of other fronts that it has not answered
    fault: str = ""  # why it must end
    gone: str = ""  # how it ended
    was_killed: bool = False  # from outside, and not because it hung

    def observed(self) -> Replica:
        """For the policy."""
        load = self.elsewhere() + (0 if self.link is None else self.link.outstanding)
        return Replica(self.number, self.version, self.stage, self.since_s, self.ready_s, load, self.fault)
