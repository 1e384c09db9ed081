"""Rows as columns: what tabular models, plain ONNX graphs and the user's own classes are given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.ports import Columns
from twoshift.runtime.table import Table

__all__ = ["ColumnRows", "DoneCall", "array_of", "bad_row", "cast", "concat", "shape_of"]

_ACCEPTED = "a number, a bool, a string, or a list of the same size in every row"
_MISSING = "a value: this model does not accept missing values"
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_LISTS = (list, tuple, np.ndarray)
_ONE, _WHOLE = np.ones(1, np.int64), np.zeros(1, np.bool_)  # shared: nobody writes to them
_ONE.flags.writeable = _WHOLE.flags.writeable = False


class DoneCall:
    """A call whose result is already there."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def wait(self) -> Columns:
        """The columns, at once."""
        return self._columns


class ColumnRows:
    """Prepared rows, one array a column; every row counts 1 token unless `lengths` says otherwise."""

    __slots__ = ("_signature", "columns", "lengths", "truncated")

    columns: dict[str, NDArray[Any]]
    lengths: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    def __init__(self, columns: Mapping[str, NDArray[Any]], lengths: NDArray[np.int64] | None = None) -> None:
        self.columns = dict(columns)
        self._signature: Hashable = None
        rows = len(next(iter(self.columns.values()), ())) if lengths is None else len(lengths)
        for array in self.columns.values():
            if len(array) != rows:
                sizes = {name: len(array) for name, array in self.columns.items()}
                raise InvalidInput("columns", sizes, f"{rows} rows in every column")
        if rows == 1:  # as most requests have
            self.lengths, self.truncated = _ONE if lengths is None else lengths, _WHOLE
        else:
            self.lengths = np.ones(rows, np.int64) if lengths is None else lengths
            self.truncated = np.zeros(rows, np.bool_)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def signature(self) -> Hashable:
        """Names, types and sizes of the columns, in any order."""
        if self._signature is None:
            types = [(name, _type_of(array)) for name, array in self.columns.items()]
            self._signature = types[0] if len(types) == 1 else frozenset(types)
        return self._signature

    def slice(self, start: int, stop: int) -> ColumnRows:
        """Views of rows `start` to `stop`."""
        return self._at(slice(start, stop))

    def take(self, order: NDArray[np.int64]) -> ColumnRows:
        """The rows at those places, in that order."""
        return self._at(order)

    def _at(self, rows: slice | NDArray[np.int64]) -> ColumnRows:
        part = ColumnRows.__new__(ColumnRows)
        part._signature = self._signature
        part.columns = {name: array[rows] for name, array in self.columns.items()}
        part.lengths = self.lengths[rows]
        part.truncated = self.truncated[rows]
        return part

    @classmethod
    def from_rows(
        cls, rows: Sequence[Mapping[str, Any]], fields: Sequence[str] | None = None, missing: bool = False
    ) -> ColumnRows:
        """Columns of rows that are dicts; `fields` are needed and others left out, without it all of the first row's.

        Where `missing`, a None among numbers becomes NaN; elsewhere it is refused. Raises InvalidInput with the row.
        """
        if not rows:
            return cls({name: np.empty(0) for name in fields or ()})
        if isinstance(rows, Table) and (fields is None or rows.columns.keys() >= set(fields)):
            return cls({name: _signed(rows.columns[name], name) for name in fields or rows.columns})
        names = _fields(rows) if fields is None else tuple(fields)
        return cls({name: array_of(_values(rows, name), name, missing) for name in names})


def concat(parts: Sequence[ColumnRows]) -> dict[str, NDArray[Any]]:
    """The columns of all parts' rows, in order; raises InvalidInput where the parts do not fit together."""
    full = [part for part in parts if len(part)]
    if not full:
        raise InvalidInput("parts", len(parts), "at least one part that has rows")
    if len(full) == 1:  # copied all the same: a model that changes its input must not change the rows
        return {name: array.copy() for name, array in full[0].columns.items()}
    first = full[0].columns
    for part in full:
        if part.columns.keys() != first.keys():
            raise InvalidInput("fields", sorted(part.columns), f"the fields of the earlier rows: {sorted(first)}")
    return {name: _joined(name, [part.columns[name] for part in full]) for name in first}


def bad_row(row: int, field: str | None, value: object, accepted: str) -> InvalidInput:
    """The error for one row, counted from 0, and its field if one is at fault."""
    where = f"row {row}" if field is None else f"row {row}, field {field!r}"
    return InvalidInput(where, value, accepted)


def cast(array: NDArray[Any], dtype: np.dtype[Any], field: str) -> NDArray[Any]:
    """The same values as `dtype`, rounded where it is a float; raises InvalidInput for the first row it cannot hold."""
    if array.dtype == dtype:
        return array
    if dtype.kind == "O" and array.dtype.kind != "O":
        raise bad_row(0, field, array[0], "a string")
    if array.dtype.kind == "O" and dtype.kind != "O":
        row = max(0, _first(array.tolist(), lambda value: not _is_number(value)))  # one word makes a column texts
        raise bad_row(row, field, array[row], f"a number ({dtype})")
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(dtype)
    wrong = np.isinf(result) & np.isfinite(array) if dtype.kind == "f" else result != array
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise bad_row(row, field, array[row], f"a value that {dtype} can hold")
    return result


