"""Paths to faces; what every reply has, whoever makes it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from twoshift.errors import InvalidInput, NotFound
from twoshift.serve.faults import Fault, fault_of
from twoshift.serve.http.messages import HttpError, Reply, Request, refusal
from twoshift.serve.keys import ANYONE, Caller, Keys
from twoshift.serve.model import Answer, ServedModel

__all__ = ["App", "Exchange", "Face", "Told"]

_logger = logging.getLogger("twoshift.serve")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_SHOWN_ID = b"x-request-id"
_LONGEST_MS = 3_600_000
Told = Callable[[Fault], bytes]  # an error as a face writes it


@dataclass(slots=True)
class Exchange:
    """A request on its way to a reply."""

    request: Request
    matched: dict[str, str]  # of the path
    caller: Caller = ANYONE
    model: ServedModel | None = None  # whose books it goes into
    answer: Answer | None = None

    @property
    def timeout_s(self) -> float | None:
        """What the client gives it; None: the model's objective."""
        given = self.request.header(b"x-request-timeout-ms")
        if given is None:
            return None
        try:
            milliseconds = float(given)
        except ValueError:
            milliseconds = -1.0
        if not 0 < milliseconds <= _LONGEST_MS:
            raise InvalidInput("x-request-timeout-ms", given, "a number of milliseconds up to an hour")
        return milliseconds / 1e3


Face = Callable[[Exchange], Awaitable[Reply]]


class _Route(NamedTuple):
    face: Face
    told: Told
    open: bool  # no key is needed


class App:
    """Routes, keys, request ids, timings, metrics and errors."""

    def __init__(self, told: Told, keys: Keys) -> None:
        self._told, self._keys = told, keys  # errors of paths that no face has
        self._exact: dict[str, dict[str, _Route]] = {}  # path -> method -> route
        self._patterns: list[tuple[re.Pattern[str], dict[str, _Route]]] = []

    def add(self, method: str, path: str, face: Face, told: Told, *, open: bool = False) -> None:  # noqa: A002
        """`{name}` in the path matches anything but a slash."""
        route = _Route(face, told, open)
        if "{" not in path:
            self._exact.setdefault(path, {})[method] = route
            return
        pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))
        known = next((routes for each, routes in self._patterns if each.pattern == pattern.pattern), None)
        if known is None:
            self._patterns.append((pattern, known := {}))
        known[method] = route

    async def handle(self, request: Request) -> Reply:
        """One reply for each request."""
        exchange, told, fault = Exchange(request, {}), self._told, None
        try:
            route = self._route(exchange)
            told = route.told
            if not route.open:
                exchange.caller = self._keys.caller(request.header(b"authorization"))
            reply = await route.face(exchange)
        except Exception as error:
            fault = _fault(error)
            if fault.status == 500:
                _logger.exception("%s %s", request.method, request.target.decode("latin-1"), exc_info=error)
            reply = refusal(fault, told(fault))
            if isinstance(error, HttpError) and error.allow:
                reply.headers.append((b"allow", ", ".join(error.allow).encode()))
        self._finish(exchange, reply, fault)
        return reply

    def refused(self, error: HttpError) -> Reply:
        """A request that could not be read."""
        fault = _fault(error)
        reply = refusal(fault, self._told(fault))
        reply.headers.append((_SHOWN_ID, uuid.uuid4().hex.encode()))
        reply.close = True
        return reply

    def _route(self, exchange: Exchange) -> _Route:
        path = exchange.request.path
        routes = self._exact.get(path)
        if routes is None:
            for pattern, found in self._patterns:
                if matched := pattern.fullmatch(path):
                    exchange.matched, routes = matched.groupdict(), found
                    break
            else:
                raise NotFound("path", path, "one that /openapi.json names")
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        route = routes.get(method)
        if route is None:
            raise HttpError(405, f"{path[:200]!r} takes {', '.join(sorted(routes))}", allow=sorted(routes))
        return route

    @staticmethod
    def _finish(exchange: Exchange, reply: Reply, fault: Fault | None) -> None:
        now_s, arrived_s = time.monotonic(), exchange.request.arrived_s
        given = exchange.request.header(_SHOWN_ID)
        shown = given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        reply.headers.append((_SHOWN_ID, shown.encode("latin-1")))
        answer, model = exchange.answer, exchange.model
        if answer is None or model is None:
            reply.headers.append((b"server-timing", b"total;dur=%.3f" % (1e3 * (now_s - arrived_s))))
        else:
            answer.stages.finish += now_s
            reply.headers.append((b"server-timing", answer.stages.header(model.version)))
            model.metrics.answered(answer.stages)
        if model is not None:
            model.metrics.replied(reply.status, now_s - arrived_s, fault.kind if fault is not None else None)


def _fault(error: Exception) -> Fault:
    if isinstance(error, HttpError):
        return Fault(error.status, "invalid_request_error", str(error))
    return fault_of(error)
