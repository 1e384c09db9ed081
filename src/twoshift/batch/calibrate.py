"""What a job's own first rows take: how large shards should be, and what the result columns are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from twoshift.batch.messages import Calibrated
from twoshift.batch.result_columns import result_array
from twoshift.engine.gentle_prepare import GentlePreparing
from twoshift.engine.prepare import prepared_parts
from twoshift.engine.window import described
from twoshift.errors import Broken, NoRoom
from twoshift.ports import Columns, LossyRuntime, Prepared, Runtime

__all__ = ["calibrate"]

_BUDGET_S = 0.6  # of the device
_PATIENCE_S = 10.0  # in all, where others have the device
_FIRST_ROWS = 2
_AGAIN_S, _AGAIN_WALL_S = 0.2, 1.0  # for larger calls: of the device, and in all
_AGAIN_ROWS = 2048
_Run = Callable[[Prepared], tuple[Columns, float]]
_STILL_FASTER = 0.8  # of the time of a row: below it, a call of twice as many rows is tried


def calibrate(runtime: Runtime, rows: Sequence[Any], run: _Run, gentle: GentlePreparing | None = None) -> Calibrated:
    """Calls of growing size over the sample until a little time has passed; `gentle` prepares it beside live rows.

    Raises Broken where the model is, and NoRoom where no row has a place in the calls of this device.
    `run` says how much of the device's time a call had: how long it waited for its turn says nothing of the rows.
    """
    scored, seconds, columns, until_s = 0, 0.0, None, time.monotonic() + _PATIENCE_S
    error, error_place = None, 0
    no_room: NoRoom | None = None
    for start, part in prepared_parts((gentle or runtime).prepare, rows):
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
    per_row_s, host_s = seconds / scored if scored else 0.01, 0.0
    if scored and error is None and seconds < _BUDGET_S:
        per_row_s, host_s = _in_large_calls(runtime, rows, run, per_row_s, gentle)
    near = runtime.parity_on(rows) if isinstance(runtime, LossyRuntime) and columns is not None else None
    return Calibrated(max(per_row_s, 1e-9), schema, error, near, error_place, host_s_per_row=host_s)


def _in_large_calls(
    runtime: Runtime, rows: Sequence[Any], run: _Run, per_row_s: float, gentle: GentlePreparing | None
) -> tuple[float, float]:
    """What a row takes of the device and of the host where calls are as large as the job's, by the sample repeated.

    Small calls of a small model are mostly overhead; a busy moment counts as far as it lasts.
    """
    many, scored, seconds, host_s, until_s = list(rows), 0, 0.0, 0.0, time.monotonic() + _AGAIN_WALL_S
    # Who is gentle works in this thread, and rests; others take several
    prepare, clock = (runtime.prepare, time.perf_counter) if gentle is None else (gentle.prepare, time.thread_time)
    while len(many) <= _AGAIN_ROWS and seconds < _AGAIN_S and time.monotonic() < until_s:
        began_s = clock()
        try:
            part = prepare(many)
            prepared_s = clock() - began_s
            took_s = run(part)[1]
        except Exception:  # what the rows take is known already
            break
        scored, seconds, host_s = scored + len(many), seconds + took_s, host_s + prepared_s
        was_s, per_row_s = per_row_s, min(per_row_s, seconds / scored)
        if took_s / len(many) > _STILL_FASTER * was_s and scored > len(rows):  # the first may have met a busy moment
            break
        many += many
    shares_cores = scored and runtime.info.device.startswith("cpu")
    return per_row_s, host_s / scored if shares_cores else 0.0


def _schema(columns: Columns) -> bytes:
    arrays = {name: result_array(values, np.zeros(len(values), np.bool_)) for name, values in columns.items()}
    return pa.schema([pa.field(name, array.type) for name, array in arrays.items()]).serialize().to_pybytes()
