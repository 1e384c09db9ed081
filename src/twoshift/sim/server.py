"""A server under a virtual clock: its host, its device, or several replicas of both behind a front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from twoshift.policy.admission import AdmissionPolicy, Admit, Try
from twoshift.policy.cost import CallCost
from twoshift.policy.host import HostWork
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.routing import RoutingPolicy
from twoshift.sim.device import DeviceUse, SimBacklog, SimulatedDevice
from twoshift.sim.events import ARRIVE, EventQueue
from twoshift.sim.host import SimulatedHost
from twoshift.sim.traffic import Arrivals
from twoshift.sim.truth import ChangingTruth, DeviceTruth
from twoshift.types import CallSize, Item

__all__ = ["Node", "ServerLog", "SimRequest", "SimulatedServer", "bytes_of"]

_GATHER_S = 0.001  # the device is woken once all requests that are here have been submitted, or after this
_TRIES = 2  # at two replicas
_BODY_BYTES, _ROW_BYTES, _TOKEN_BYTES = 64, 4, 6
_BEAT_S = 0.5  # how often a replica tells its curve


@dataclass(slots=True)
class ServerLog:
    """What happened to the live requests. Rows are counted; a latency is a request's."""

    latencies_s: list[float] = field(default_factory=list[float])  # of the answered requests
    in_slo: int = 0
    refused: int = 0
    dropped: int = 0


@dataclass(slots=True, eq=False)
class SimRequest:
    """On its way."""

    number: int
    at_s: float
    deadline_s: float
    size: CallSize
    lengths: tuple[int, ...]
    size_bytes: int
    left: int  # rows that have no answer
    work: HostWork | None = None  # for the process that it came to
    inner: HostWork | None = None  # for the replica that it was sent to
    is_submitted: bool = False  # to a device
    result_s: float = 0.0  # when its last row had its result
    is_dropped: bool = False
    tried: list[int] = field(default_factory=list[int])  # replicas


