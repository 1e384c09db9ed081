"""A model whose replicas are processes: requests go to the one that will have done first."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Any

from twoshift.endpoints.facts import characters_of
from twoshift.engine import RowResult
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.errors import Late, TryLater
from twoshift.fleet.control import Loaded, UsageReport, WorkEnded, WorkSaid
from twoshift.fleet.link import Link, ReplicaLost
from twoshift.fleet.member import Member
from twoshift.fleet.sums import NOTHING, derived_together, queues_together, stats_together
from twoshift.fleet.supervisor import Supervisor
from twoshift.fleet.wire import Done, Heartbeat
from twoshift.policy.body_guess import BodyGuess
from twoshift.policy.cost import CallCost
from twoshift.policy.reconcile_values import ReplicaStage
from twoshift.policy.routing import RoutingPolicy, TokenGuess
from twoshift.ports import RuntimeInfo
from twoshift.serve.completions import Completions
from twoshift.serve.derived import Derived
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import Answer
from twoshift.serve.stages import Stages
from twoshift.types import CallSize, Lane, ReplicaCounts, Tensor

if TYPE_CHECKING:
    from twoshift.fleet.remote_lane import RemoteReplica

__all__ = ["FleetModel", "answer_of"]

_TRIES = 2  # at two replicas, inside its deadline
_RETRY_S = 1.0  # when to come back after a crash
_WATCH_S = 0.5
_BROKEN_S = 2.0  # after its line, for a replica's process to be seen to end
_LEAST_SILENT_S, _SILENT_SLOS = 10.0, 20.0  # without a word from a replica: it hangs


class FleetModel:
    """For the faces it is a model like any other; the supervisor's thread says what becomes of its replicas."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outputs: tuple[Tensor, ...] = ()
        self._routing = RoutingPolicy()
        self._requests = itertools.count()
        self._known: list[Member] = []  # that are listened to
        self._links: dict[int, Member] = {}  # of those, the ones that can be asked, by their numbers
        self._derived: dict[int, Derived] = {}  # of those
        self._gone = NOTHING  # what replicas that are no more had done
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, supervisor: Supervisor) -> None:
        """Start the replicas and wait for them; raises what the first that cannot start says."""
        self.supervisor = supervisor
        supervisor.start()
        members = supervisor.members()
        first = members[0].opened
        assert first is not None  # noqa: S101 - it is ready
        self._first: Loaded = first
        self.outputs = first.outputs
        self.derived = derived_together([each.opened.derived for each in members if each.opened is not None])
        self._guess = TokenGuess(first.info.max_row_tokens)
        self._body_guess = BodyGuess(first.info.max_row_tokens)

    def start(self, _completions: Completions) -> None:
        """On the loop that will serve: the replicas are listened to from now on."""
        self._loop = asyncio.get_running_loop()
        for member in self.supervisor.members():
            self._join(member)
        self._spawn(self._watch())

    @property
    def info(self) -> RuntimeInfo:
        """Of the model; each replica has the same."""
        return self._first.info

    @property
    def most_rows(self) -> int:
        """Of a request: one replica answers it."""
        return self._first.most_rows

    def derived_now(self) -> Derived:
        """From the curves as learned so far."""
        return derived_together([*self._derived.values()] or [self._first.derived])

    def health(self) -> Health:
        """Whether a replica can be asked; one that hangs is replaced."""
        reason = "" if self._links else self.supervisor.why_none()
        return Health(not reason, reason, 0.0, self.waiting()[Lane.ONLINE].oldest_s)

    def stats(self) -> EngineStats:
        """Of all replicas since the start, those that are no more included."""
        return stats_together([self._gone, *(each.stats for each in self._beats())])

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for a device."""
        return queues_together([each.waiting for each in self._beats()])

    def replicas(self) -> ReplicaCounts:
        """How many there are."""
        return self.supervisor.replicas()

    def lane_replicas(self) -> list[RemoteReplica]:
        """Those in whose batch lanes jobs may run."""
        from twoshift.fleet.remote_lane import RemoteReplica  # jobs have packages of their own

        members = self.supervisor.members()
        for member in members:
            member.lanes = member.lanes or RemoteReplica(member)
        return [each.lanes for each in members if each.lanes is not None]

    def scale_to(self, replicas: int) -> None:
        """So many, at least one: new ones start in the background, those that go finish first."""
        self.supervisor.scale_to(replicas)

    @property
    def rows_per_request(self) -> float:
        """On the average, of late."""
        return self._body_guess.rows_per_request

    def finish_in_s(self, size: int, requests: int, _left_s: float) -> float:
        """Until so many requests of so many bytes would be answered by a replica; 0 where one has nothing to do."""
        return self._routing.least_s(self._body_guess.size(size, requests), time.monotonic())

    async def answer(self, request: LiveRequest) -> Answer:
        """As a replica answers it; one that is lost before it began, or refuses, is not the only one that is asked."""
        rows, visit = request.rows, request.visit
        characters = characters_of(rows)
        size = self._guess.size(characters)
        refused: TryLater | None = None
        tried = list[int]()
        while len(tried) < _TRIES and (found := self._routing.choose(size, time.monotonic(), tried)) is not None:
            tried.append(found)
            try:
                answer = answer_of(await self._ask(found, size, request))
            except ReplicaLost as lost:
                if lost.started:
                    raise TryLater("the replica that had begun with it was lost", _RETRY_S) from None
                refused = refused or TryLater("the replica that had it was lost", _RETRY_S)
            except TryLater as error:
                refused = error if refused is None or error.retry_after_s < refused.retry_after_s else refused
            else:
                self._guess.seen(sum(characters), answer.tokens)
                if visit is not None:
                    self._body_guess.seen(visit.size, len(rows), answer.tokens)
                return answer
            now_s = time.monotonic()
            if now_s + self._routing.least_s(size, now_s, tried) >= request.deadline_s:
                break  # the others have no time for it either
        raise refused or TryLater(f"no replica can be asked: {self.supervisor.why_none()}", _RETRY_S)

    def close(self) -> None:
        """End the replicas."""
        self.supervisor.close()

    # On the server's loop

    async def _ask(self, replica: int, size: CallSize, request: LiveRequest) -> Done:
        link = self._links[replica].link
        assert link is not None  # noqa: S101 - it can be asked
        number = next(self._requests)
        self._routing.sent(replica, number, size)
        try:
            done = await link.ask(number, request)
        except (Late, asyncio.CancelledError):
            self._routing.abandoned(replica, number)
            raise
        except BaseException:
            self._routing.ended(replica, number)
            raise
        self._routing.ended(replica, number)
        return done

    def _join(self, member: Member) -> None:
        """Ask it, too."""
        if member.link is not None or member.gone:
            return
        number, opened = member.number, member.opened
        assert opened is not None  # noqa: S101 - only then is it told of
        member.link = Link(
            lambda beat: self._heard(member, beat),
            lambda ids: self._routing.started(number, ids, time.monotonic()),
            lambda: self._cut_off(member),
        )
        self._known.append(member)
        self._spawn(member.link.connect(member.child.take_live()))
        self._links[number], self._derived[number] = member, opened.derived
        self._routing.joined(number, opened.cost)

    def _cut_off(self, member: Member) -> None:
        """Its line is gone, and mostly so is it; where it lives on, nobody could ask it."""
        self._leave(member)

        def look() -> None:
            if not member.gone and member.stage is ReplicaStage.READY:
                self.supervisor.replace(member, "its line to the front broke")

        asyncio.get_running_loop().call_later(_BROKEN_S, look)

    def _leave(self, member: Member) -> None:
        """Ask it nothing more; what it has, it may answer."""
        self._routing.left(member.number)
        self._links.pop(member.number, None)
        self._derived.pop(member.number, None)

    def _heard(self, member: Member, beat: Heartbeat) -> None:
        member.beat = beat
        if beat.reason:
            self._leave(member)
            self.supervisor.replace(member, beat.reason)
            return
        cost = None if beat.cost is None else CallCost.from_dict(beat.cost)
        background = any(queue.rows for lane, queue in beat.waiting.items() if lane is not Lane.ONLINE)
        behind_s = self.derived.background_call_s / 2 if background else 0.0
        self._routing.learned(member.number, cost, behind_s, not beat.running_s, beat.host_s, beat.reserve_s)
        if beat.derived is not None and member.number in self._derived:
            self._derived[member.number] = Derived(**beat.derived)

    async def _watch(self) -> None:
        """Replaces those that say nothing any more; where this loop itself stood still, nobody is blamed."""
        silent_s = max(_LEAST_SILENT_S, _SILENT_SLOS * self.derived.slo_s)
        while True:
            slept_s = time.monotonic()
            await asyncio.sleep(_WATCH_S)
            stood_still = time.monotonic() - slept_s > 4 * _WATCH_S
            for member in [*self._links.values()]:
                link = member.link
                if link is None:
                    continue
                if stood_still:
                    link.heard_s = time.monotonic()
                elif time.monotonic() - link.heard_s > silent_s:
                    self._leave(member)
                    self.supervisor.replace(member, f"it has said nothing for {silent_s:.3g} s")

    def _spawn(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _beats(self) -> list[Heartbeat]:
        return [each.beat for each in self._known if each.beat is not None]

    # In the supervisor's thread

    def opened(self, member: Member) -> None:
        """It can be asked."""
        self._on_loop(lambda: self._join(member))

    def leaving(self, member: Member) -> None:
        """It shall be asked nothing new."""
        self._on_loop(lambda: self._leave(member))

    def ended(self, member: Member) -> None:
        """It is gone; what it has done stays counted."""
        self._on_loop(lambda: self._buried(member))

    def said(self, member: Member, message: UsageReport | WorkSaid | WorkEnded) -> None:
        """About a job."""
        if member.lanes is not None:
            member.lanes.hear(message)

    def _buried(self, member: Member) -> None:
        self._leave(member)
        if member.link is not None:
            member.link.close()
        if member in self._known:
            self._known.remove(member)
        if member.beat is not None:
            self._gone = stats_together([self._gone, member.beat.stats])

    def _on_loop(self, what: Any) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(what)


def answer_of(done: Done) -> Answer:
    """As the faces want it."""
    rows = [
        RowResult(part.columns, at, part.forward_s, part.call_rows) for part in done.results for at in range(part.rows)
    ]
    return Answer(rows, done.tokens, done.truncated, Stages(*done.stages))
