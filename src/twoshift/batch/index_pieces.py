"""A shard's piece of the job's index: written beside its part, published after it, and made from it where missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from twoshift.batch.part_file import PartFile, Seal
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.result_columns import is_vector
from twoshift.batch.sinks.known import SINKS
from twoshift.batch.sinks.sink import PartWriter
from twoshift.errors import Inapplicable, TwoshiftError
from twoshift.ports import Blobs
from twoshift.vectors.pieces import check_key_type, piece_batch, piece_schema

__all__ = [
    "IndexedPart",
    "drop_piece",
    "piece_from_part",
    "piece_location",
    "piece_writer",
    "publish_piece",
    "schema_of_pieces",
    "vector_column",
]

_FOLDER = "_twoshift/index"
_EMBEDDING = "embedding"
_SUFFIX = ".piece"


def vector_column(schema: pa.Schema, model: str, index: str | None) -> tuple[str, int]:
    """The output's column of vectors, and their dimensions; raises InvalidInput where there is not one."""
    found = [field.name for field in schema if is_vector(field.type)]
    name = _EMBEDDING if _EMBEDDING in found else found[0] if len(found) == 1 else None
    if name is None:
        has = f"the vector outputs {', '.join(found)}" if found else "no vector output"
        why = f"because an index needs one vector output, or a vector output named `{_EMBEDDING}`; {model} has {has}"
        raise Inapplicable("index", index, why)
    return name, schema.field(name).type.list_size


def schema_of_pieces(plan: Plan) -> pa.Schema:
    """Raises InvalidInput where the output has no vectors, or a column that cannot be a key."""
    settings, schema = plan.settings, plan.schema
    _, dims = vector_column(schema, plan.model.name, settings.index)
    key = settings.index_key
    return piece_schema(dims, None if key is None else check_key_type(key, schema.field(key).type))


def piece_location(plan: Plan, shard: int, sha256: str) -> str:
    """Named after the very bytes of its part: one of a part that was done again is another."""
    key = "" if plan.settings.index_key is None else f"-{plan.settings.index_key.encode().hex()}"
    return f"{plan.settings.output.rstrip('/')}/{_FOLDER}/piece-{shard:06d}-{sha256[:16]}{key}.arrow"


class PieceWriter:
    """Writes what a part's rows have of the index."""

    def __init__(self, plan: Plan, path: Path) -> None:
        self._schema, self._key = schema_of_pieces(plan), plan.settings.index_key
        self._vector, _ = vector_column(plan.schema, plan.model.name, plan.settings.index)
        self._file = PartFile(path)
        self._writer = pa.ipc.new_file(self._file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows of the part, in order."""
        self._writer.write_batch(piece_batch(batch, self._vector, self._key, self._schema))

    def finish(self) -> None:
        """Whole."""
        self._writer.close()
        self._file.close()

    def discard(self) -> None:
        """As it is."""
        for each in (self._writer, self._file):
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                each.close()


class IndexedPart:
    """A PartWriter that writes the part and, beside it, its piece."""

    def __init__(self, part: PartWriter, piece: PieceWriter) -> None:
        self._part, self._piece = part, piece

    def write(self, batch: pa.RecordBatch) -> None:
        """To both."""
        self._part.write(batch)
        self._piece.write(batch)

    def finish(self, stats: PartStats) -> Seal:
        """Both whole."""
        self._piece.finish()
        return self._part.finish(stats)

    def discard(self) -> None:
        """Both as they are."""
        self._piece.discard()
        self._part.discard()


def piece_writer(plan: Plan, staged: Path, part: PartWriter) -> PartWriter:
    """The part's writer; with its piece, where the job has an index."""
    return part if plan.settings.index is None else IndexedPart(part, PieceWriter(plan, _beside(staged)))


def publish_piece(output: Blobs, plan: Plan, shard: int, staged: Path, seal: Seal) -> None:
    """After the part, by whoever published that: a piece is never another part's. Missing ones are made again."""
    beside = _beside(staged)
    if beside.exists():
        with contextlib.suppress(OSError, TwoshiftError):
            output.publish(beside, piece_location(plan, shard, seal.sha256))


def drop_piece(staged: Path) -> None:
    """What is left of one that was not published."""
    _beside(staged).unlink(missing_ok=True)


def piece_from_part(output: Blobs, plan: Plan, shard: int, path: Path) -> None:
    """Write a shard's piece to that path, from its part."""
    piece = PieceWriter(plan, path)
    try:
        for batch in _part_batches(output, plan, shard):
            piece.write(batch)
        piece.finish()
    except BaseException:
        piece.discard()
        raise


def _part_batches(output: Blobs, plan: Plan, shard: int) -> Iterator[pa.RecordBatch]:
    vector, _ = vector_column(plan.schema, plan.model.name, plan.settings.index)
    names = [name for name in (plan.settings.index_key, vector) if name is not None]
    with output.open(part_location(plan, shard)) as file:
        yield from SINKS[plan.settings.output_format].batches(file, _only(plan.schema, names))


def _only(schema: pa.Schema, names: list[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _beside(staged: Path) -> Path:
    return staged.with_name(f"{staged.name}{_SUFFIX}")