class Node:
    """One process with a device: its host, its policies."""

    def __init__(
        self,
        policy: LanePolicy,
        admission: AdmissionPolicy | None,
        host: SimulatedHost,
    ) -> None:
        self.policy, self.admission, self.host = policy, admission, host
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
        events: EventQueue,
        nodes: Sequence[Node],
        front: SimulatedHost | None,
        truth: DeviceTruth | ChangingTruth,
        luck: Callable[[], float],
    ) -> None:
        """`front` is the process in front of several nodes."""
        self._events, self.nodes, self.front = events, nodes, front
        self._truth, self._luck = truth, luck
        self._routing = RoutingPolicy() if front is not None else None
        self._door = nodes[0].host if front is None else front  # where requests come in
        self._owners: dict[int, SimRequest] = {}  # by the key of a row
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
            backlog = SimBacklog(background, arrivals.horizon_s)
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

    def _is_over(self, now_s: float) -> bool:
        return now_s >= self._horizon_s and not self._has_more and not self._pending

    # A request's way in

    def _next(self, requests: Iterator[SimRequest]) -> None:
        request = next(requests, None)
        if request is None:
            self._has_more = False
        else:
            self._events.at(request.at_s, ARRIVE, partial(self._arrive, requests, request))

    def _arrive(self, requests: Iterator[SimRequest], request: SimRequest, now_s: float) -> None:
        self._next(requests)
        self._pending += 1
        door, size_bytes = self._door, request.size_bytes
        device_s = 0.0 if door.policy is None else self._finish_in_s(request, now_s)
        if not door.admits(size_bytes, request.deadline_s - now_s, device_s, now_s):
            door.do(door.costs.refusal_s, partial(self._refused, request), now_s)
            return
        request.work = door.enter(size_bytes)
        inside = partial(self._submit, 0) if self._routing is None else self._route
        door.do(door.costs.before(size_bytes), partial(inside, request), now_s)

    def _finish_in_s(self, request: SimRequest, now_s: float) -> float:
        """Until a device would have answered it, about; 0 where nobody has one."""
        if self._routing is not None:
            return self._routing.least_s(request.size, now_s)
        policy = self.nodes[0].policy
        left_s = request.deadline_s - now_s
        return policy.finish_about_s(request.size, now_s, left_s) - now_s if policy.has_live else 0.0

    def _route(self, request: SimRequest, now_s: float) -> None:
        assert self._routing is not None  # noqa: S101 - only with several replicas
        found = None
        if len(request.tried) < _TRIES:
            found = self._routing.choose(request.size, now_s, request.tried)
        if found is None:
            self._door.do(self._door.costs.refusal_s, partial(self._refused, request), now_s)
            return
        request.tried.append(found)
        self._routing.sent(found, request.number, request.size, now_s)
        self._hand_over(request)
        host = self.nodes[found].host
        request.inner = host.enter(request.size_bytes)
        host.do(host.costs.before(request.size_bytes), partial(self._submit, found, request), now_s)

    def _submit(self, number: int, request: SimRequest, now_s: float) -> None:
        node = self.nodes[number]
        items = [Item(self._keys + at, request.deadline_s, n) for at, n in enumerate(request.lengths)]
        self._keys += len(items)
        spare_s = self._reserve_s(number, request.deadline_s - request.at_s, now_s)
        admission = node.admission
        answer = Admit(now_s) if admission is None else admission.decide(items, now_s, request.at_s, spare_s)
        if isinstance(answer, Try):
            items = [item._replace(deadline_s=answer.until_s) for item in items]
        elif not isinstance(answer, Admit):
            self._turn_away(number, request, now_s)
            return
        for item in items:
            self._owners[item.key] = request
            node.policy.submit(item, now_s)
        self._hand_over(request)
        node.host.submitted(request.inner)
        node.wake(now_s)

    def _hand_over(self, request: SimRequest) -> None:
        """The process that it came to is done with it, until its reply."""
        if not request.is_submitted:
            request.is_submitted = True
            self._door.submitted(request.work)

    def _reserve_s(self, number: int, had_s: float, now_s: float) -> float:
        """What is kept of a request's time for its reply, here and in front."""
        kept_s = 0.0 if self._routing is None else self._door.reserve_s(had_s, now_s)
        return kept_s + self.nodes[number].host.reserve_s(had_s, now_s, kept_s)

    def _turn_away(self, number: int, request: SimRequest, now_s: float) -> None:
        host = self.nodes[number].host
        if self._routing is None:
            host.do(host.costs.refusal_s, partial(self._refused, request), now_s)
            return
        self._routing.ended(number, request.number)
        host.ended(request.inner, False)
        host.do(host.costs.refusal_s, partial(self._route, request), now_s)

    # And out

    def _refused(self, request: SimRequest, now_s: float) -> None:
        self._door.ended(request.work, request.is_submitted)
        self._log.refused += len(request.lengths)
        self._pending -= 1

    def settled(self, number: int, items: Sequence[Item], is_dropped: bool, now_s: float) -> None:
        """Rows have an answer, or never will."""
        costs = self.nodes[number].host.costs
        for item in items:
            request = self._owners.pop(item.key)
            request.left -= 1
            request.is_dropped |= is_dropped
            if not request.left:
                request.result_s = now_s
                seconds = costs.refusal_s if request.is_dropped else costs.after(request.size_bytes)
                self.nodes[number].host.do(seconds, partial(self._answered, number, request), now_s)

    def _answered(self, number: int, request: SimRequest, now_s: float) -> None:
        if self._routing is None:
            self._reply(request, now_s)
            return
        self._routing.answered(number, request.number, now_s)
        host = self.nodes[number].host
        host.ended(request.inner, True)
        if not request.is_dropped:
            host.replied(request.size_bytes, now_s - request.result_s, None, now_s)
        request.result_s = now_s
        self._door.do(self._door.costs.after(request.size_bytes), partial(self._reply, request), now_s)

    def _reply(self, request: SimRequest, now_s: float) -> None:
        self._pending -= 1
        self._door.ended(request.work, request.is_submitted)
        rows = len(request.lengths)
        if request.is_dropped:
            self._log.dropped += rows
            return
        in_time = now_s <= request.deadline_s + 1e-9
        late_s = None if in_time else request.deadline_s - request.at_s
        self._door.replied(request.size_bytes, now_s - request.result_s, late_s, now_s)
        self._log.latencies_s.append(now_s - request.at_s)
        self._log.in_slo += rows * in_time

    # What the front knows of its replicas

    def started(self, number: int, items: Sequence[Item], now_s: float) -> None:
        """Rows are on a device."""
        if self._routing is not None:
            self._routing.started(number, {self._owners[item.key].number for item in items}, now_s)

    def _join(self, number: int, node: Node) -> None:
        if self._routing is not None:
            self._routing.joined(number, node.policy.curves.cost)
            self._beat(number, node, 0.0)

    def _beat(self, number: int, node: Node, now_s: float) -> None:
        assert self._routing is not None  # noqa: S101 - only with several replicas
        cost, policy = node.policy.curves.cost, node.policy
        behind_s = policy.limits.budget_s / 2 if policy.background else 0.0
        host_s = 0.0 if node.host.policy is None else node.host.policy.request_s
        self._routing.learned(number, None if cost is node.told else cost, behind_s, not policy.running.calls, host_s)
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


def bytes_of(size: CallSize) -> int:
    """Of a request's body, about: words of English in JSON."""
    return _BODY_BYTES + size.rows * _ROW_BYTES + size.tokens * _TOKEN_BYTES


def _report(progress: Callable[[float], None], horizon_s: float, now_s: float) -> None:
    progress(min(1.0, now_s / horizon_s))


def _requests(arrivals: Arrivals, slo_s: float) -> Iterator[SimRequest]:
    tokens, rows = arrivals.tokens.tolist(), arrivals.rows
    for number, at_s in enumerate(arrivals.times_s.tolist()):
        lengths = tuple(tokens[number * rows : (number + 1) * rows])
        size = CallSize.uniform(1, lengths[0]) if rows == 1 else CallSize.of(lengths)
        yield SimRequest(number, at_s, at_s + slo_s, size, lengths, bytes_of(size), rows)
