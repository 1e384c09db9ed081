"""Requests that would be too late are refused as they are read: before a task, a parser or a model sees them."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

from twoshift.endpoints.faults import Fault
from twoshift.serve.deployments import Deployment
from twoshift.serve.host import UNREAD, Host, Visit
from twoshift.serve.http.app import App, ErrorEncoder
from twoshift.serve.http.messages import Request
from twoshift.serve.http.paced_starts import PacedStarts
from twoshift.serve.request_accounting import log_access, request_id, writes_access

__all__ = ["Gate"]

_TIMEOUT, _ID = b"x-request-timeout-ms", b"x-request-id"
_KIND = "overloaded"
_READ_S = 1e-5  # what it takes to read a request, and to look whether it is admitted
_HEAD = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: %d\r\nretry-after-ms: %d\r\nx-request-id: %b\r\n"
    b"server-timing: total;dur=%.3f\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
)
_CLOSE = b"connection: close\r\n"


class Deployed(Protocol):
    """What the gate knows of the models behind it."""

    def model_of(self, name: str | None) -> Deployment | None:
        """The one of that name, or the only one; None where a request's head does not tell."""
        ...

    def timeout_s(self, model: Deployment | None) -> float:
        """Of a request that brings none."""
        ...


class Gate:
    """In front of every path whose requests the host prepares and a device answers."""

    def __init__(self, app: App, host: Host, deployed: Deployed) -> None:
        self._app, self._host, self._policy, self._deployed = app, host, host.policy, deployed
        self._bodies: dict[ErrorEncoder, bytes] = {}
        self._starts = PacedStarts()

    def admits(self, request: Request, in_turn: bool = False) -> bool:
        """Whether it is let in: at once for paths that nobody gates. False: it is to be refused.

        `in_turn`: it has waited for other replies of its connection; else it is read now.
        """
        route, matched = self._app.gated_route(request)
        if route is None or request.visit is not None:
            return True
        now_s, size = time.monotonic(), len(request.body)
        if not in_turn:
            request.arrived_s = self._host.read_since_s(now_s)
        model = self._deployed.model_of(matched.get("model"))
        had_s = _asked_s(request) or self._deployed.timeout_s(model)
        # Where answers may be precomputed, only the host is asked here: the others are admitted at their lane
        path = None if model is None or model.may_skip_device else model
        if self._host.wait_s(size, request.arrived_s + had_s - now_s, now_s, path) is not None:
            return False
        request.visit = Visit(self._host, size)
        return True

    def admit_in_turn(self, request: Request) -> None:
        """One that has waited for other replies of its connection: until now it would have held a place for nothing."""
        if request.visit is None and not request.refused and not request.unread:
            request.refused = not self.admits(request, in_turn=True)

    def turn_of(self, request: Request) -> asyncio.Future[None] | None:
        """Done once it may begin, where that is not now."""
        return None if request.visit is None else self._starts.turn(request.visit.size)

    def refuse_in_s(self, connected_s: float) -> float:
        """How long the next refusal waits, over a connection that was made then."""
        return self._policy.refuse_in_s(time.monotonic(), connected_s)

    def refused(self, request: Request, held: bool, is_last: bool) -> bytes:
        """The refusal as it goes over the wire, counted; `held`: it has waited for its turn, as many do.

        `is_last`: its connection is closed after it.
        """
        began_s = time.monotonic()
        self._policy.woke(began_s)
        route, matched = self._app.gated_route(request)
        assert route is not None  # noqa: S101 - only such are refused
        body = self._bodies.get(route.told)
        if body is None:
            body = self._bodies[route.told] = route.told(Fault(503, _KIND, UNREAD))
        wait_s = self._policy.retry_after_s(self._policy.ahead_s, began_s, held)
        took_s, wait_ms = began_s - request.arrived_s, max(1, math.ceil(1e3 * wait_s))
        shown = request_id(request.header(_ID))
        if (model := self._deployed.model_of(matched.get("model"))) is not None:
            model.metrics.refused_unread(took_s, _KIND, max(1, round(model.rows_per_request)))
        if writes_access():
            log_access(f"{request.method} {request.path[:200]}", 503, request.arrived_s, "", shown)
        close = _CLOSE if is_last else b""
        return _HEAD % (-(-wait_ms // 1000), wait_ms, shown.encode("latin-1"), 1e3 * took_s, close, len(body), body)

    def wrote(self, began_s: float) -> None:
        """A refusal, after so long."""
        taken_s = (now_s := time.monotonic()) - began_s + _READ_S
        self._policy.refusal.observed(0, taken_s)
        self._policy.worked(taken_s, now_s)


def _asked_s(request: Request) -> float | None:
    """The client's own timeout; one that cannot be is told where it is parsed."""
    given = request.headers.get(_TIMEOUT)
    if given is None:
        return None
    try:
        milliseconds = float(given)
    except ValueError:
        return None
    return milliseconds / 1e3 if milliseconds >= 1 else None
