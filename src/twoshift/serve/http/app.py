"""Paths to faces; what every reply has, whoever makes it."""

from __future__ import annotations

import asyncio
import enum
import logging
import re
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from twoshift.endpoints.faults import Fault, fault_of, forget_frames
from twoshift.errors import InvalidInput, Late, NotFound, TwoshiftError
from twoshift.serve.deployments import Deployment
from twoshift.serve.host import UNREAD
from twoshift.serve.http.event_stream import EventStream
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Reply, Request, refusal
from twoshift.serve.http.openapi import Operation, Route
from twoshift.serve.keys import ANYONE, Access, Caller, Keys
from twoshift.serve.model import Answer
from twoshift.serve.request_accounting import (
    Asked,
    falls_back,
    gone,
    log_access,
    replied,
    request_id,
    version_told,
    writes_access,
)

__all__ = ["Admitted", "App", "ErrorEncoder", "Exchange", "Face", "Guard", "RouteKind"]

_logger = logging.getLogger("twoshift.serve")
_SHOWN_ID, _ROUTE_KEY, _VERSION = b"x-request-id", b"x-route-key", b"x-twoshift-version"
_SOURCE = b"x-twoshift-source"
_TIMEOUT, _TIMEOUT_HEADER = "x-request-timeout-ms", b"x-request-timeout-ms"
_SHORTEST_MS, _LONGEST_MS = 1, 3_600_000
_MANY_TARGETS, _SHORT_TARGET = 1024, 256  # that are remembered; of how many bytes each
ErrorEncoder = Callable[[Fault], bytes]  # an error as a face writes it
_T = TypeVar("_T")
_NOTHING: dict[str, str] = {}
_SOON_S = 1.0
_WITH_BODY, _READS = frozenset(("POST", "PUT", "PATCH")), frozenset(("GET", "HEAD"))


class Exchange(msgspec.Struct):
    """A request on its way to a reply."""

    request: Request
    matched: dict[str, str]  # of the path; shared: to be read
    caller: Caller = ANYONE
    model: Deployment | None = None  # whose books it goes into
    answer: Answer | None = None
    goes_on: EventStream | None = None  # the reply, where it is counted at its end
    is_probe: bool = False
    is_pinned: bool = False  # to a version: no rollout chooses it, or judges by it

    def routed(self, model: Deployment, user: str | None = None) -> Deployment:
        """The version that answers, of the model that it asks for."""
        split = model.split
        if split is None or self.is_pinned:
            return model
        headers = self.request.headers
        named = headers.get(_ROUTE_KEY) or (user and user.encode("utf-8", "replace")) or headers.get(_SHOWN_ID)
        return split.chosen(named or None)

    @property
    def timeout_s(self) -> float | None:
        """What the client gives it; None: the model's objective."""
        given = self.request.header(_TIMEOUT_HEADER)
        if given is None:
            return None
        try:
            milliseconds = float(given)
        except ValueError:
            milliseconds = -1.0
        if not _SHORTEST_MS <= milliseconds <= _LONGEST_MS:
            raise InvalidInput(_TIMEOUT, given, f"a number of milliseconds from {_SHORTEST_MS} to {_LONGEST_MS:,}")
        return milliseconds / 1e3

    async def read(self, read: Callable[..., _T], *given: Any) -> _T:
        """What is made of a body: at once, or in a thread where the body is large."""
        large = self.request.large
        return read(*given) if large is None else await large.run(read, *given)

    def asked(self) -> Asked:
        """For its trace."""
        return Asked(f"{self.request.method} {self.request.path}", self.request.header(b"traceparent"))

    def ended(self, shown_id: str, status: int, fault: Fault | None) -> bytes:
        """Into the books with it; what Server-Timing says."""
        request = self.request
        if writes_access(is_routine=self.is_probe and status < 400):
            what = f"{request.method} {request.target[:200].decode('latin-1')}"
            log_access(what, status, request.arrived_s, self.caller.name, shown_id, self)
        return replied(request.arrived_s, self, status, fault, self.asked)


Face = Callable[[Exchange], Awaitable[Reply]]


HeadCheck = Callable[[dict[str, str], Caller], None]  # of what a path matched; raises
Guard = Callable[[Request], Caller]  # who asks, where no key says so; raises


class RouteKind(enum.Enum):
    """What is special about the requests of a route."""

    PLAIN = enum.auto()
    PROBE = enum.auto()  # logged only where they fail
    GATED = enum.auto()  # refused unread where the host has too much to do
    STREAMED = enum.auto()  # the face reads their body as it comes in; the path is a plain one


class _Route(NamedTuple):
    face: Face
    told: ErrorEncoder
    needs: Access
    check: HeadCheck | None
    guard: Guard | None
    is_probe: bool
    reads_body: bool
    gated: bool


class Admitted(msgspec.Struct):
    """What a request's head decides; an error is kept as it is told, since its traceback would hold the request."""

    caller: Caller
    matched: dict[str, str]
    route: _Route | None
    fault: Fault | None = None
    allow: Sequence[str] = ()

    @property
    def reads_body(self) -> bool:
        """Whether the face wants the body; it is skipped otherwise, and never unpacked."""
        return self.route is not None and self.route.reads_body


