"""What a caller gets back: a future for each live row, one for a whole block."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from twoshift.ports import Columns

__all__ = ["BlockFuture", "BlockResult", "Filling", "RowFuture", "RowResult"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row of a finished call."""

    columns: Columns
    index: int
    forward_s: float  # how long the call took
    call_rows: int  # how many rows rode in it

    def __getitem__(self, name: str) -> Any:
        return self.columns[name][self.index]


@dataclass(frozen=True, slots=True)
class BlockResult:
    """All rows of a block; a row that failed is zero in the columns and named in the errors."""

    columns: dict[str, NDArray[Any]]
    errors: dict[int, Exception]


class _Cancellable(Future[T]):
    """A future whose cancellation reaches the engine; `asyncio.wrap_future` makes it awaitable."""

    def __init__(self, forget: Callable[[], None]) -> None:
        super().__init__()
        self._forget = forget

    def cancel(self) -> bool:
        """Before the launch it costs nothing; what runs already is finished and its result dropped."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()
        self._forget()
        return True

    def settle(self, result: T | Exception) -> None:
        """Set the result or the error, unless it is settled or cancelled already."""
        if self.done() or not self.set_running_or_notify_cancel():
            return
        if isinstance(result, Exception):
            self.set_exception(result)
        else:
            self.set_result(result)


RowFuture = _Cancellable[RowResult]
BlockFuture = _Cancellable[BlockResult]


class Filling:
    """A block's result as it comes in, call by call."""

    __slots__ = ("columns", "errors", "left", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.left = rows
        self.columns: dict[str, NDArray[Any]] = {}
        self.errors: dict[int, Exception] = {}

    def put(self, start: int, stop: int, columns: Columns, at: int) -> None:
        """Rows `start` to `stop` of the block are rows `at` onward of a call's columns."""
        for name, values in columns.items():
            whole = self.columns.get(name)
            if whole is None:
                whole = self.columns[name] = np.zeros((self.rows, *values.shape[1:]), values.dtype)
            whole[start:stop] = values[at : at + stop - start]
        self.left -= stop - start

    def fail(self, start: int, stop: int, error: Exception) -> None:
        """Those rows have no result."""
        self.errors |= dict.fromkeys(range(start, stop), error)
        self.left -= stop - start
