"""Replicas that the server's main process starts and watches; a front asks them over connections of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from twoshift.fleet.control import Loaded, ToChild
from twoshift.fleet.group import ReplicaGroup
from twoshift.fleet.link import Link
from twoshift.fleet.wire import Heartbeat
from twoshift.types import ReplicaCounts

if TYPE_CHECKING:
    from twoshift.fleet.remote_lane import RemoteReplica

__all__ = ["FollowedFleet", "FollowedReplica"]

_GONE = "the replica accepts no more requests"


class _Door:
    """Where a replica takes the connections of fronts."""

    same_clock: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        self._path = path

    def send(self, message: ToChild) -> None:
        """Never: jobs are the main process's."""
        raise AssertionError(message)

    async def take_live(self) -> socket.socket:
        """A connection of its own; raises OSError."""
        live = socket.socket(socket.AF_UNIX)
        live.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(live, self._path)
        except BaseException:
            live.close()
            raise
        return live


class FollowedReplica:
    """A replica as a front knows it."""

    def __init__(self, number: int, opened: Loaded) -> None:
        self.number, self.child = number, _Door(opened.live_path)
        self.opened: Loaded | None = opened
        self.link: Link | None = None
        self.beat: Heartbeat | None = None
        self.lanes: RemoteReplica | None = None
        self.gone, self.was_killed = "", False


class FollowedFleet:
    """A ReplicaFleet: which replicas there are is told by snapshots."""

    scales_itself: ClassVar[bool] = False
    crashes = 0  # the main process counts them
    cold_start_s = 0.0

    def __init__(self, group: ReplicaGroup, loaded: Callable[[int], Loaded]) -> None:
        self._group, self._loaded = group, loaded
        self._members: dict[int, FollowedReplica] = {}
        self._leaving: list[FollowedReplica] = []  # that answer what they have
        self._why_none = "the replicas are starting"

    def start(self) -> None:
        """They have started."""

    def members(self) -> list[FollowedReplica]:
        """Those that take requests."""
        return [*self._members.values()]

    def follow(self, replicas: Sequence[int], why_none: str, killed: Sequence[int] = ()) -> None:
        """On the front's loop: these take requests from now on, and no others; some were killed from outside."""
        self._why_none = why_none
        for number in [each for each in self._members if each not in replicas]:
            self._members[number].was_killed = number in killed
            self._let_go(self._members.pop(number))
        for number in replicas:
            if number not in self._members:
                self._add(number)
        for member in [each for each in self._leaving if each.link is None or not each.link.outstanding]:
            self._leaving.remove(member)
            member.gone = _GONE
            self._group.ended(member)

    def outstanding(self) -> dict[int, int]:
        """Requests that replicas have not answered; those that are not followed any more and have none are missing."""
        known = [*self._leaving, *self._members.values()]
        return {each.number: 0 if each.link is None else each.link.outstanding for each in known}

    def replicas(self) -> ReplicaCounts:
        """Those that are followed."""
        return ReplicaCounts(len(self._members))

    def killed(self) -> tuple[int, ...]:
        """The main process knows, and says it in `follow`."""
        return ()

    def scale_to(self, replicas: int) -> None:
        """Never: that is the main process's."""
        raise AssertionError(replicas)

    def wakes_in_s(self) -> None:
        """A server with fronts keeps a replica."""

    def replace(self, member: Any, why: str) -> None:
        """Whether it ends is for the main process to say; here its connection is made anew."""
        if self._members.get(member.number) is member:
            del self._members[member.number]
            member.gone = _GONE
            self._group.ended(member)
            self._add(member.number)

    def why_none(self) -> str:
        """As the main process says it."""
        return self._why_none or "none of the replicas answers"

    def close(self) -> None:
        """Ask them nothing more; they live on."""
        for member in (*self._members.values(), *self._leaving):
            member.gone = _GONE
            self._group.ended(member)
        self._members.clear()
        self._leaving.clear()

    def _add(self, number: int) -> None:
        made = self._members[number] = FollowedReplica(number, self._loaded(number))
        self._group.opened(made)

    def _let_go(self, member: FollowedReplica) -> None:
        self._group.leaving(member)
        self._leaving.append(member)
