"""Requests as values, and the flows that send them: what is waited for and retried, without any I/O.

A flow yields an `ApiCall` to have it sent, or a `Pause` to wait, and returns what its caller wants. `transport.py` runs
flows, with threads or with asyncio.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Generic, TypeVar, cast

from twoshift.errors import (
    Broken,
    Denied,
    Forbidden,
    InvalidInput,
    Late,
    NotFound,
    OverLimit,
    TooLarge,
    TooLong,
    TryLater,
    TwoshiftError,
    restored,
)
from twoshift.policy.retries import RetryPolicy

__all__ = [
    "RESTARTS",
    "ApiCall",
    "ApiReply",
    "Flow",
    "Lost",
    "Pause",
    "Steps",
    "Upload",
    "error_of_event",
    "json_call",
    "json_of",
    "steps",
]

T = TypeVar("T")
_RETRIES = RetryPolicy(0.5, 8.0, 600.0)
RESTARTS = RetryPolicy(1.0, 5.0, 120.0)  # of a server: its jobs and batches go on
_LOST_S = 1.0  # after which a server that did not answer is worth another try
_KINDS: dict[int, type[TwoshiftError]] = {
    400: InvalidInput,
    401: Denied,
    403: Forbidden,
    404: NotFound,
    413: TooLarge,
    429: OverLimit,
    503: TryLater,
    504: Late,
}
_BY_CODE: dict[str, type[TwoshiftError]] = {
    "context_length_exceeded": TooLong,
    "deadline_exceeded": Late,
    "invalid_request_error": InvalidInput,
    "overloaded": TryLater,
    "out_of_memory": TryLater,
}


@dataclass(frozen=True, slots=True)
class ApiReply:
    """A server's answer; of one that streams, `stream` has the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: Any = None


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer of `url`; `sent` where the server may have read the request."""

    error: Exception
    sent: bool
    url: str = "the server"


@dataclass(frozen=True, slots=True)
class Upload:
    """A form with a file."""

    name: str
    file: BinaryIO
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[ApiReply], T]
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    upload: Upload | None = None
    sink: Callable[[bytes], object] | None = None  # takes the body piece by piece
    streams: bool = False
    repeatable: bool = True  # sent again even where the server may have read it
    patience: RetryPolicy | None = None  # instead of a number of retries


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


Flow = Generator[ApiCall[Any] | Pause, Any, T]  # gets the result of each call
Steps = Generator[ApiCall[Any] | Pause, ApiReply | Lost | None, T]  # gets the answers themselves


def json_call(
    method: str,
    path: str,
    read: Callable[[Any], T],
    body: Any = None,
    repeatable: bool = True,
    patience: RetryPolicy | None = None,
) -> ApiCall[T]:
    """A call that sends JSON, where there is a body, and reads JSON."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    return ApiCall(
        method, path, lambda reply: read(json_of(reply, path)), data, headers, repeatable=repeatable, patience=patience
    )


def steps(work: ApiCall[T] | Flow[T], most_retries: int) -> Steps[T]:
    """What a transport has to do for it, one step after the other."""
    if isinstance(work, ApiCall):
        return (yield from _sent(work, most_retries))
    result: Any = None
    while True:
        try:
            step = work.send(result)
        except StopIteration as end:
            return end.value
        if isinstance(step, Pause):
            result = yield step
        else:
            result = yield from _sent(step, most_retries)


def _sent(request: ApiCall[T], most_retries: int) -> Steps[T]:
    """The answer; too much load and lost connections are retried; raises what errors.py has for a refusal."""
    policy, most = (_RETRIES, most_retries) if request.patience is None else (request.patience, sys.maxsize)
    attempts, waited_s = 0, 0.0
    while True:
        reply = yield request
        error, may_retry = _failure(request, reply)
        if error is None:
            return request.read(cast(ApiReply, reply))
        attempts += 1
        least_s = error.retry_after_s if isinstance(error, TryLater) else 0.0
        pause_s = policy.pause_s(attempts, waited_s, random.random(), least_s)  # noqa: S311 - only spreads attempts
        if not may_retry or attempts > most or pause_s is None:
            raise error
        waited_s += pause_s
        yield Pause(pause_s)


def _failure(request: ApiCall[Any], reply: ApiReply | Lost | None) -> tuple[TwoshiftError | None, bool]:
    """What is wrong, and whether the same request may succeed later."""
    assert reply is not None  # noqa: S101 - a call has an answer
    if isinstance(reply, Lost):
        said = str(reply.error) or type(reply.error).__name__
        error = TryLater(f"the server at {reply.url} does not answer ({said})", _LOST_S)
        error.__cause__ = reply.error
        return error, request.repeatable or not reply.sent
    if reply.status < 400:
        return None, False
    error = _error(reply, request)
    return error, isinstance(error, TryLater) and reply.headers.get("x-should-retry") != "false"


def _error(reply: ApiReply, request: ApiCall[Any]) -> TwoshiftError:
    try:
        body = json.loads(reply.body)
    except ValueError:
        told = f"the reply to {request.method} {request.path} has status {reply.status} and no JSON body"
        return Broken(f"{told}; check that the URL is that of a Twoshift server")
    found = body.get("error") if isinstance(body, dict) else None
    told = found if isinstance(found, dict) else {"message": found or f"status {reply.status}"}
    kind = _BY_CODE.get(str(told.get("code")), Broken) if reply.status == 400 else _KINDS.get(reply.status, Broken)
    if reply.status == 400 and not issubclass(kind, InvalidInput):
        kind = InvalidInput
    return _made(kind, told, _retry_after_s(reply.headers))


def error_of_event(told: Mapping[str, Any]) -> TwoshiftError:
    """The error that ends a stream."""
    return _made(_BY_CODE.get(str(told.get("code")), Broken), told, _LOST_S)


def _made(kind: type[TwoshiftError], told: Mapping[str, Any], retry_after_s: float) -> TwoshiftError:
    message = str(told.get("message"))
    fields: dict[str, Any] = {}
    if issubclass(kind, InvalidInput):
        fields = {"field": str(told.get("param") or "request"), "value": None, "accepted": message}
    elif issubclass(kind, TryLater):
        fields = {"retry_after_s": retry_after_s, "for_clients": ""}
    elif issubclass(kind, Late):
        fields = {"begun": True, "for_clients": ""}
    return restored(kind, message, fields)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return float(headers[name]) * unit_s
        except (KeyError, ValueError):
            continue
    return _LOST_S


def json_of(reply: ApiReply, path: str) -> Any:
    """A reply's JSON; raises Broken where it is none."""
    try:
        return json.loads(reply.body) if reply.body else None
    except ValueError:
        raise Broken(f"the reply to a request for {path} is not JSON; check the URL of the server") from None