class _Found(NamedTuple):
    routes: dict[str, _Route]  # by method
    matched: dict[str, str]


class App:
    """Routes, keys, request ids, timings, metrics and errors."""

    def __init__(self, told: ErrorEncoder, keys: Keys) -> None:
        self._told, self._keys = told, keys  # errors of paths that no face has
        self.scheme = "http"  # by which clients reach it, where no proxy says otherwise
        self.needs_keys = bool(keys)  # only those who have one may ask
        self._told_below: dict[str, ErrorEncoder] = {}  # of some: by how a path begins
        self._exact: dict[str, dict[str, _Route]] = {}  # path -> method -> route
        self._patterns: list[tuple[re.Pattern[str], dict[str, _Route]]] = []
        self._found: dict[bytes, _Found] = {}  # by target, as it came
        self._streamed: set[tuple[str, bytes]] = set()  # methods and paths
        self.routes: list[Route] = []  # as OpenAPI shows them

    def add(
        self,
        method: str,
        path: str,
        face: Face,
        told: ErrorEncoder,
        about: Operation | None = None,
        *,
        needs: Access | Guard,
        kind: RouteKind = RouteKind.PLAIN,
        check: HeadCheck | None = None,
    ) -> None:
        """`{name}` in the path matches anything but a slash; one that is escaped is none.

        `needs` is what a key must allow; a guard says who asks in place of the keys, and refuses what it must before
        a body is read. `check` does that, too.
        A route reads a body where its method has one and `about` names what it takes; an open one never does.
        """
        guard, needs = (None, needs) if isinstance(needs, Access) else (needs, Access.OPEN)
        if kind is RouteKind.STREAMED:
            self._streamed.add((method, path.encode()))
        self.routes = [each for each in self.routes if (each.method, each.path) != (method, path)]
        self.routes.append(Route(method, path, needs, about))
        takes_one = method in _WITH_BODY and (about is None or about.reads_body)
        # Bodies of strangers cost nothing
        reads_body = takes_one and (needs is not Access.OPEN or guard is not None)
        is_probe, gated = kind is RouteKind.PROBE, kind is RouteKind.GATED
        route = _Route(face, told, needs, check, guard, is_probe, reads_body, gated)
        if "{" not in path:
            self._exact.setdefault(path, {})[method] = route
            return
        pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))
        known = next((routes for each, routes in self._patterns if each.pattern == pattern.pattern), None)
        if known is None:
            self._patterns.append((pattern, known := {}))
        known[method] = route

    def tell_below(self, path: str, told: ErrorEncoder) -> None:
        """How errors of paths are told that begin so, where no face has them."""
        self._told_below[path] = told

    def streams(self, method: str, target: bytes) -> bool:
        """Whether a request's body is handed on as it comes in."""
        return (method, target.partition(b"?")[0]) in self._streamed

    def admit(self, request: Request, known: Caller | None = None) -> Admitted:
        """Whether it may be asked, and by whom: all that its head can tell. `known`: who asks, by other means."""
        caller, matched, route = ANYONE, _NOTHING, None
        try:
            routes, matched = self._routes(request)
            route = _of_method(routes, request)
            if route.guard is not None:
                caller = route.guard(request)
            elif self.needs_keys and route.needs is not Access.OPEN:
                caller = known or self._keys.caller(_key(request))
                caller.check(route.needs, reads=request.method in _READS)
            if route.check is not None:
                route.check(matched, caller)
        except Exception as error:
            return Admitted(caller, matched, route, _fault(error), getattr(error, "allow", ()))
        return Admitted(caller, matched, route)

    async def ask_as(self, caller: Caller, request: Request) -> Reply:
        """The reply to a request that this process makes for somebody who is known: a page of the console does."""
        request.admission = self.admit(request, caller)
        return await self.handle(request)

    def gated_route(self, request: Request) -> tuple[_Route | None, dict[str, str]]:
        """Where it goes, if that is gated, and what its path matched."""
        try:
            routes, matched = self._routes(request)
        except TwoshiftError:
            return None, _NOTHING
        route = routes.get(request.method)
        return (route, matched) if route is not None and route.gated else (None, _NOTHING)

    def needs_of(self, method: str, path: str) -> Access | None:
        """What a request needs; None where no face answers it."""
        try:
            route = self._looked_up(path).routes.get(method)
        except TwoshiftError:
            return None
        return None if route is None else route.needs

    async def handle(self, request: Request) -> Reply:
        """One reply for each request."""
        if request.visit is not None:
            request.visit.begin()
        elif request.refused:
            return self._refused_unread(request)
        admitted: Any = request.admission or self.admit(request)  # on its head, or now
        exchange, route, fault = Exchange(request, admitted.matched, admitted.caller), admitted.route, admitted.fault
        if route is None or fault is not None:
            assert fault is not None  # noqa: S101 - that is why there is no route
            reply = self._refused(request, fault, route, admitted.allow)
        else:
            exchange.is_probe = route.is_probe
            try:
                reply = await route.face(exchange)
            except BaseException as error:
                reply, fault = await self._failed(route, exchange, error)
        self._finish(exchange, reply, fault)
        return reply

    async def _failed(self, route: _Route, exchange: Exchange, error: BaseException) -> tuple[Reply, Fault | None]:
        """What is told of it; unless it was a candidate's fault, and the stable version answers."""
        request, split = exchange.request, falls_back(exchange, error)
        if split is not None:
            forget_frames(error)
            try:
                reply = await route.face(exchange)
            except BaseException as another:
                error = another
            else:
                split.fell_back(reply.status, time.monotonic() - request.arrived_s)
                return reply, None
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
            gone(exchange.model, request.arrived_s)
            raise error
        # A library's panic is no Exception, and its request wants a reply, too
        fault = _fault(error, request.header(_TIMEOUT_HEADER))
        if split is not None:
            split.fell_back(fault.status, time.monotonic() - request.arrived_s)
        if fault.status == 500:
            _log(request, error)
        forget_frames(error)
        return self._refused(request, fault, route), fault

    def _refused_unread(self, request: Request) -> Reply:
        """By the gate, behind other requests of its connection."""
        admitted, fault = self.admit(request), Fault(503, "overloaded", UNREAD, retry_after_s=_SOON_S)
        reply = self._refused(request, fault, admitted.route)
        self._finish(Exchange(request, admitted.matched, admitted.caller), reply, fault)
        return reply

    def _refused(self, request: Request, fault: Fault, route: _Route | None, allow: Sequence[str] = ()) -> Reply:
        told = self._told_at(request.path) if route is None else route.told
        reply = refusal(fault, told(fault))
        if allow:
            reply.headers.append((b"allow", ", ".join(allow).encode()))
        return reply

    def _told_at(self, path: str) -> ErrorEncoder:
        return next((told for begin, told in self._told_below.items() if path.startswith(begin)), self._told)

    def refused(self, error: HttpError) -> Reply:
        """A request that could not be read."""
        fault = _fault(error)
        reply = refusal(fault, self._told_at(error.path)(fault))
        reply.headers += [(_SHOWN_ID, request_id(None).encode()), (b"server-timing", b"total;dur=0")]
        reply.close = True
        return reply

    def _routes(self, request: Request) -> _Found:
        found = self._found.get(request.target)
        if found is None:
            found = self._looked_up(request.path)
            if len(self._found) >= _MANY_TARGETS:
                self._found.clear()
            if len(request.target) <= _SHORT_TARGET:
                self._found[request.target] = found
        return found

    def _looked_up(self, path: str) -> _Found:
        if (routes := self._exact.get(path)) is not None:
            return _Found(routes, {})
        for pattern, routes in self._patterns:
            if matched := pattern.fullmatch(path):
                return _Found(routes, {name: urllib.parse.unquote(part) for name, part in matched.groupdict().items()})
        raise self._unknown(path)

    def _unknown(self, path: str) -> TwoshiftError:
        return NotFound("path", path, "a path listed in /openapi.json")

    @staticmethod
    def _finish(exchange: Exchange, reply: Reply, fault: Fault | None) -> None:
        shown = request_id(exchange.request.header(_SHOWN_ID))
        if exchange.goes_on is None:
            timing = exchange.ended(shown, reply.status, fault)
        else:
            timing, exchange.goes_on.ended = exchange.goes_on.timing(), partial(exchange.ended, shown)
        reply.headers += [(_SHOWN_ID, shown.encode("latin-1")), (b"server-timing", timing)]
        if exchange.model is not None:
            reply.headers.append((_VERSION, version_told(exchange).encode()))
        if exchange.answer is not None and exchange.answer.source:
            reply.headers.append((_SOURCE, exchange.answer.source.encode()))
            reply.headers.append((b"age", b"%d" % exchange.answer.age_s))


