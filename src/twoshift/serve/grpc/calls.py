"""What every call has, whichever method it is: a key, an id, timings, metrics and errors."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import grpc

from twoshift.endpoints.faults import Fault, fault_of, forget_frames
from twoshift.errors import TwoshiftError
from twoshift.serve.deployments import Deployment
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

__all__ = ["GrpcCall", "Method", "abort", "admit", "begun", "counted", "settled", "shown_details", "unary"]

_PROBES = ("ServerLive", "ServerReady")

_logger = logging.getLogger("twoshift.serve")
_MOST_DETAILS_BYTES = 6_000  # a status travels in headers, which clients bound by 8 KB
_LONGEST_S = 3_600.0
_UNFORESEEN = Fault(500, "internal_error", "the server failed; see the log of the server")
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT,  # not RESOURCE_EXHAUSTED, which clients try again: it can never fit
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


@dataclass(slots=True)
class GrpcCall:
    """A request on its way to a reply."""

    name: str  # of the method
    context: Any
    metadata: dict[str, Any]
    arrived_s: float
    caller: Caller = ANYONE
    model: Deployment | None = None  # whose metrics it goes into
    answer: Answer | None = None
    is_pinned: bool = False  # to a version: no rollout chooses it, or judges by it

    def routed(self, model: Deployment) -> Deployment:
        """The version that answers, of the model that it asks for."""
        split = model.split
        if split is None or self.is_pinned:
            return model
        named = self.metadata.get("x-route-key") or self.metadata.get("x-request-id")
        return split.chosen(str(named).encode("utf-8", "replace") if named else None)

    @property
    def timeout_s(self) -> float | None:
        """What is left of gRPC's deadline; None without one."""
        left_s = self.context.time_remaining()
        return None if left_s is None else min(left_s, _LONGEST_S)


Method = Callable[[Any, GrpcCall], Awaitable[Any]]


def begun(name: str, context: Any) -> GrpcCall:
    """A call that has come in."""
    return GrpcCall(name, context, dict(context.invocation_metadata() or ()), time.monotonic())


def admit(call: GrpcCall, keys: Keys) -> None:
    """Whose call it is; raises Denied, and Forbidden where the key is not for live endpoints."""
    call.caller = keys.caller(call.metadata.get("authorization"))
    call.caller.check(Access.SERVE)


class Settled(NamedTuple):
    """How a call ends."""

    reply: Any
    fault: Fault | None  # why there is no reply
    timing: bytes  # what Server-Timing says


async def settled(name: str, method: Method, request: Any, call: GrpcCall, keys: Keys | None) -> Settled:
    """The reply, or why there is none, counted. Without keys the caller is the call's already, or anybody."""
    try:
        reply, fault = await _tried(name, method, request, call, keys)
        return Settled(reply, fault, counted(call, fault))
    except Exception as error:  # what fails beside the method is no reason for gRPC's own UNKNOWN
        _log(name, error)
        return Settled(None, _UNFORESEEN, b"total")


async def _tried(
    name: str, method: Method, request: Any, call: GrpcCall, keys: Keys | None
) -> tuple[Any, Fault | None]:
    try:
        if keys is not None:
            admit(call, keys)
        return await method(request, call), None
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        gone(call.model, call.arrived_s)
        raise
    except BaseException as error:  # a library's panic is no Exception, and its request wants a reply, too
        if (split := falls_back(call, error)) is not None:
            forget_frames(error)
            again = await _tried(name, method, request, call, None)
            split.fell_back(200 if again[1] is None else again[1].status, time.monotonic() - call.arrived_s)
            return again
        fault = fault_of(error)
        if fault.status == 500:
            _log(name, error)
        forget_frames(error)
        return None, fault


def _log(name: str, error: BaseException) -> None:
    known = isinstance(error, TwoshiftError)  # it says all that there is to say
    _logger.error("gRPC %s: %s", name, error, exc_info=None if known else error)


def unary(name: str, method: Method, keys: Keys | None) -> Callable[[Any, Any], Awaitable[Any]]:
    """A method as gRPC calls it. A client that does not wait cancels it, and with it what waits for the device."""

    async def handler(request: Any, context: Any) -> Any:
        call = begun(name, context)
        reply, fault, timing = await settled(name, method, request, call, keys)
        if fault is not None:
            await abort(call, fault, timing)
        context.set_trailing_metadata(_trailing(call, None, timing))
        return reply

    return handler


async def abort(call: GrpcCall, fault: Fault, timing: bytes) -> NoReturn:
    """Tell the client, and end the call."""
    code = _CODES.get(fault.status, grpc.StatusCode.INTERNAL)
    await call.context.abort(code, shown_details(fault.message), _trailing(call, fault, timing))
    raise AssertionError  # abort has raised


def shown_details(message: str) -> str:
    """As much of it as a status can carry, where all but printable ASCII takes three bytes or more."""
    while len(quote(message)) > _MOST_DETAILS_BYTES:
        message = message[: len(message) * 3 // 4]
    return message


def counted(call: GrpcCall, fault: Fault | None) -> bytes:
    """In the books; what Server-Timing says of it."""
    status = 200 if fault is None else fault.status

    def asked() -> Asked:
        return Asked(call.name, call.metadata.get("traceparent"))

    return replied(call.arrived_s, call, status, fault, asked)


def _trailing(call: GrpcCall, fault: Fault | None, timing: bytes) -> tuple[tuple[str, str], ...]:
    shown = request_id(call.metadata.get("x-request-id"))
    if writes_access(is_routine=fault is None and call.name in _PROBES):
        status = 200 if fault is None else fault.status
        log_access(f"gRPC {call.name}", status, call.arrived_s, call.caller.name, shown, call)
    trailing = ("x-request-id", shown), ("server-timing", timing.decode())
    if call.model is not None:
        trailing = *trailing, ("x-twoshift-version", version_told(call))
    if call.answer is not None and call.answer.source:
        trailing = *trailing, ("x-twoshift-source", call.answer.source), ("age", f"{call.answer.age_s:.0f}")
    if fault is None or fault.retry_after_s is None:
        return trailing
    return *trailing, ("retry-after-ms", str(max(1, math.ceil(1e3 * fault.retry_after_s))))
