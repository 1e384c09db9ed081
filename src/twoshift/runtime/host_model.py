"""A Runtime on the host's own CPU: a call is done when `launch` returns."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, BrokenModel
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.runtime.columns import ColumnRows, DoneCall, concat
from twoshift.runtime.failures import device_failures

__all__ = ["ColumnModel", "HostModel", "LookupColumnModel", "LookupModel"]

_TIMES = (datetime.date, datetime.time, datetime.timedelta)
_PLAIN = (str, bytes, int, float, complex, type(None), np.generic, decimal.Decimal, uuid.UUID, *_TIMES)
_VALUES = (*_PLAIN, list, tuple, dict, np.ndarray)  # that a column of objects may hold


class ColumnModel(Protocol):
    """What a kind of model adds: its rows as columns, and columns to columns."""

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        """Raises InvalidInput that names the row."""
        ...

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        """One row out for each row in, in order."""
        ...


class HostModel:
    """A column model behind the Runtime port."""

    def __init__(self, info: RuntimeInfo, model: ColumnModel) -> None:
        self.info = info
        self._model: ColumnModel | None = model

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        """Rows as the user has them, as columns."""
        return self._open().prepare(rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> DoneCall:
        """Run one call over the rows of all parts; the device has one queue, so `live` changes nothing."""
        given = cast("Sequence[ColumnRows]", parts)
        columns, rows = concat(given), sum(map(len, given))
        with device_failures():
            result = self._predict(columns, rows)
        return DoneCall(_checked(result, rows, self.info))

    def close(self) -> None:
        """Let the model go, and tell it where it wants to know."""
        model, self._model = self._model, None
        leave = getattr(model, "close", None)
        if leave is not None:
            leave()

    def _predict(self, columns: dict[str, NDArray[Any]], rows: int) -> Columns:
        return self._open().predict(columns)

    def _open(self) -> ColumnModel:
        if self._model is None:
            raise Broken(f"{self.info.model} is closed")
        return self._model


class LookupColumnModel(ColumnModel, Protocol):
    """A column model whose rows are looked up before they are columns."""

    def lookup(self, rows: Sequence[Any]) -> Future[list[Any]]: ...

    def looked_up(self, rows: Sequence[Any]) -> ColumnRows: ...


class LookupModel(HostModel):
    """A LookupRuntime."""

    def __init__(self, info: RuntimeInfo, model: LookupColumnModel) -> None:
        super().__init__(info, model)
        self._looks_up = model

    def lookup(self, rows: Sequence[Any]) -> Future[list[Any]]:
        """Rows as the user has them, with what their store adds."""
        self._open()
        return self._looks_up.lookup(rows)

    def looked_up(self, rows: Sequence[Any]) -> ColumnRows:
        """Those rows, as columns."""
        return self._looks_up.looked_up(rows)


def _checked(result: object, rows: int, info: RuntimeInfo) -> Columns:
    """The columns, if they are arrays with one row for each that was given; raises BrokenModel."""
    expected = f"a dict of arrays with {rows} row{'' if rows == 1 else 's'} each: one output row per input row"
    if not isinstance(result, dict) or not result:
        raise BrokenModel(f"{info.model}: predict() returned {_shown(result)}; expected {expected}")
    for name, array in result.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray) or array.shape[:1] != (rows,):
            found = f"{_shown(array)} as {name!r}"
            raise BrokenModel(f"{info.model}: predict() returned {found}; expected {expected}")
        if array.dtype.kind == "O":
            _check_values(array, name, info)
    if info.outputs and set(result) != set(info.outputs):
        raise BrokenModel(
            f"{info.model}: predict() returned the columns {sorted(result)}; expected "
            f"{sorted(info.outputs)}, which the attribute `outputs` of the class names"
        )
    return result


def _check_values(array: NDArray[Any], name: str, info: RuntimeInfo) -> None:
    """An object without a value would be told by its address; raises BrokenModel."""
    for kind in set(map(type, array.flat)):
        if not issubclass(kind, _VALUES):
            found, wanted = f"values of type {kind.__name__} as {name!r}", "numbers, texts, dates, lists or dicts"
            raise BrokenModel(f"{info.model}: predict() returned {found}; expected {wanted}")


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, dict):
        return f"a dict with {len(value)} columns"
    return f"a {type(value).__name__}"
