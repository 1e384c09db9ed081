"""The parity receipt: committed rows scored again, one at a time, the way a live request would be."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from twoshift.batch.inputs import read
from twoshift.batch.part import ERROR
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.scorer import model_rows
from twoshift.engine import Engine
from twoshift.ports import Blobs

__all__ = ["Receipt", "take_receipt"]

_DEADLINE_S = 3600.0
_LOOK_ROWS = 4096  # of a shard's beginning, from which rows are drawn


class Receipt(msgspec.Struct, frozen=True):
    """How far the two shifts agree on a sample."""

    rows: int
    worst_cosine: float | None  # of vectors
    worst_difference: float | None  # of numbers
    unequal: int  # of everything else


def take_receipt(engine: Engine, plan: Plan, shards: list[int], rows: int, blobs_for: Any) -> Receipt:
    """Compare up to so many rows of these shards' parts with the online path."""
    seen = Receipt(0, None, None, 0)
    for shard in shards:
        seen = _merged(seen, _shard_receipt(engine, plan, shard, max(1, rows // max(1, len(shards))), blobs_for))
    return seen


def _shard_receipt(engine: Engine, plan: Plan, shard: int, rows: int, blobs_for: Any) -> Receipt:
    given = _first_rows(plan, shard, blobs_for)
    part = _first_part_rows(plan, shard, blobs_for(plan.settings.output), len(given))
    good = [k for k, error in enumerate(part[ERROR]) if error is None and given[k] is not None]
    chosen = sorted(random.Random(shard).sample(good, min(rows, len(good))))  # noqa: S311 - a sample, no secret
    total = Receipt(0, None, None, 0)
    for k in chosen:
        prepared = engine.runtime.prepare([given[k]])
        result = engine.submit(prepared, engine.now_s() + _DEADLINE_S)[0].result()
        compared = [_compared(np.asarray(result[name]), part[name][k]) for name in result.columns if name in part]
        total = _merged(total, _row(compared))
    return total


def _first_rows(plan: Plan, shard: int, blobs_for: Any) -> list[Any]:
    rows: list[Any] = []
    for piece in plan.shards[shard]:
        file = plan.files[piece.file]
        for batch in read(piece, file, blobs_for(file.location), plan.settings.model_columns, 1024, 4 << 20):
            rows += model_rows(batch, plan.settings)
            if len(rows) >= _LOOK_ROWS:
                return rows[:_LOOK_ROWS]
    return rows


def _first_part_rows(plan: Plan, shard: int, output: Blobs, rows: int) -> dict[str, list[Any]]:
    location = part_location(plan, shard)
    with output.open(location) as file:
        if plan.settings.output_format == "parquet":
            batches = pq.ParquetFile(file).iter_batches(max(1, rows))
            batch = next(iter(batches), None)
            return {} if batch is None else batch.to_pydict()
        lines = [msgspec.json.decode(line) for line, _ in zip(file, range(rows), strict=False)]
    names = plan.schema.names
    return {name: [line.get(name) for line in lines] for name in names}


def _compared(live: NDArray[Any], stored: Any) -> tuple[float | None, float | None, bool]:
    """Cosine of vectors, difference of numbers, or whether anything else differs."""
    if live.dtype.kind not in "fiu":
        return None, None, live.tolist() != stored
    other = np.asarray(stored, np.float64)
    if live.ndim != 1:
        return None, float(np.max(np.abs(live - other), initial=0.0)), False
    norms = np.linalg.norm(live) * np.linalg.norm(other)
    return (float(live @ other / norms) if norms else 1.0), None, False


def _row(compared: list[tuple[float | None, float | None, bool]]) -> Receipt:
    cosines = [cosine for cosine, _, _ in compared if cosine is not None]
    differences = [difference for _, difference, _ in compared if difference is not None]
    unequal = int(any(differs for _, _, differs in compared))
    return Receipt(1, min(cosines, default=None), max(differences, default=None), unequal)


def _merged(one: Receipt, other: Receipt) -> Receipt:
    cosines = [c for c in (one.worst_cosine, other.worst_cosine) if c is not None]
    differences = [d for d in (one.worst_difference, other.worst_difference) if d is not None]
    return Receipt(
        one.rows + other.rows, min(cosines, default=None), max(differences, default=None), one.unequal + other.unequal
    )
