"""Errors that cross from one process into another, and are raised there as what they were."""

from __future__ import annotations

from functools import lru_cache

import twoshift.errors
from twoshift.errors import InvalidInput, TryLater, TwoshiftError
from twoshift.fleet.wire import Told

__all__ = ["raised", "told"]

_KNOWN: dict[str, type[TwoshiftError]] = {
    name: kind for name in twoshift.errors.__all__ if issubclass(kind := getattr(twoshift.errors, name), TwoshiftError)
}
_MOST_CHARACTERS = 4000
_MODELS = "."  # before the name of an error that is the model's own


class _Raised(TwoshiftError):
    """What a model's own code has raised; where it ran, the log has all of it."""


def told(error: BaseException) -> Told:
    """What is sent of an error."""
    own = "" if isinstance(error, TwoshiftError) else _MODELS  # a model may call its errors what ours are called
    kind, message = f"{own}{type(error).__name__}", _text(str(error))
    match error:
        case InvalidInput():
            value = error.value if isinstance(error.value, str) else repr(error.value)
            return Told(kind, message, error.field, _text(value), _text(error.accepted))
        case TryLater():
            return Told(kind, message, retry_after_s=error.retry_after_s)
        case _:
            return Told(kind, message, notes=tuple(map(_text, getattr(error, "__notes__", ()))))


def raised(what: Told) -> Exception:
    """The error again: of the same class where it is one of ours, of one with its name where it is the model's."""
    kind = _KNOWN.get(what.kind) or _named(what.kind.removeprefix(_MODELS))
    error = kind.__new__(kind, what.message)
    error.args = (what.message,)
    if isinstance(error, InvalidInput):
        error.field, error.value, error.accepted = what.field, what.value, what.accepted
    elif isinstance(error, TryLater):
        error.retry_after_s = what.retry_after_s
    for note in what.notes:
        error.add_note(note)
    return error


@lru_cache(256)
def _named(name: str) -> type[_Raised]:
    return type(name, (_Raised,), {})


def _text(text: str) -> str:
    return text[:_MOST_CHARACTERS].encode(errors="backslashreplace").decode()
