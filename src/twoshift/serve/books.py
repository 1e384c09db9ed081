"""What every reply has, whatever it goes over: an id, its timing, and its place in the model's metrics."""

from __future__ import annotations

import random
import re
import time
from typing import NamedTuple

from twoshift.serve.faults import Fault
from twoshift.serve.live_model import LiveModel
from twoshift.serve.model import Answer

__all__ = ["Asked", "gone", "replied", "request_id"]

_SHOWN = re.compile(r"[\x21-\x7e]{1,128}")
_random = random.Random()  # noqa: S311 - an id, no secret: the system's own source would hold up the loop each time
_GONE = 499  # as proxies count a client that did not wait for its reply


def request_id(given: str | None) -> str:
    """The client's own, where it can be shown."""
    return given if given and _SHOWN.fullmatch(given) else f"{_random.getrandbits(128):032x}"


class Asked(NamedTuple):
    """A request, whatever it came over."""

    name: str  # POST /v1/embeddings, ModelInfer
    arrived_s: float
    parent: str | None = None  # the client's traceparent


def replied(asked: Asked, model: LiveModel | None, answer: Answer | None, status: int, fault: Fault | None) -> bytes:
    """Counts a request that has its reply; what Server-Timing says of it. The status is HTTP's, over gRPC too."""
    now_s = time.monotonic()
    stages = None if answer is None else answer.stages
    if stages is not None:
        stages.finish += now_s
    if model is None:
        return b"total;dur=%.3f" % (1e3 * (now_s - asked.arrived_s))
    model.metrics.replied(status, now_s - asked.arrived_s, fault.kind if fault is not None else None)
    if model.traces is not None:
        model.traces.replied(asked.name, asked.arrived_s, now_s, asked.parent, stages, model.name, status)
    if stages is None:
        return b"total;dur=%.3f" % (1e3 * (now_s - asked.arrived_s))
    model.metrics.answered(stages)
    return stages.header(model.version)


def gone(model: LiveModel | None, arrived_s: float) -> None:
    """Counts a request whose client did not wait."""
    if model is not None:
        model.metrics.replied(_GONE, time.monotonic() - arrived_s, "client_gone")
