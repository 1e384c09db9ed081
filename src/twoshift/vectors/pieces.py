"""A shard's piece of an index: its vectors and keys, row by row as its part has them, in Arrow's file format.

A piece is a by-product that can be made again from its part at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput
from twoshift.vectors.library import Vectors

__all__ = ["KEY", "VECTOR", "PieceSet", "check_key_type", "piece_batch", "piece_schema"]

KEY, VECTOR = "key", "vector"
_CHUNK_ROWS = 16_384  # that are added at once: a signal has to wait for no more


def check_key_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type of keys of a column of that type; raises InvalidInput."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.large_string()
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return pa.int64()
    raise InvalidInput("index_key", name, f"a column of integers or strings; this column has the type {kind}")


def piece_schema(dims: int, key_type: pa.DataType | None) -> pa.Schema:
    """Without a key, the row number in the output is its key."""
    fields = [] if key_type is None else [pa.field(KEY, key_type)]
    return pa.schema([*fields, pa.field(VECTOR, pa.list_(pa.float32(), dims))])


def piece_batch(batch: pa.RecordBatch, vector: str, key: str | None, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a part, as its piece has them."""
    names = [name for name in (key, vector) if name is not None]
    columns = [batch.column(name).cast(kind.type) for name, kind in zip(names, schema, strict=True)]
    return pa.record_batch(columns, schema=schema)


@dataclass(slots=True)
class PieceSet:
    """A VectorSet: the vectors of all pieces that an index can hold, each key once; the last row of a key wins."""

    count: int
    dims: int
    keys: pa.Array  # of each vector
    left_out: dict[str, int]  # rows, by why
    rows: int  # of the parts
    _paths: Sequence[Path]
    _unit: bool  # vectors are given the length 1
    _kept: NDArray[np.bool_] = field(repr=False)  # by row

    @classmethod
    def read(cls, paths: Sequence[Path], dims: int, metric: str) -> PieceSet:
        """Look through them; raises Broken where one is no piece of these dimensions."""
        left_out, masks, keys = Counter[str](), list[NDArray[np.bool_]](), list[pa.Array]()
        rows = 0
        for batch in _batches(paths, dims):
            kept = _usable(batch, metric, left_out)
            key = batch.column(KEY) if KEY in batch.schema.names else pa.array(np.arange(rows, rows + len(batch)))
            masks.append(kept)
            keys.append(key.filter(pa.array(kept)))
            rows += len(batch)
        mask = np.concatenate(masks) if masks else np.zeros(0, bool)
        found = pa.concat_arrays(keys) if keys else pa.array([], pa.int64())
        last = _last_of_each(found)
        left_out["superseded by a later row with the same key"] += int(len(last) - last.sum())
        mask[np.flatnonzero(mask)[~last]] = False
        counted = {why: count for why, count in left_out.items() if count}
        return cls(int(mask.sum()), dims, found.filter(pa.array(last)), counted, rows, paths, metric == "cos", mask)

    def chunks(self) -> Iterator[Vectors]:
        """All of them in order."""
        start = 0
        for batch in _batches(self._paths, self.dims):
            kept = np.flatnonzero(self._kept[start : start + len(batch)])
            start += len(batch)
            for first in range(0, len(kept), _CHUNK_ROWS):
                yield self._shaped(_matrix(batch)[kept[first : first + _CHUNK_ROWS]])

    def take(self, places: NDArray[np.int64]) -> Vectors:
        """Those at these places, which rise."""
        rows, found, start = np.flatnonzero(self._kept)[places], [np.zeros((0, self.dims), np.float32)], 0
        for batch in _batches(self._paths, self.dims):
            first, last = np.searchsorted(rows, (start, start + len(batch)))
            if last > first:
                found.append(_matrix(batch)[rows[first:last] - start])
            start += len(batch)
        return self._shaped(np.concatenate(found))

    def _shaped(self, vectors: Vectors) -> Vectors:
        if not self._unit:
            return np.ascontiguousarray(vectors)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _batches(paths: Sequence[Path], dims: int) -> Iterator[pa.RecordBatch]:
    """Mapped, not read: memory holds what is looked at."""
    for path in paths:
        with pa.memory_map(str(path)) as file:
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowException as error:
                what = f"{path} is not a piece of a vector index ({error})"
                raise Broken(f"{what}: delete the piece and run the job again") from error
            found = reader.schema.field(VECTOR).type.list_size
            if found != dims:
                what = f"{path} has vectors of {found} dimensions, but the index has vectors of {dims} dimensions"
                raise Broken(f"{what}: delete the piece and run the job again")
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _matrix(batch: pa.RecordBatch) -> Vectors:
    """A row each, also where there is no vector: what it is then means nothing."""
    column = batch.column(VECTOR)
    dims = column.type.list_size
    flat = column.values.slice(column.offset * dims, len(column) * dims)
    return flat.fill_null(0.0).to_numpy(zero_copy_only=False).reshape(-1, dims)


def _usable(batch: pa.RecordBatch, metric: str, left_out: Counter[str]) -> NDArray[np.bool_]:
    there = batch.column(VECTOR).is_valid().to_numpy(zero_copy_only=False)
    # A squared length is finite only where all numbers are, and not too large to be compared
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.einsum("ij,ij->i", matrix := _matrix(batch), matrix)
    finite = np.isfinite(lengths)
    pointing = lengths > 0 if metric == "cos" else np.ones(len(batch), bool)
    keyed = np.ones(len(batch), bool)
    if KEY in batch.schema.names:
        keyed = batch.column(KEY).is_valid().to_numpy(zero_copy_only=False)
    left_out["without a result"] += int((~there).sum())
    left_out["not finite"] += int((there & ~finite).sum())
    left_out["of length 0"] += int((there & finite & ~pointing).sum())
    kept = there & finite & pointing
    left_out["without a key"] += int((kept & ~keyed).sum())
    return kept & keyed


def _last_of_each(keys: pa.Array) -> NDArray[np.bool_]:
    """Which of them are the last of their value."""
    codes = keys.dictionary_encode().indices.to_numpy()
    last = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return last[codes] == np.arange(len(codes))
