"""A model's features as one matrix: by name, or as a plain list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.runtime.columns import ColumnRows, array_of, bad_row, cast

__all__ = ["FEATURES", "Features", "lists_of"]

FEATURES = "features"


class Features:
    """What a tabular model is given: `width` numbers a row, with or without names."""

    def __init__(self, names: Sequence[str] | None, width: int, *, missing: bool, dtype: Any) -> None:
        self._names = tuple(names) if names else None
        self._width = width
        self._missing = missing
        self._dtype = np.dtype(dtype)

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        """One column `features`, a matrix of rows; raises InvalidInput that names the row and the field."""
        if not rows:
            return ColumnRows({FEATURES: np.empty((0, self._width), self._dtype)})
        by_name = self._names is not None and isinstance(rows[0], Mapping) and FEATURES not in rows[0]
        matrix = self._named(rows, self._names or ()) if by_name else self._listed(rows)
        return ColumnRows({FEATURES: np.ascontiguousarray(matrix)})

    def _named(self, rows: Sequence[Any], names: tuple[str, ...]) -> NDArray[Any]:
        columns = self._columns(rows, names)
        for name, array in columns.items():
            if array.ndim != 1 or array.dtype.kind == "O":
                raise bad_row(0, name, rows[0][name], "a number")
        return np.stack([cast(array, self._dtype, name) for name, array in columns.items()], axis=1)

    def _columns(self, rows: Sequence[Any], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        """An empty text among numbers is a missing value, as an empty cell of CSV is."""
        try:
            columns = ColumnRows.from_rows(rows, names, self._missing).columns
            if not self._missing or all(array.dtype.kind != "O" for array in columns.values()):
                return columns
        except InvalidInput:
            if not self._missing or not any(isinstance(row, Mapping) and "" in row.values() for row in rows):
                raise
        filled = [{name: None if row[name] == "" else row[name] for name in names} for row in _complete(rows, names)]
        return ColumnRows.from_rows(filled, names, self._missing).columns

    def _listed(self, rows: Sequence[Any]) -> NDArray[Any]:
        values = lists_of(rows, FEATURES, self._names)
        for number, value in enumerate(values):
            if not isinstance(value, (list, tuple, np.ndarray)) or _size(value) != self._width:
                raise bad_row(number, FEATURES, value, f"a list of {self._width} numbers")
        matrix = array_of(values, FEATURES, self._missing)
        if matrix.ndim != 2 or matrix.dtype.kind == "O":
            raise bad_row(0, FEATURES, values[0], f"a list of {self._width} numbers")
        return cast(matrix, self._dtype, FEATURES)


def _complete(rows: Sequence[Any], names: tuple[str, ...]) -> Sequence[Any]:
    """The rows; raises InvalidInput where one lacks a field."""
    for number, row in enumerate(rows):
        lacking = next((name for name in names if name not in row), None) if isinstance(row, Mapping) else names[0]
        if lacking is not None:
            raise bad_row(number, lacking, row, f"a dict with {', '.join(names)}")
    return rows


def lists_of(rows: Sequence[Any], field: str, names: Sequence[str] | None = None) -> list[Any]:
    """Each row's list: the row itself, or its one field of that name."""
    values: list[Any] = []
    expected = f"a list, or a dict with {field!r}" + (f" or with {', '.join(names)}" if names else "")
    for number, row in enumerate(rows):
        value = row.get(field) if isinstance(row, Mapping) else row
        if value is None or isinstance(value, (str, bytes, Mapping)):
            raise bad_row(number, field if isinstance(row, Mapping) else None, row, expected)
        values.append(value)
    return values


def _size(value: Any) -> int:
    return value.size if isinstance(value, np.ndarray) else len(value)  # np.size would copy a list to count it
