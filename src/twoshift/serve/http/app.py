"""Paths to faces; what every reply has, whoever makes it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from twoshift.serve.http.faults import Fault, NotFound, fault_of
from twoshift.serve.http.messages import HttpError, Reply, Request
from twoshift.serve.service import Answer, ServedModel

__all__ = ["App", "Exchange", "Face", "Told"]

_logger = logging.getLogger("twoshift.serve")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_SHOWN_ID = b"x-request-id"
Told = Callable[[Fault], bytes]  # an error as a face writes it


@dataclass(slots=True)
class Exchange:
    """A request on its way to a reply."""

    request: Request
    matched: dict[str, str]  # of the path
    began_s: float  # on the monotonic clock
    model: ServedModel | None = None  # whose books it goes into
    answer: Answer | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])

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
        if not 0 < milliseconds <= 3_600_000:
            raise HttpError(400, f"x-request-timeout-ms: {given!r}; a number of milliseconds up to an hour is expected")
        return milliseconds / 1e3


Face = Callable[[Exchange], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    face: Face
    told: Told


class App:
    """Routes, request ids, timings, metrics and errors."""

    def __init__(self, told: Told, check: Callable[[Exchange], Any] | None = None) -> None:
        self._told = told  # errors of paths that no face has
        self._check = check
        self._exact: dict[str, dict[str, _Route]] = {}  # path -> method -> route
        self._patterns: list[tuple[re.Pattern[str], dict[str, _Route]]] = []

    def add(self, method: str, path: str, face: Face, told: Told) -> None:
        """`{name}` in the path matches anything but a slash."""
        if "{" not in path:
            self._exact.setdefault(path, {})[method] = _Route(method, face, told)
            return
        pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))
        known = next((routes for each, routes in self._patterns if each.pattern == pattern.pattern), None)
        if known is None:
            self._patterns.append((pattern, known := {}))
        known[method] = _Route(method, face, told)

    async def handle(self, request: Request) -> Reply:
        """One reply for each request."""
        exchange = Exchange(request, {}, time.monotonic())
        told = self._told
        fault: Fault | None = None
        try:
            route = self._route(exchange)
            told = route.told
            if self._check is not None:
                self._check(exchange)
            reply = await route.face(exchange)
        except Exception as error:
            fault = fault_of(error)
            if fault.status >= 500 and fault.status not in (503, 504):
                _logger.exception("%s %s", request.method, request.target.decode("latin-1"), exc_info=error)
            reply = Reply(fault.status, told(fault), headers=fault.headers)
        self._finish(exchange, reply, fault)
        return reply

    def refused(self, error: HttpError) -> Reply:
        """A request that could not be read."""
        fault = fault_of(error)
        headers = [(_SHOWN_ID, uuid.uuid4().hex.encode())]
        return Reply(fault.status, self._told(fault), headers=headers, close=True)

    def _route(self, exchange: Exchange) -> _Route:
        path = exchange.request.path
        routes = self._exact.get(path)
        if routes is None:
            for pattern, found in self._patterns:
                if matched := pattern.fullmatch(path):
                    exchange.matched, routes = matched.groupdict(), found
                    break
            else:
                raise NotFound(f"nothing is at {path[:200]!r}")
        method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
        route = routes.get(method)
        if route is None:
            raise HttpError(405, f"{path[:200]!r} takes {', '.join(sorted(routes))}")
        return route

    @staticmethod
    def _finish(exchange: Exchange, reply: Reply, fault: Fault | None) -> None:
        now_s = time.monotonic()
        given = exchange.request.header(_SHOWN_ID)
        shown = given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        reply.headers += [(_SHOWN_ID, shown.encode("latin-1")), *exchange.headers]
        answer, model = exchange.answer, exchange.model
        if answer is not None:
            answer.stages.finish += now_s
            reply.headers.append((b"server-timing", answer.stages.header()))
        else:
            reply.headers.append((b"server-timing", b"total;dur=%.3f" % (1e3 * (now_s - exchange.began_s))))
        if model is not None:
            if answer is not None:
                model.metrics.answered(answer.stages, len(answer.rows), answer.tokens)
            refusal = fault.kind if fault is not None else None
            model.metrics.replied(reply.status, now_s - exchange.began_s, refusal)
