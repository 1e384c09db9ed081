"""A model inside somebody else's pipeline: Ray Data's `map_batches`, Spark's `mapInPandas`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.engine.window import Window
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Scorer", "spark_scorer"]

ERROR = "error"  # as in a part, whose module needs pyarrow, and this one does not
_UNKNOWN = CallCost.line(0.01, 1e-4)  # before anything was measured; the engine learns the rest
_MOST_CALL_ROWS = 256
_AHEAD = 1  # batches that are prepared while one is on the device


class Scorer:
    """A model that adds its columns and `error` to batches; loaded once, in whatever process makes it.

    For `Dataset.map_batches`, with `fn_constructor_kwargs`. A row that cannot be scored has a text in `error`, and in
    the model's columns NaN where they hold floats, None where they hold texts, and 0 elsewhere.
    """

    def __init__(
        self,
        model: str,
        *,
        text: str | None = None,
        pair: str | None = None,
        columns: Sequence[str] = (),
        keep: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        """`text`, `pair` or `columns` are what the model is given, all columns without any; `keep` is what stays.

        `options` are those of `load_model`. Raises InvalidInput where the model or an option cannot be used.
        """
        from twoshift.runtime.load import load_model

        if pair is not None and text is None:
            raise InvalidInput("pair", pair, "`text` as well: the name of the column with the first text")
        if text is not None and columns:
            raise InvalidInput("columns", columns, "either `text` or `columns`, not both")
        self._texts = tuple(name for name in (text, pair) if name is not None)
        self._columns, self._keep = tuple(columns), keep
        options.setdefault("threads", _given_threads())
        limits = LaneLimits(max_rows=_MOST_CALL_ROWS)
        self._engine = Engine(load_model(model, **options), _UNKNOWN, limits)
        self._kinds: dict[str, NDArray[Any]] = {}  # an empty array of each result column, once one was seen

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The batch with the model's columns and `error`, in the same order."""
        kept = {name: values for name, values in batch.items() if self._keep is None or name in self._keep}
        return kept | self._finished(self._begun(batch))

    def stream(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The same for pandas, the next batch prepared while one is on the device."""
        waiting = deque[tuple[Any, Window]]()
        for batch in batches:
            given = {str(name): _values(batch[name]) for name in batch.columns}
            waiting.append((batch if self._keep is None else batch[list(self._keep)], self._begun(given)))
            if len(waiting) > _AHEAD:
                yield self._framed(*waiting.popleft())
        while waiting:
            yield self._framed(*waiting.popleft())

    def _framed(self, kept: pd.DataFrame, window: Window) -> pd.DataFrame:
        from pandas import Series

        results, frame = self._finished(window), kept.copy(deep=False)
        for name, values in results.items():
            # As objects: a None among whole numbers would make floats of them
            cells = [None if k in window.errors and name != ERROR else cell for k, cell in enumerate(values)]
            frame[name] = Series(cells, frame.index, object) if window.errors or values.ndim > 1 else values
        return frame

    def _begun(self, batch: Mapping[str, NDArray[Any]]) -> Window:
        rows = self._rows(batch)
        window = Window(len(rows))
        for place, row in enumerate(rows):
            if row is None:
                window.fail(place, "the text is null", "null")
        window.submit(self._engine, rows)
        return window

    def _rows(self, batch: Mapping[str, NDArray[Any]]) -> list[Any]:
        """As the model takes them: texts, pairs or dicts; None where a text is missing."""
        names = self._texts or self._columns or tuple(batch)
        if missing := [name for name in names if name not in batch]:
            raise InvalidInput("column", missing[0], f"one of {', '.join(batch)}")
        values = [list(batch[name]) if batch[name].ndim > 1 else batch[name].tolist() for name in names]
        rows = zip(*values, strict=True)
        if not self._texts:
            if self._columns and self._engine.runtime.info.is_ordered:
                return [[*row] for row in rows]
            return [dict(zip(names, row, strict=True)) for row in rows]
        good = (row if all(isinstance(each, str) for each in row) else None for row in rows)
        return [row[0] if row is not None and len(row) == 1 else row for row in good]

    def _finished(self, window: Window) -> dict[str, NDArray[Any]]:
        """The model's columns in the order of the batch, and the errors."""
        columns = window.columns()
        self._kinds |= {name: values[:0] for name, values in columns.items()}
        for name, kind in self._kinds.items():
            columns.setdefault(name, np.zeros((window.rows, *kind.shape[1:]), kind.dtype))
        errors = np.full(window.rows, None, object)
        failed = list(window.errors)
        errors[failed] = [window.errors[k] for k in failed]
        return {name: _marked(values, failed) for name, values in columns.items()} | {ERROR: errors}


def spark_scorer(model: str, **options: Any) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """A function for `DataFrame.mapInPandas`; the options are those of `Scorer`. A row that failed has nulls.

    The model is loaded where Spark runs it, once a Python worker, with as many threads as Spark gives a task.
    """
    given = tuple(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in options.items()))

    def score(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return _shared_scorer(model, given).stream(batches)

    return score


# Spark uses a Python worker for many tasks. All are kept: nobody would close one that is dropped, as a task may use it
@cache
def _shared_scorer(model: str, options: tuple[tuple[str, Any], ...]) -> Scorer:
    return Scorer(model, **dict(options))


def _values(series: Any) -> NDArray[Any]:
    """A column with None where pandas has NaN for a text that is missing."""
    values = series.to_numpy()
    if values.dtype.kind == "O":
        values = values.copy()
        values[series.isna().to_numpy()] = None
    return values


def _given_threads() -> int | None:
    """What Ray and Spark say a process may use; None elsewhere."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else None


def _marked(values: NDArray[Any], failed: list[int]) -> NDArray[Any]:
    """Texts as objects, and the rows that failed told from the others where the type can."""
    if values.dtype.kind in "US":
        values = values.astype(object)
    if failed and values.dtype.kind in "fO":
        values[failed] = np.nan if values.dtype.kind == "f" else None
    return values
