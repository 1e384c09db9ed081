"""The replicas of a model that can be asked, their heartbeats, and what they have done together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.fleet.control import Loaded, ToChild, UsageReport, WorkEnded, WorkSaid
from twoshift.fleet.link import Link
from twoshift.fleet.wake_up import WakeUp
from twoshift.fleet.wire import Heartbeat
from twoshift.serve.host import Visit, paused
from twoshift.serve.sums import NOTHING, queues_together, stats_together
from twoshift.types import Lane, ReplicaCounts

if TYPE_CHECKING:
    from twoshift.fleet.remote_lane import RemoteReplica

__all__ = ["LiveReplica", "ReplicaFleet", "ReplicaGroup", "Router", "other_model"]

_logger = logging.getLogger("twoshift.fleet")
_WATCH_S = 0.5
_links = itertools.count()  # of this process
_BROKEN_S = 2.0  # after its connection, for a replica's process to be seen to end
_LEAST_SILENT_S, _SILENT_SLOS = 10.0, 20.0  # without a heartbeat: it hangs


class ReplicaLine(Protocol):
    """The two ways to a replica."""

    same_clock: ClassVar[bool]  # its monotonic clock is this process's

    def send(self, message: ToChild) -> None:
        """A control message, from any thread; lost where the replica is gone."""
        ...

    async def take_live(self) -> socket.socket:
        """Its connection for live requests; raises OSError. Whoever takes it closes it."""
        ...


class LiveReplica(Protocol):
    """A replica that can be asked, wherever it runs."""

    number: int
    opened: Loaded | None
    link: Link | None
    beat: Heartbeat | None
    lanes: RemoteReplica | None  # jobs at it
    gone: str  # how it ended; empty where it has not
    was_killed: bool  # from outside: no request has ended it

    @property
    def child(self) -> ReplicaLine: ...


class ReplicaFleet(Protocol):
    """Who starts, replaces and ends replicas: a supervisor of processes, or Ray Serve."""

    scales_itself: ClassVar[bool]  # by what replicas count, so that nobody else refuses requests or adds replicas
    crashes: int  # replicas that have ended by themselves
    cold_start_s: float  # what the last start of a replica took; 0: not known

    def start(self) -> None:
        """Until all are ready; raises what the first that cannot start says."""
        ...

    def members(self) -> Sequence[LiveReplica]:
        """Those that take requests."""
        ...

    def replicas(self) -> ReplicaCounts:
        """How many there are."""
        ...

    def scale_to(self, replicas: int) -> None:
        """So many, where it does not scale itself."""
        ...

    def wakes_in_s(self) -> float | None:
        """Until a replica is ready, once one is asked for, where there is none because none was needed; else None."""
        ...

    def killed(self) -> Sequence[int]:
        """The numbers of the last members that something outside ended, where that is known."""
        ...

    def replace(self, member: Any, why: str) -> None:
        """End one of its members, which hangs or cannot be asked any more; another one is started."""
        ...

    def why_none(self) -> str:
        """Why there is no replica, for people."""
        ...

    def close(self) -> None:
        """End them all."""
        ...


class Router(Protocol):
    """Chooses among the replicas of a group; it hears of them on the server's loop."""

    def joined(self, replica: int, opened: Loaded) -> None:
        """It takes requests from now on."""
        ...

    def left(self, replica: int) -> None:
        """It takes no more; may be said twice."""
        ...

    def heard(self, replica: int, beat: Heartbeat) -> None:
        """How it is now."""
        ...

    def started(self, replica: int, requests: Sequence[int], now_s: float) -> None:
        """Rows of these requests are on its device."""
        ...


def other_model(first: Loaded, other: Loaded) -> str:
    """Why the second may not answer beside the first; empty where it may."""
    changed = [name for name, each in first.info.adapters.items() if other.info.adapters.get(name) != each]
    if changed:
        return (
            f"this replica and the first replica have loaded different files of the adapter {changed[0]}; put the same "
            "files on every machine, then restart the server"
        )
    if first.info.checksum == other.info.checksum:
        return ""
    return (
        f"this replica has loaded different weights of {other.info.model} than the first replica (checksums: here "
        f"{other.info.checksum}, there {first.info.checksum}); put the same files on every machine, then restart the "
        "server"
    )


