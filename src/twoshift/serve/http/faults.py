"""What an error is over HTTP: a status, and what a client should do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from twoshift.errors import InvalidInput, Late, OutOfMemory, TooLarge, TryLater
from twoshift.serve.http.messages import HttpError

__all__ = ["Fault", "NotFound", "OverLimit", "Unauthorized", "fault_of"]

_OUT_OF_MEMORY_S = 1.0


class NotFound(Exception):
    """Nothing of that name is here."""


class Unauthorized(Exception):
    """No key, or one that is not known."""


class OverLimit(Exception):
    """The key is over its own limit."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Fault:
    """An error as it is told."""

    status: int
    kind: str
    message: str
    param: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])


def fault_of(error: BaseException) -> Fault:
    """How it is told; what nobody foresaw is a 500 without its inner life."""
    match error:
        case HttpError():
            return Fault(error.status, "invalid_request_error", str(error))
        case NotFound():
            return Fault(404, "not_found", str(error))
        case Unauthorized():
            return Fault(401, "invalid_api_key", str(error), headers=[(b"www-authenticate", b"Bearer")])
        case OverLimit():
            return Fault(429, "rate_limit_exceeded", str(error), headers=_retry_after(error.retry_after_s))
        case TooLarge():
            return Fault(413, "too_large", str(error), error.field, [(b"x-should-retry", b"false")])
        case InvalidInput():
            return Fault(400, "invalid_request_error", str(error), error.field)
        case TryLater():
            return Fault(503, "overloaded", str(error), headers=_retry_after(error.retry_after_s))
        case OutOfMemory():
            return Fault(503, "out_of_memory", str(error), headers=_retry_after(_OUT_OF_MEMORY_S))
        case Late():
            return Fault(504, "deadline_exceeded", str(error))
        case _:
            return Fault(500, "internal_error", f"the model failed: {type(error).__name__}: {error}")


def _retry_after(seconds: float) -> list[tuple[bytes, bytes]]:
    """Whole seconds for everybody, milliseconds for those who read them."""
    milliseconds = max(1, math.ceil(1e3 * seconds))
    return [(b"retry-after", b"%d" % math.ceil(milliseconds / 1e3)), (b"retry-after-ms", b"%d" % milliseconds)]