def _of_method(routes: dict[str, _Route], request: Request) -> _Route:
    route = routes.get("GET" if request.method == "HEAD" else request.method)
    if route is None:
        allow = sorted({*routes, "HEAD"} if "GET" in routes else routes)
        raise HttpError(405, f"{request.path[:200]!r} supports only the HTTP methods {', '.join(allow)}", allow=allow)
    return route


def _key(request: Request) -> str | None:
    """As OpenAI's clients send it, or as Anthropic's do."""
    given, key = request.header(b"authorization"), request.header(b"x-api-key")
    return f"Bearer {key}" if given is None and key is not None else given


def _log(request: Request, error: BaseException) -> None:
    known = isinstance(error, TwoshiftError)  # it says all that there is to say
    target = request.target[:200].decode("latin-1")
    _logger.error("%s %s: %s", request.method, target, error, exc_info=None if known else error)


def _fault(error: BaseException, timeout_ms: str | None = None) -> Fault:
    fault = error.fault() if isinstance(error, HttpError) else fault_of(error)
    if not isinstance(error, Late):
        return fault
    more = f"; the header {_TIMEOUT} (milliseconds) sets a longer timeout"
    if timeout_ms is not None:
        more = f" ({_TIMEOUT}: {timeout_ms}); send a larger value"
    return replace(fault, message=f"{fault.message}{more}")
