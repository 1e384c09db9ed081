"""What a shard's rows are run in: windows, bounded, several on their way at once; and what became of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from numpy.typing import NDArray

from twoshift.batch.part_stats import FailedRow
from twoshift.engine import BlockFuture
from twoshift.engine.results import BlockResult
from twoshift.engine.window import Window
from twoshift.errors import NoRoom, TryLater

__all__ = ["WINDOW_BYTES", "WINDOW_ROWS", "BegunWindow", "ShardRows", "Stopped", "Tally", "columns_of", "waited_for"]

WINDOW_ROWS, WINDOW_BYTES = 2048, 4 << 20  # sorted by length within; what memory grows by


class Stopped(Exception):
    """The shard was given up before it was published."""


@dataclass(slots=True)
class Tally:
    """What has been written of a shard."""

    rows: int = 0
    errors: int = 0
    tokens: int = 0
    truncated: int = 0
    skipped: int = 0
    split: int = 0
    device_s: float = 0.0
    output_tokens: int = 0
    cached_tokens: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    failed: list[FailedRow] = field(default_factory=list[FailedRow])  # the first of them

    def add(self, window: Window, rows: int, errors: Iterable[str], tokens: int | None = None) -> None:
        """A window of so many of the input's rows, and tokens; of those that failed, the kinds of their errors."""
        kinds = Counter(errors)
        self.rows += rows
        self.errors += kinds.total()
        self.tokens += window.tokens if tokens is None else tokens
        self.truncated += window.truncated
        self.skipped += len(window.skipped)
        self.split += window.split
        self.device_s += window.device_s
        self.output_tokens += window.output_tokens
        self.cached_tokens += window.cached_tokens
        self.kinds.update(kinds)


class BegunWindow(Protocol):
    """A window whose rows are with the engine."""

    def cancel(self) -> None:
        """Nobody wants the results any more."""
        ...


W = TypeVar("W")
B = TypeVar("B", bound=BegunWindow)


class ShardRows(Protocol, Generic[W, B]):
    """How the rows of a job's input are read, run and written."""

    def windows(self, shard: int, stop: threading.Event) -> Iterator[W]:
        """The shard's rows, in order; raises Stopped once `stop` is set."""
        ...

    def begin(self, batch: W, /) -> B:
        """Hand them to the engine."""
        ...

    def finish(self, begun: B, tally: Tally, stop: threading.Event) -> pa.RecordBatch:
        """As the part has them, in the order of the input; waits for the engine."""
        ...


def columns_of(window: Window, stop: threading.Event) -> dict[str, NDArray[Any]]:
    """The window's results; raises Stopped, and NoRoom where a row's place was too small."""
    values = waited_for(window, stop)
    unfit = next((window.errors[place] for place, kind in window.kinds.items() if kind == NoRoom.__name__), None)
    if unfit is not None:  # the row is good, and may fit once the server's curve says so; or another server's call
        raise NoRoom(unfit.removeprefix(f"{NoRoom.__name__}: "))
    return values


def waited_for(window: Window, stop: threading.Event) -> dict[str, NDArray[Any]]:
    """The window's results, where a row that has no place fails alone; raises Stopped."""
    return window.columns(lambda future: _result(future, stop))


def _result(future: BlockFuture, stop: threading.Event) -> BlockResult:
    while True:
        try:
            return future.result(0.5)
        except TimeoutError:
            if stop.is_set():
                raise Stopped from None
        except TryLater as error:  # the engine drains
            raise Stopped from error
