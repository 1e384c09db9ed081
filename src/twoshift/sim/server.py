"""A server under a virtual clock: its host, its device, or several replicas of both behind a front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from twoshift.policy.admission import AdmissionPolicy, Admit, Try
from twoshift.policy.cost import CallCost
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.routing import RoutingPolicy
from twoshift.sim.device import Backlog, DeviceUse, SimulatedDevice
from twoshift.sim.events import ARRIVE, Events
from twoshift.sim.host import HostCosts, SimulatedHost
from twoshift.sim.traffic import Arrivals
from twoshift.sim.truth import ChangingTruth, DeviceTruth
from twoshift.types import CallSize, Item

__all__ = ["Node", "Request", "ServerLog", "SimulatedServer"]

_GATHER_S = 0.001  # the device is woken once all requests that are here have been submitted, or after this
_TRIES = 2  # at two replicas
_BEAT_S = 0.5  # how often a replica tells its curve


@dataclass(slots=True)
class ServerLog:
    """What happened to the live requests. Rows are counted; a latency is a request's."""

    latencies_s: list[float] = field(default_factory=list[float])  # of the answered requests
    in_slo: int = 0
    refused: int = 0
    dropped: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """On its way."""

    number: int
    at_s: float
    deadline_s: float
    size: CallSize
    lengths: tuple[int, ...]
    left: int  # rows that have no answer
    is_dropped: bool = False
    tried: list[int] = field(default_factory=list[int])  # replicas


class Node:
    """One process with a device: its host, its policies."""

    def __init__(
        self,
        events: Events,
        policy: LanePolicy,
        admission: AdmissionPolicy | None,
        host: HostCosts | None,
    ) -> None:
        self.policy, self.admission = policy, admission
        self.costs, self.host = host or HostCosts(), SimulatedHost(events)
        self.device: SimulatedDevice
        self.told: CallCost | None = None  # to the front
        self._wake_by_s: float | None = None  # when the device looks at the latest
        self.host.on_idle = self._wake_now

    def wake(self, now_s: float) -> None:
        """The device looks once every request that is here by now has been submitted."""
        if not self.device.is_resting:
            return
        if not len(self.host) or (self._wake_by_s is not None and now_s >= self._wake_by_s):
            self._wake_by_s = now_s
            self._wake_now(now_s)
        elif self._wake_by_s is None:
            self._wake_by_s = now_s + _GATHER_S

    def _wake_now(self, now_s: float) -> None:
        if self._wake_by_s is not None:
            self._wake_by_s = None
            self.device.wake(now_s)


