"""What every reply has, whatever it goes over: an id, its timing, and its place in the model's metrics."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from twoshift.endpoints.faults import Fault
from twoshift.errors import Denied, Late, OverLimit, first_line
from twoshift.logs import formatter_of
from twoshift.serve.deployments import Deployment
from twoshift.serve.keys import ANYONE, Caller
from twoshift.serve.model import Answer
from twoshift.serve.settings import ServeSettings
from twoshift.serve.versions import VersionSplit

__all__ = [
    "Asked",
    "Booked",
    "falls_back",
    "gone",
    "log_access",
    "log_accesses",
    "replied",
    "request_id",
    "version_told",
    "writes_access",
]

_access = logging.getLogger("twoshift.access")
_SHOWN = re.compile(r"[\x21-\x7e]{1,128}")
_random = random.Random()  # noqa: S311 - an id, no secret: the system's own source would hold up the loop each time
_GONE = 499  # as proxies count a client that did not wait for its reply


def request_id(given: str | None) -> str:
    """The client's own, where it can be shown."""
    return given if given and _SHOWN.fullmatch(given) else f"{_random.getrandbits(128):032x}"


class Asked(NamedTuple):
    """A request, whatever it came over."""

    name: str  # POST /v1/embeddings, ModelInfer
    parent: str | None = None  # the client's traceparent


class Booked(Protocol):
    """Whose books a request goes into, and what it was answered with."""

    caller: Caller
    model: Deployment | None
    answer: Answer | None
    is_pinned: bool  # to a version: no rollout chooses it, or judges by it


def replied(
    arrived_s: float,
    about: Booked,
    status: int,
    fault: Fault | None,
    asked: Callable[[], Asked],
) -> bytes:
    """Counts a request that has its reply; what Server-Timing says of it. The status is HTTP's, over gRPC too."""
    now_s = time.monotonic()
    took_s = now_s - arrived_s
    model, stages = about.model, None if about.answer is None else about.answer.stages
    refusal = None if fault is None else fault.kind
    if model is not None or about.caller is not ANYONE:
        about.caller.of.replied(refusal)
    if stages is not None:
        stages.finish += now_s
    if model is None:
        return b"total;dur=%.3f" % (1e3 * took_s)
    model.metrics.replied(status, took_s, refusal)
    if model.split is not None:
        model.split.replied(model, about.is_pinned, status, took_s, stages)
    if model.traces is not None:
        name, parent = asked()
        model.traces.replied(name, arrived_s, now_s, parent, stages, model.name, status)
    if stages is None:
        return b"total;dur=%.3f" % (1e3 * took_s)
    model.metrics.answered(stages)
    return stages.header(version_told(about))


def version_told(about: Booked) -> str:
    """Of the model that has answered, which another one may have followed by now."""
    answer, model = about.answer, about.model
    return (answer is not None and answer.version) or ("" if model is None else model.version)


def writes_access(is_routine: bool = False) -> bool:
    """Whether there is a log of requests; of routine ones only where it has everything."""
    return _access.isEnabledFor(logging.DEBUG if is_routine else logging.INFO)


def log_accesses(settings: ServeSettings) -> None:
    """A line to stderr for each request from now on, where the settings say so."""
    if not settings.access_log:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(formatter_of(settings.log_format))
    _access.addHandler(handler)
    _access.setLevel(logging.DEBUG if settings.log_probes else logging.INFO)
    _access.propagate = False


def log_access(
    what: str, status: int, arrived_s: float, caller: str, shown_id: str, about: Booked | None = None
) -> None:
    """A request that has its reply, a line each; with the version that has answered."""
    took_ms = 1e3 * (time.monotonic() - arrived_s)
    told: dict[str, object] = {"message": what, "status": status, "ms": round(took_ms, 3), "request_id": shown_id}
    version = ""
    if about is not None:
        told |= {"key": caller, "tenant": about.caller.tenant}
        if about.model is not None:
            told |= {"model": about.model.name, "version": version_told(about)}
            version = f", {about.model.name}:{told['version']}"
        if about.answer is not None:
            told |= {"rows": len(about.answer.rows) or 1, "tokens": about.answer.tokens}  # one: a text is no row
    _access.info('"%s" %d %.1f ms, %s, %s%s', what, status, took_ms, caller, shown_id, version, extra={"fields": told})


def falls_back(about: Booked, error: BaseException) -> VersionSplit[Deployment] | None:
    """Whose stable version is asked once in place of a candidate that has failed; None: it is told as it is."""
    model = about.model
    if model is None or model.split is None or model is model.split.stable or about.is_pinned:
        return None
    if not isinstance(error, Exception) or isinstance(error, Denied | OverLimit | Late):  # the last: no time is left
        return None
    about.is_pinned, about.model, about.answer = True, None, None
    model.split.why_failed = f"{type(error).__name__}: {first_line(error)}"
    return model.split


def gone(model: Deployment | None, arrived_s: float) -> None:
    """Counts a request whose client did not wait."""
    if model is not None:
        model.metrics.replied(_GONE, time.monotonic() - arrived_s, "client_gone")