class ReplicaGroup:
    """Follows a fleet: told by the fleet's thread, it acts on the server's loop."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._known: list[LiveReplica] = []  # that are listened to
        self._askable: dict[int, LiveReplica] = {}  # of those, by their numbers
        self._gone = NOTHING  # what replicas that are no more had done
        self.wake_up = WakeUp()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, fleet: ReplicaFleet) -> list[Loaded]:
        """Start the replicas and wait for them; raises what the first that cannot start says."""
        self.fleet = fleet
        fleet.start()
        return [each.opened for each in fleet.members() if each.opened is not None]

    def start(self, slo_s: float) -> None:
        """On the loop that will serve: the replicas are listened to from now on."""
        self._loop = asyncio.get_running_loop()
        for member in self.fleet.members():
            self._join(member)
        self._spawn(self._watch(max(_LEAST_SILENT_S, _SILENT_SLOS * slo_s)))

    def link(self, replica: int) -> Link:
        """To one that can be asked."""
        link = self._askable[replica].link
        assert link is not None  # noqa: S101 - it has joined
        return link

    def look(self) -> None:
        """Learn what replicas have launched."""
        for member in self._askable.values():
            if member.link is not None:
                member.link.look()

    def wakes_in_s(self) -> float | None:
        """As its fleet says; None where a replica can be asked."""
        return None if self._askable else self.fleet.wakes_in_s()

    async def awake(self, rows: int, deadline_s: float | None, visit: Visit | None = None) -> None:
        """Until a replica can be asked, where the fleet sleeps; raises Asleep where that is too late."""
        if not self._askable:  # that is no work of the host's: it would turn others away for what a request costs
            await paused(visit, self.wake_up.wait(rows, deadline_s, self.wakes_in_s))

    def health(self) -> Health:
        """Whether a replica can be asked, or will be by whoever asks; one that hangs is replaced."""
        reason = "" if self._askable or self.wakes_in_s() is not None else self.fleet.why_none()
        return Health(not reason, reason, 0.0, self.waiting()[Lane.ONLINE].oldest_s)

    def stats(self) -> EngineStats:
        """Of all replicas since the start, those that are no more included."""
        return stats_together([self._gone, *(each.stats for each in self._beats())])

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for a device."""
        asleep = dict.fromkeys(Lane, Queue(0, 0.0)) | {Lane.ONLINE: self.wake_up.queue()}
        return queues_together([asleep, *(each.waiting for each in self._beats())])

    def lane_replicas(self) -> list[RemoteReplica]:
        """Those in whose batch lanes jobs may run."""
        from twoshift.fleet.remote_lane import RemoteReplica  # jobs have packages of their own

        members = self.fleet.members()
        for member in members:
            member.lanes = member.lanes or RemoteReplica(member)
        return [each.lanes for each in members if each.lanes is not None]

    # In the fleet's thread

    def opened(self, member: LiveReplica) -> None:
        """It can be asked."""
        self._on_loop(lambda: self._join(member))

    def leaving(self, member: LiveReplica) -> None:
        """It shall be asked nothing new."""
        self._on_loop(lambda: self._leave(member))

    def ended(self, member: LiveReplica) -> None:
        """It is gone; what it has done stays counted."""
        self._on_loop(lambda: self._remove(member))

    def said(self, member: LiveReplica, message: UsageReport | WorkSaid | WorkEnded) -> None:
        """About a job."""
        if member.lanes is not None:
            member.lanes.hear(message)

    # On the server's loop

    def _join(self, member: LiveReplica) -> None:
        if member.link is not None or member.gone:
            return
        number, opened = member.number, member.opened
        assert opened is not None  # noqa: S101 - only then is it told of
        member.link = Link(
            lambda beat: self._heard(member, beat),
            lambda ids, began_s: self._router.started(number, ids, began_s),
            lambda: self._cut_off(member),
            member.child.same_clock,
            f"{opened.board_path}-{os.getpid()}-{next(_links)}" if opened.board_path else "",
        )
        self._known.append(member)
        self._spawn(member.link.connect(member.child.take_live()))
        self._askable[number] = member
        self._router.joined(number, opened)
        self.wake_up.joined()

    def _cut_off(self, member: LiveReplica) -> None:
        """Its connection is gone, and mostly so is it; where it lives on, nobody could ask it."""
        self._leave(member)

        def look() -> None:
            if not member.gone and member in self.fleet.members():
                self.fleet.replace(member, "the connection between the server and the replica broke")

        asyncio.get_running_loop().call_later(_BROKEN_S, look)

    def _leave(self, member: LiveReplica) -> None:
        """Ask it nothing more; what it has, it may answer."""
        self._askable.pop(member.number, None)
        self._router.left(member.number)

    def _heard(self, member: LiveReplica, beat: Heartbeat) -> None:
        member.beat = beat
        if beat.reason:
            self._leave(member)
            self.fleet.replace(member, beat.reason)
        else:
            self._router.heard(member.number, beat)

    async def _watch(self, silent_s: float) -> None:
        """Replaces those that say nothing any more; where this loop itself stood still, nobody is blamed."""
        while True:
            slept_s = time.monotonic()
            await asyncio.sleep(_WATCH_S)
            stood_still = time.monotonic() - slept_s > 4 * _WATCH_S
            for member in [*self._askable.values()]:
                link = member.link
                if link is None:
                    continue
                if stood_still:
                    link.heard_s = time.monotonic()
                elif time.monotonic() - link.heard_s > silent_s:
                    self._leave(member)
                    self.fleet.replace(member, f"the replica has sent no heartbeat for {silent_s:.3g} s")

    def _remove(self, member: LiveReplica) -> None:
        self._leave(member)
        if member.link is not None:
            member.link.close()
            member.link.has_ended(member.was_killed)
        if member in self._known:
            self._known.remove(member)
            if member.beat is not None:
                self._gone = stats_together([self._gone, member.beat.stats])

    def _spawn(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _beats(self) -> list[Heartbeat]:
        return [each.beat for each in self._known if each.beat is not None]

    def _on_loop(self, what: Any) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(what)