class SimulatedServer:
    """Serves arrivals to the last row."""

    def __init__(
        self,
        nodes: Callable[[Events], Sequence[Node]],
        truth: DeviceTruth | ChangingTruth,
        luck: Callable[[], float],
        front: HostCosts | None = None,
    ) -> None:
        self._events = Events()
        self.nodes = nodes(self._events)
        self._truth, self._luck = truth, luck
        self._front_costs, self._front = front or HostCosts(), SimulatedHost(self._events)
        self._routing = RoutingPolicy() if len(self.nodes) > 1 else None
        self._owners: dict[int, Request] = {}  # by the key of a row
        self._keys = 0
        self._log = ServerLog()
        self._pending = 0  # requests that have no reply
        self._has_more = True  # requests are still to come
        self._horizon_s = 0.0

    def run(
        self,
        arrivals: Arrivals,
        slo_s: float,
        background: Sequence[int] = (),
        progress: Callable[[float], None] | None = None,
    ) -> ServerLog:
        """Serve the arrivals; an endless backlog of rows of these lengths rides along."""
        self._horizon_s = arrivals.horizon_s
        for number, node in enumerate(self.nodes):
            backlog = Backlog(background, arrivals.horizon_s)
            owner = _Rows(self, node, number)
            node.device = SimulatedDevice(
                self._events, node.policy, self._truth, self._luck, owner, backlog, self._is_over
            )
            self._join(number, node)
            node.device.wake(0.0)
        self._next(_requests(arrivals, slo_s))
        self._events.run(None if progress is None else partial(_report, progress, arrivals.horizon_s))
        return self._log

    def uses(self) -> Iterator[DeviceUse]:
        """What each device did."""
        return (node.device.use for node in self.nodes)

    @property
    def front_s(self) -> float:
        """What the front was busy."""
        return self._front.busy_s

    def _is_over(self, now_s: float) -> bool:
        return now_s >= self._horizon_s and not self._has_more and not self._pending

    # A request's way in

    def _next(self, requests: Iterator[Request]) -> None:
        request = next(requests, None)
        if request is None:
            self._has_more = False
        else:
            self._events.at(request.at_s, ARRIVE, partial(self._arrive, requests, request))

    def _arrive(self, requests: Iterator[Request], request: Request, now_s: float) -> None:
        self._next(requests)
        self._pending += 1
        if self._routing is None:
            self._reach(0, request, now_s)
        else:
            self._front.do(self._front_costs.before(len(request.lengths)), partial(self._route, request), now_s)

    def _route(self, request: Request, now_s: float) -> None:
        assert self._routing is not None  # noqa: S101 - only with several replicas
        found = None
        if len(request.tried) < _TRIES:
            found = self._routing.choose(request.size, now_s, request.tried)
        if found is None:
            self._front.do(self._front_costs.refusal_s, partial(self._refused, request), now_s)
            return
        request.tried.append(found)
        self._routing.sent(found, request.number, request.size)
        self._reach(found, request, now_s)

    def _reach(self, number: int, request: Request, now_s: float) -> None:
        node = self.nodes[number]
        node.host.do(node.costs.before(len(request.lengths)), partial(self._submit, number, request), now_s)

    def _submit(self, number: int, request: Request, now_s: float) -> None:
        node = self.nodes[number]
        items = [Item(self._keys + at, request.deadline_s, n) for at, n in enumerate(request.lengths)]
        self._keys += len(items)
        answer = Admit(now_s) if node.admission is None else node.admission.decide(items, now_s, request.at_s)
        if isinstance(answer, Try):
            items = [item._replace(deadline_s=answer.until_s) for item in items]
        elif not isinstance(answer, Admit):
            self._turn_away(number, request, now_s)
            return
        for item in items:
            self._owners[item.key] = request
            node.policy.submit(item, now_s)
        node.wake(now_s)

    def _turn_away(self, number: int, request: Request, now_s: float) -> None:
        node = self.nodes[number]
        if self._routing is None:
            node.host.do(node.costs.refusal_s, partial(self._refused, request), now_s)
            return
        self._routing.ended(number, request.number)
        node.host.do(node.costs.refusal_s, partial(self._route, request), now_s)

    # And out

    def _refused(self, request: Request, now_s: float) -> None:
        self._log.refused += len(request.lengths)
        self._pending -= 1

    def settled(self, number: int, items: Sequence[Item], is_dropped: bool, now_s: float) -> None:
        """Rows have an answer, or never will."""
        for item in items:
            request = self._owners.pop(item.key)
            request.left -= 1
            request.is_dropped |= is_dropped
            if not request.left:
                node = self.nodes[number]
                seconds = node.costs.refusal_s if request.is_dropped else node.costs.after(len(request.lengths))
                node.host.do(seconds, partial(self._answered, number, request), now_s)

    def _answered(self, number: int, request: Request, now_s: float) -> None:
        if self._routing is None:
            self._reply(request, now_s)
            return
        self._routing.ended(number, request.number)
        self._front.do(self._front_costs.after(len(request.lengths)), partial(self._reply, request), now_s)

    def _reply(self, request: Request, now_s: float) -> None:
        self._pending -= 1
        rows = len(request.lengths)
        if request.is_dropped:
            self._log.dropped += rows
            return
        self._log.latencies_s.append(now_s - request.at_s)
        self._log.in_slo += rows * (now_s <= request.deadline_s + 1e-9)

    # What the front knows of its replicas

    def started(self, number: int, items: Sequence[Item], now_s: float) -> None:
        """Rows are on a device."""
        if self._routing is not None:
            self._routing.started(number, {self._owners[item.key].number for item in items}, now_s)

    def _join(self, number: int, node: Node) -> None:
        if self._routing is not None:
            self._routing.joined(number, node.policy.cost)
            self._beat(number, node, 0.0)

    def _beat(self, number: int, node: Node, now_s: float) -> None:
        assert self._routing is not None  # noqa: S101 - only with several replicas
        cost, policy = node.policy.cost, node.policy
        behind_s = policy.limits.budget_s / 2 if policy.background else 0.0
        self._routing.learned(number, None if cost is node.told else cost, behind_s, not policy.running)
        node.told = cost
        if not self._is_over(now_s):
            self._events.at(now_s + _BEAT_S, ARRIVE, partial(self._beat, number, node))


class _Rows:
    """What a device tells its server."""

    def __init__(self, server: SimulatedServer, node: Node, number: int) -> None:
        self._server, self._node, self._number = server, node, number

    def launched(self, items: Sequence[Item], now_s: float) -> None:
        self._server.started(self._number, items, now_s)

    def answered(self, items: Sequence[Item], now_s: float) -> None:
        self._server.settled(self._number, items, False, now_s)

    def dropped(self, items: Sequence[Item], now_s: float) -> None:
        self._server.settled(self._number, items, True, now_s)


def _report(progress: Callable[[float], None], horizon_s: float, now_s: float) -> None:
    progress(min(1.0, now_s / horizon_s))


def _requests(arrivals: Arrivals, slo_s: float) -> Iterator[Request]:
    tokens, rows = arrivals.tokens.tolist(), arrivals.rows
    for number, at_s in enumerate(arrivals.times_s.tolist()):
        lengths = tuple(tokens[number * rows : (number + 1) * rows])
        yield Request(number, at_s, at_s + slo_s, CallSize.of(lengths), lengths, rows)
