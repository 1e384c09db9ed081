"""Errors that cross from one process into another, and are raised there as what they were.

Every attribute of an error crosses, so a new class or a new attribute needs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import twoshift.errors
from twoshift.errors import Shown, TwoshiftError, message_of, restored

__all__ = ["EncodedError", "decode_error", "encode_error"]

_KNOWN: dict[str, type[TwoshiftError]] = {
    name: kind
    for name, kind in vars(twoshift.errors).items()
    if isinstance(kind, type) and issubclass(kind, TwoshiftError)
}
_MOST_CHARACTERS = 4000
_MODELS = "."  # before the name of an error that is the model's own: it may have the name of one of ours
_NOTES = "__notes__"
_SHOWN = "shown"
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EncodedError:
    """An error as plain values."""

    kind: str
    message: str
    fields: dict[str, Any]  # its attributes


class _ModelError(TwoshiftError):
    """What a model's own code has raised; where it ran, the log has all of it."""


def encode_error(error: BaseException) -> EncodedError:
    """The error without its traceback; attributes that are no plain values become their representation."""
    if isinstance(error, TwoshiftError):
        kind = next(each.__name__ for each in type(error).__mro__ if _KNOWN.get(each.__name__) is each)
        fields = error.fields()
    else:
        kind = f"{_MODELS}{type(error).__name__}"
        fields = {_NOTES: notes} if (notes := getattr(error, _NOTES, None)) else {}
    return EncodedError(kind, _text(message_of(error)), {name: _plain(value) for name, value in fields.items()})


def decode_error(encoded: EncodedError) -> TwoshiftError:
    """The error again: of the same class where it is one of ours, of one with its name where it is the model's."""
    kind = _KNOWN.get(encoded.kind) or _model_error(encoded.kind.removeprefix(_MODELS))
    return restored(kind, encoded.message, {name: _value(each) for name, each in encoded.fields.items()})


@lru_cache(256)
def _model_error(name: str) -> type[_ModelError]:
    return type(name, (_ModelError,), {})


def _plain(value: object) -> Any:
    match value:
        case None | bool() | float():
            return value
        case int() if abs(value) <= _LARGEST:
            return value
        case str() if not isinstance(value, Shown):
            return _text(value)
        case list() if all(isinstance(each, str) for each in value):
            return [*map(_text, value)]
        case _:
            return {_SHOWN: _text(repr(value))}


def _value(plain: Any) -> Any:
    return Shown(plain[_SHOWN]) if isinstance(plain, dict) else plain


def _text(text: str) -> str:
    return text[:_MOST_CHARACTERS].encode(errors="backslashreplace").decode()
