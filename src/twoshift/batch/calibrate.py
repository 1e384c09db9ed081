"""What a job's own first rows take: how large shards should be, and what the result columns are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from twoshift.batch.messages import Calibrated
from twoshift.batch.part import result_array
from twoshift.engine.prepare import prepared_parts
from twoshift.errors import Broken, OutOfMemory
from twoshift.ports import Columns, Runtime

__all__ = ["calibrate"]

_BUDGET_S = 0.6
_FIRST_ROWS = 2


def calibrate(runtime: Runtime, rows: Sequence[Any]) -> Calibrated:
    """Calls of growing size over the sample until a little time has passed; raises Broken where the model is."""
    scored, tokens, seconds, columns, error = 0, 0, 0.0, None, None
    for start, part in prepared_parts(runtime, rows):
        if isinstance(part, Exception):
            error = error or f"row {start}: {part}"
            continue
        at, count, size = 0, _FIRST_ROWS, len(part.lengths)
        while at < size and seconds < _BUDGET_S:
            piece = part.slice(at, min(size, at + count))
            took_s, result = _timed(runtime, piece)
            if isinstance(result, Exception):
                error = error or f"{type(result).__name__}: {result}"
            else:
                # The first call has to warm up: what it took says little
                scored, tokens, seconds = (
                    (scored + len(piece.lengths), tokens + int(piece.lengths.sum()), seconds + took_s)
                    if columns is not None or took_s > _BUDGET_S
                    else (scored, tokens, seconds)
                )
                columns = columns or result
            at, count = at + len(piece.lengths), 2 * count
    schema = None if columns is None else _schema(columns)
    per_row_s = seconds / scored if scored else 0.01
    return Calibrated(max(per_row_s, 1e-9), tokens / scored if scored else 1.0, schema, error)


def _timed(runtime: Runtime, piece: Any) -> tuple[float, Columns | Exception]:
    began_s = time.perf_counter()
    try:
        result = runtime.launch([piece]).wait()
    except (OutOfMemory, ValueError, TypeError, KeyError, ArithmeticError) as error:
        return time.perf_counter() - began_s, error
    except Broken:
        raise
    except Exception as error:  # a user's own class may raise anything
        return time.perf_counter() - began_s, error
    return time.perf_counter() - began_s, result


def _schema(columns: Columns) -> bytes:
    arrays = {name: result_array(values, np.zeros(len(values), np.bool_)) for name, values in columns.items()}
    return pa.schema([pa.field(name, array.type) for name, array in arrays.items()]).serialize().to_pybytes()
