"""A model inside somebody else's pipeline: Ray Data's `map_batches`, Spark's `mapInPandas`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twoshift.batch.pipeline_models import opened_model
from twoshift.engine.window import Window

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BatchScorer"]

ERROR = "error"  # as in a part, whose module needs pyarrow, and this one does not
_AHEAD = 1  # batches that are prepared while one is on the device


class BatchScorer:
    """A model that adds its columns and `error` to batches; loaded once, in whatever process makes it."""

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

        `options` are those of `load_model`, and for a language model what `run` has for it: `prompt` (a column, or a
        template), `system`, `max_tokens`, `temperature`, `top_p`, `seed`, `stop`, `json_schema`. Raises InvalidInput
        where the model or an option cannot be used.
        """
        options.setdefault("threads", _given_threads())
        self._keep = keep
        self._model = opened_model(model, text, pair, columns, options)
        self._kinds = dict(self._model.known)  # an empty array of each result column, once one was seen

    def __call__(self, batch: Mapping[str, NDArray[Any] | Sequence[Any]]) -> dict[str, NDArray[Any]]:
        """The batch with the model's columns and `error`, in the same order."""
        given = {name: _array(values) for name, values in batch.items()}
        kept = {name: values for name, values in given.items() if self._keep is None or name in self._keep}
        window = self._model.begun(given)
        results = self._finished(window)
        errors, failed = results.pop(ERROR), list(window.errors)
        return kept | {name: _marked(values, failed) for name, values in results.items()} | {ERROR: errors}

    def close(self) -> None:
        """Let the model go; a process that ends needs no word of it."""
        self._model.engine.close()

    def stream(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The same for pandas, the next batch prepared while one is on the device."""
        waiting = deque[tuple[Any, Window]]()
        for batch in batches:
            given = {str(name): _values(batch[name]) for name in batch.columns}
            waiting.append((batch if self._keep is None else batch[list(self._keep)], self._model.begun(given)))
            if len(waiting) > _AHEAD:
                yield self._framed(*waiting.popleft())
        while waiting:
            yield self._framed(*waiting.popleft())

    def _framed(self, kept: pd.DataFrame, window: Window) -> pd.DataFrame:
        from pandas import Series

        results, frame = self._finished(window), kept.copy(deep=False)
        for name, values in results.items():
            missing = _missing(values, [] if name == ERROR else list(window.errors))
            plain = np.ma.getdata(values)
            # As objects: a None among whole numbers would make floats of them
            cells = [None if is_missing else cell for is_missing, cell in zip(missing, plain, strict=True)]
            frame[name] = Series(cells, frame.index, object) if missing.any() or values.ndim > 1 else plain
        return frame

    def _finished(self, window: Window) -> dict[str, NDArray[Any]]:
        """The model's columns in the order of the batch, masked where there is no value, and the errors."""
        columns = self._model.columns(window)
        self._kinds |= {name: values[:0] for name, values in columns.items()}
        for name, kind in self._kinds.items():
            columns.setdefault(name, np.zeros((window.rows, *kind.shape[1:]), kind.dtype))
        errors = np.full(window.rows, None, object)
        failed = list(window.errors)
        errors[failed] = [window.errors[k] for k in failed]
        return columns | {ERROR: errors}


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


def _array(values: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
    """A column as Ray Data has it; a list, too."""
    if isinstance(values, np.ndarray):
        return values
    column = np.empty(len(values), object)
    for place, value in enumerate(values):  # at once, lists in it would be taken for more dimensions
        column[place] = value
    return column


def _missing(values: NDArray[Any], failed: list[int]) -> NDArray[np.bool_]:
    """Which rows have no value: they failed, or their column is masked there."""
    missing = np.zeros(len(values), np.bool_)
    missing[failed] = True
    return missing | np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else missing


def _marked(values: NDArray[Any], failed: list[int]) -> NDArray[Any]:
    """Texts as objects, and the rows without a value told from the others where the type can."""
    missing, values = _missing(values, failed), np.ma.getdata(values)
    if values.dtype.kind in "US":
        values = values.astype(object)
    if values.dtype.kind in "fO":
        values[missing] = np.nan if values.dtype.kind == "f" else None
    return values
