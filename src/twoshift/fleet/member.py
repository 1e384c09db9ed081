"""One replica of a fleet, from its start to its end."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twoshift.fleet.child import Child
from twoshift.fleet.control import Loaded
from twoshift.fleet.link import Link
from twoshift.fleet.wire import Heartbeat

if TYPE_CHECKING:  # a server without jobs does without their packages
    from twoshift.fleet.remote_lane import RemoteReplica

__all__ = ["Member", "Stage"]


class Stage(enum.StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # finishes what it has
    STOPPING = "stopping"  # was asked to end


@dataclass(slots=True, eq=False)
class Member:
    """The supervisor's thread moves it on; the server's loop has the link and what comes over it."""

    number: int
    slot: int  # of the devices
    child: Child
    stage: Stage = Stage.STARTING
    since_s: float = 0.0  # in that stage
    until_s: float = 0.0  # the end of its patience, where the stage has one
    opened: Loaded | None = None
    link: Link | None = None
    beat: Heartbeat | None = None
    lanes: RemoteReplica | None = None  # jobs at it
    blamed: str = ""  # why it was made to end
    gone: str = ""  # how it ended