def array_of(values: Sequence[Any], field: str, missing: bool = False) -> NDArray[Any]:
    """One column of Python values: int64, float64, bool, or object for strings; lists add an axis."""
    if len(values) == 1 and type(values[0]) is np.ndarray and values[0].dtype.kind in "bifu":
        return values[0][np.newaxis]  # one row of a request: what follows is for many
    kinds = set(map(type, values))  # one pass in C: nearly always a single type
    if type(None) in kinds and not missing:
        raise bad_row(_first(values, lambda value: value is None), field, None, _MISSING)
    kinds.discard(type(None))
    if all(issubclass(kind, _NUMBERS) for kind in kinds):
        return _numbers(values, kinds, field)
    if all(issubclass(kind, str) for kind in kinds):
        return _strings(values, field)
    if all(issubclass(kind, _LISTS) for kind in kinds):
        return _lists(values, field, missing)
    row = _first(values, lambda value: value is not None and not isinstance(value, (*_NUMBERS, str, *_LISTS)))
    if row < 0:  # good kinds, but mixed
        kind = type(values[0])
        row = _first(values, lambda value: type(value) is not kind)
        raise bad_row(row, field, values[row], f"a value of type {kind.__name__}, as in the earlier rows")
    raise bad_row(row, field, values[row], _ACCEPTED)


def _fields(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The fields of the first row, which every other row must have, and no more."""
    for number, row in enumerate(rows):
        if type(row) is not dict and not isinstance(row, Mapping):
            raise bad_row(number, None, row, "a dict of fields")
    first = rows[0].keys()
    for number, row in enumerate(rows[1:], 1):
        if row.keys() != first:
            wrong = min(map(str, row.keys() ^ first))
            found = "the earlier rows do not have this field" if wrong in row else "this field is missing"
            raise bad_row(number, wrong, dict(row), f"the fields {sorted(map(str, first))} in every row: {found}")
    if any(not isinstance(name, str) for name in first) or not first:
        raise bad_row(0, None, dict(rows[0]), "a dict with at least one field, in which every field name is a text")
    return tuple(first)


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except (KeyError, TypeError, IndexError):
        row = _first(rows, lambda row: not isinstance(row, Mapping) or name not in row)
    if not isinstance(rows[row], Mapping):
        raise bad_row(row, None, rows[row], f"a dict with the field {name!r}")
    raise bad_row(row, name, sorted(map(str, rows[row])), f"{name!r} among the fields of the row")


def _signed(values: NDArray[Any], field: str) -> NDArray[Any]:
    """As rows have whole numbers, whatever they came as."""
    return _as(values.tolist(), np.int64, field) if values.ndim == 1 and values.dtype.kind == "u" else values


def _numbers(values: Sequence[Any], kinds: set[type], field: str) -> NDArray[Any]:
    if None in values or any(issubclass(kind, (float, np.floating)) for kind in kinds):
        return _as(values, np.float64, field)
    if kinds and all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        return _as(values, np.bool_, field)
    return _as(values, np.int64, field)


def _as(values: Sequence[Any], dtype: type, field: str) -> NDArray[Any]:
    try:
        return np.array(values, dtype)  # None becomes NaN
    except OverflowError:
        row = _first(values, lambda value: value is not None and abs(value) >= 2**63)
    raise bad_row(row, field, values[row], f"a number that {np.dtype(dtype)} can hold")


def _strings(values: Sequence[Any], field: str) -> NDArray[Any]:
    if None in values:
        raise bad_row(_first(values, lambda value: value is None), field, None, "a string")
    # objects, not a fixed width: one long text would make every row as wide as itself
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _lists(values: Sequence[Any], field: str, missing: bool) -> NDArray[Any]:
    absent = _first(values, lambda value: value is None)
    if absent >= 0:
        raise bad_row(absent, field, None, "a list")
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        size = shape_of(values[0])  # None: the first row is ragged in itself, and the one to name
        row = 0 if size is None else max(0, _first(values, lambda value: shape_of(value) != size))
        accepted = "inner lists of the same size" if size is None else f"a list of size {size}, as in the earlier rows"
        raise bad_row(row, field, values[row], accepted) from None
    if array.dtype.kind in "bifu":
        return array
    return _listed_objects(np.array(values, object), field, missing)


def _listed_objects(array: NDArray[Any], field: str, missing: bool) -> NDArray[Any]:
    """Lists of strings, or of numbers with None among them."""
    kinds = set(map(type, array.ravel().tolist()))
    if all(issubclass(kind, str) for kind in kinds):
        return array
    allowed = (*_NUMBERS, type(None)) if missing else _NUMBERS
    for number, row in enumerate(array):
        wrong = [value for value in np.ravel(row).tolist() if not isinstance(value, allowed) or not _fits(value)]
        if wrong:
            accepted = _MISSING if wrong[0] is None else "a list of only numbers or only strings"
            raise bad_row(number, field, wrong[0], accepted)
    return array.astype(np.float64)


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _fits(value: object) -> bool:
    return not isinstance(value, int) or abs(value) < 2**63


def shape_of(value: Any) -> tuple[int, ...] | None:
    """None where a list is ragged."""
    try:
        return np.shape(value)
    except (ValueError, OverflowError):
        return None


def _type_of(array: NDArray[Any]) -> tuple[object, tuple[int, ...]]:
    """What rows of one call must have in common; texts of any width do, because none is changed by a wider array."""
    dtype = array.dtype
    return (dtype.kind if dtype.kind in "SU" else dtype), array.shape[1:]


def _joined(name: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    if len(set(map(_type_of, arrays))) > 1:  # a row's answer is not changed by its neighbours
        found = sorted({f"{array.dtype}{list(array.shape[1:])}" for array in arrays})
        raise InvalidInput(f"field {name!r}", found, "the same type and size in all rows of a call")
    return np.concatenate(arrays)


def _first(values: Sequence[Any], wrong: Callable[[Any], bool]) -> int:
    return next((number for number, value in enumerate(values) if wrong(value)), -1)
