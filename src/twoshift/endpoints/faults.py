"""What an error is to a client: a status as HTTP has it, a kind, and when to come back. Each transport writes it."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.errors import (
    Denied,
    Forbidden,
    InvalidInput,
    Late,
    NotFound,
    OutOfMemory,
    OverLimit,
    TooLarge,
    TooLong,
    TryLater,
    TwoshiftError,
    message_of,
)

__all__ = ["Fault", "fault_of", "forget_frames"]

_OUT_OF_MEMORY_S = 1.0
_MOST_CHARACTERS, _MOST_PARAM = 2000, 200  # of a message, and of the name of a field


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as it is told."""

    status: int
    kind: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        """A user's own error may be as long as its input; no client is told all of it."""
        object.__setattr__(self, "message", _begun(self.message, _MOST_CHARACTERS))
        if self.param is not None:
            object.__setattr__(self, "param", _begun(self.param, _MOST_PARAM))


def fault_of(error: BaseException, at: str | None = None) -> Fault:
    """How it is told; what nobody foresaw is a 500. `at` is which row it was, where the error does not say so."""
    match error:
        case Forbidden():
            return Fault(403, "permission_denied", _told(error))
        case Denied():
            return Fault(401, "invalid_api_key", _told(error))
        case NotFound():
            return Fault(404, "not_found", _told(error), error.field)
        case TooLong():
            return Fault(400, "context_length_exceeded", _told(error), error.field)
        case TooLarge():
            return Fault(413, "too_large", _told(error), error.field)
        case InvalidInput():
            return Fault(400, "invalid_request_error", _told(error), error.field)
        case OverLimit():
            return Fault(429, "rate_limit_exceeded", _told(error), retry_after_s=error.retry_after_s)
        case TryLater():
            return Fault(503, "overloaded", _told(error), retry_after_s=error.retry_after_s)
        case OutOfMemory():
            return Fault(503, "out_of_memory", _told(error), retry_after_s=_OUT_OF_MEMORY_S)
        case Late():
            return Fault(504, "deadline_exceeded", _told(error))
        case _:
            where = "".join(f" at {note}" for note in ([at] if at else getattr(error, "__notes__", ())))
            told = f"the model failed{where[:200]}: {type(error).__name__}: {_told(error)}"
            return Fault(500, "internal_error", told)


def forget_frames(error: BaseException | None) -> None:
    """Lets go what an error that is told holds by its traceback: the rows of a request, until the next collection."""
    while error is not None:
        error.__traceback__, before = None, error.__cause__ or error.__context__
        error.__cause__ = error.__context__ = None
        error = before


def _told(error: BaseException) -> str:
    """What it says, where that can be sent: a user's own may be no valid text."""
    text = error.client_message if isinstance(error, TwoshiftError) else message_of(error)
    return text[: _MOST_CHARACTERS + 1].encode(errors="backslashreplace").decode()


def _begun(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
