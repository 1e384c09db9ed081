"""What a job's own first rows take: how large shards should be, and what the result columns are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from twoshift.batch.messages import Calibrated
from twoshift.batch.result_columns import result_array
from twoshift.engine.prepare import prepared_parts
from twoshift.engine.window import described
from twoshift.errors import Broken, NoRoom
from twoshift.ports import Columns, LossyRuntime, Prepared, Runtime

__all__ = ["calibrate"]

_BUDGET_S = 0.6  # of the device
_PATIENCE_S = 10.0  # in all, where others have the device
_FIRST_ROWS = 2


def calibrate(runtime: Runtime, rows: Sequence[Any], run: Callable[[Prepared], tuple[Columns, float]]) -> Calibrated:
    """Calls of growing size over the sample until a little time has passed.

    Raises Broken where the model is, and NoRoom where no row has a place in the calls of this device.
    `run` says how much of the device's time a call had: how long it waited for its turn says nothing of the rows.
    """
    scored, seconds, columns, until_s = 0, 0.0, None, time.monotonic() + _PATIENCE_S
    error, error_place = None, 0
    no_room: NoRoom | None = None
    for start, part in prepared_parts(runtime.prepare, rows):
        if isinstance(part, Exception):
            error, error_place = (error, error_place) if error else (described(part), start)
            continue
        at, count, size = 0, _FIRST_ROWS, len(part.lengths)
        while at < size and seconds < _BUDGET_S and (not scored or time.monotonic() < until_s):
            piece = part.slice(at, min(size, at + count))
            try:
                result, took_s = run(piece)
            except Broken:
                raise
            except Exception as failure:  # a user's own class may raise anything
                if error is None and len(piece.lengths) == 1:
                    error, error_place = described(failure), start + at
                no_room = failure if isinstance(failure, NoRoom) else no_room
                at, count = at + (count == 1), 1  # who is guilty is found by going on one by one
                continue
            at, count = at + len(piece.lengths), 2 * count
            if columns is not None or took_s > _BUDGET_S:  # the first call has to warm up: it says little
                scored, seconds = scored + len(piece.lengths), seconds + took_s
            columns = columns or result
    if columns is None and no_room is not None:
        raise no_room
    schema = None if columns is None else _schema(columns)
    per_row_s = seconds / scored if scored else 0.01
    near = runtime.parity_on(rows) if isinstance(runtime, LossyRuntime) and columns is not None else None
    return Calibrated(max(per_row_s, 1e-9), schema, error, near, error_place)


def _schema(columns: Columns) -> bytes:
    arrays = {name: result_array(values, np.zeros(len(values), np.bool_)) for name, values in columns.items()}
    return pa.schema([pa.field(name, array.type) for name, array in arrays.items()]).serialize().to_pybytes()
