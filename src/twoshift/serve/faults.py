"""What an error is to a client: a status as HTTP has it, a kind, and when to come back. Each transport writes it."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.errors import Denied, InvalidInput, Late, NotFound, OutOfMemory, OverLimit, TooLarge, TryLater

__all__ = ["Fault", "fault_of"]

_OUT_OF_MEMORY_S = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as it is told."""

    status: int
    kind: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None


def fault_of(error: BaseException) -> Fault:
    """How it is told; what nobody foresaw is a 500."""
    match error:
        case Denied():
            return Fault(401, "invalid_api_key", str(error))
        case NotFound():
            return Fault(404, "not_found", str(error), error.field)
        case TooLarge():
            return Fault(413, "too_large", str(error), error.field)
        case InvalidInput():
            return Fault(400, "invalid_request_error", str(error), error.field)
        case OverLimit():
            return Fault(429, "rate_limit_exceeded", str(error), retry_after_s=error.retry_after_s)
        case TryLater():
            return Fault(503, "overloaded", str(error), retry_after_s=error.retry_after_s)
        case OutOfMemory():
            return Fault(503, "out_of_memory", str(error), retry_after_s=_OUT_OF_MEMORY_S)
        case Late():
            return Fault(504, "deadline_exceeded", str(error))
        case _:
            return Fault(500, "internal_error", f"the model failed: {type(error).__name__}: {error}")
