"""Answers that keep to a JSON schema, as columns of their own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput

__all__ = ["AnswerSchema"]

_TAKEN = ("text", "finish_reason", "output_tokens", "error")
_NUMBERS: dict[Any, tuple[Any, tuple[type, ...]]] = {
    "integer": (np.int64, (int,)),
    "number": (np.float64, (int, float)),
    "boolean": (np.bool_, (bool,)),
}
_Columns = dict[str, NDArray[Any]]


class AnswerSchema:
    """The properties of a schema's object: numbers and texts as such, anything else as JSON."""

    def __init__(self, text: str) -> None:
        """Raises InvalidInput where it is no schema of an object."""
        accepted = 'a JSON schema of the type "object" with "properties"'
        try:
            schema = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidInput("json_schema", text, f"{accepted} ({error})") from None
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            raise InvalidInput("json_schema", text, accepted)
        properties = schema.get("properties", {})
        if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
            raise InvalidInput("json_schema", text, accepted)
        for name in properties:
            if name in _TAKEN:
                raise InvalidInput(
                    "json_schema", name, f"a property name that is not reserved (reserved: {', '.join(_TAKEN)})"
                )
        self._kinds: dict[str, Any] = {name: each.get("type") for name, each in properties.items()}

    def columns(self, texts: NDArray[Any], failed: Collection[int]) -> tuple[_Columns, dict[int, str]]:
        """The columns of these answers, masked where there is no value; and by place why one cannot be read."""
        rows, errors = list[dict[str, Any]](), dict[int, str]()
        for place, text in enumerate(texts):
            try:
                rows.append({} if place in failed else self._read(text))
            except ValueError as error:
                rows.append({})
                errors[place] = f"the answer does not match the JSON schema: {error}"
        return {name: _column(kind, [row.get(name) for row in rows]) for name, kind in self._kinds.items()}, errors

    def _read(self, text: str) -> dict[str, Any]:
        try:
            row = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(
                f"the answer is not JSON ({error}); if the answer was truncated, raise --max-tokens"
            ) from None
        if not isinstance(row, dict):
            raise ValueError("the answer is not a JSON object")  # noqa: TRY004 - the caller knows one error
        for name, kind in self._kinds.items():
            value, wanted = row.get(name), _NUMBERS.get(kind, (None, (str,)))[1]
            is_plain = kind == "string" or kind in _NUMBERS
            if is_plain and value is not None and (not isinstance(value, wanted) or _is_odd(value, kind)):
                raise ValueError(f"the property {name} of the answer is not of the type {kind}")
        return row


def _is_odd(value: Any, kind: str) -> bool:
    """A truth value passes for a number in Python, and a whole number may be too large for a column."""
    is_number = kind in ("integer", "number")
    return is_number and (isinstance(value, bool) or (isinstance(value, int) and not -(2**63) <= value < 2**63))


def _column(kind: Any, values: list[Any]) -> NDArray[Any]:
    if isinstance(kind, str) and kind in _NUMBERS:
        dtype = _NUMBERS[kind][0]
        filled = np.array([0 if value is None else value for value in values], dtype)
        return np.ma.masked_array(filled, mask=[value is None for value in values])
    plain = [value if value is None or kind == "string" else msgspec.json.encode(value).decode() for value in values]
    column = np.empty(len(plain), object)
    column[:] = plain
    return column
