"""What a caller gets back: a future for each live row, one for a whole block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken
from twoshift.generation import RowDetails
from twoshift.ports import Columns

__all__ = ["BlockAccumulator", "BlockFuture", "BlockResult", "RowFuture", "RowResult", "RowSink", "widened"]

T = TypeVar("T")
_logger = logging.getLogger("twoshift")


class RowResult(msgspec.Struct):
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
    device_s: float = 0.0  # of the device's time
    output_tokens: int = 0  # that were generated
    cached_tokens: int = 0  # of the rows' own: read before, for another row
    details: dict[int, RowDetails] = field(default_factory=dict[int, RowDetails])  # of rows of a language model


class _Cancellable(Future[T]):
    """A future whose cancellation reaches the engine; `asyncio.wrap_future` makes it awaitable."""

    def __init__(self, forget: Callable[[], object]) -> None:
        super().__init__()
        self._forget = forget

    def cancel(self) -> bool:
        """Before the launch it costs nothing; what runs already is finished and its result dropped."""
        with self._condition:  # whoever comes second finds it cancelled
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()
        self._forget()
        return True

    def settle(self, result: T | Exception) -> None:
        """Set the result or the error, unless it is settled or cancelled already."""
        try:
            if isinstance(result, Exception):
                self.set_exception(result)
            else:
                self.set_result(result)
        except InvalidStateError:
            pass
        except BaseException:  # a callback's SystemExit is its own affair: others wait for their results
            _logger.exception("a callback of a result future has failed")


class RowSink(Protocol):
    """What waits for a live row: a future, or whatever a caller of `LiveIntake.submit_together` makes."""

    def settle(self, result: RowResult | Exception) -> None:
        """In a thread of the engine's; it may come twice, and the first counts."""
        ...


RowFuture = _Cancellable[RowResult]
BlockFuture = _Cancellable[BlockResult]


class BlockAccumulator:
    """A block's result as it comes in, call by call, from one slot or two."""

    __slots__ = ("_lock", "cached_tokens", "columns", "details", "device_s", "errors", "left", "output_tokens", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.left = rows
        self.device_s = 0.0
        self.output_tokens = self.cached_tokens = 0
        self.columns: dict[str, NDArray[Any]] = {}
        self.errors: dict[int, Exception] = {}
        self.details: dict[int, RowDetails] = {}
        self._lock = threading.Lock()

    def put(self, start: int, stop: int, columns: Columns, at: int) -> None:
        """Rows `start` to `stop` of the block are rows `at` onward of a call's columns.

        They fail where the call answers with other columns than the calls before it.
        """
        with self._lock:
            try:
                for name, values in self._fitting(columns).items():
                    values[start:stop] = columns[name][at : at + stop - start]
            except Broken as error:
                self.errors |= dict.fromkeys(range(start, stop), error)
            self.left -= stop - start

    def fail(self, start: int, stop: int, error: Exception) -> None:
        """Those rows have no result."""
        with self._lock:
            self.errors |= dict.fromkeys(range(start, stop), error)
            self.left -= stop - start

    def result(self) -> BlockResult:
        """As it is now."""
        generated = (self.output_tokens, self.cached_tokens, self.details)
        return BlockResult(self.columns, self.errors, self.device_s, *generated)

    def _fitting(self, columns: Columns) -> dict[str, NDArray[Any]]:
        """The block's arrays, of a type that holds what this call answers, too."""
        if not self.columns:
            self.columns = {name: np.zeros((self.rows, *a.shape[1:]), a.dtype) for name, a in columns.items()}
            return self.columns
        if self.columns.keys() != columns.keys():
            found = f"the columns {sorted(self.columns)} first, and {sorted(columns)} later"
            raise Broken(f"the model returned {found}; a model must return the same columns in all calls")
        for name, values in columns.items():
            self.columns[name] = widened(name, self.columns[name], values)
        return self.columns


def widened(name: str, whole: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """The array, of a type that holds these values, too; raises Broken where their rows have another shape or kind."""
    if whole.shape[1:] != values.shape[1:]:
        before, now = list(whole.shape[1:]), list(values.shape[1:])
        found = f"had rows of shape {before} first, and of shape {now} later"
        raise Broken(f"the model's output column {name!r} {found}; a model must return the same shape in all calls")
    if whole.dtype == values.dtype:
        return whole
    if (whole.dtype.kind in "biufc") != (values.dtype.kind in "biufc"):
        found = f"had the type {whole.dtype} first, and {values.dtype} later"
        raise Broken(f"the model's output column {name!r} {found}; a model must not mix numbers with other types")
    return whole.astype(np.result_type(whole.dtype, values.dtype), copy=False)
