"""One shard after the other through an engine: read, prepare, sort, run, restore, write, publish."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twoshift.batch.inputs import READ_ERROR, conform, fitted, joined, read
from twoshift.batch.json_answers import AnswerSchema
from twoshift.batch.part import PartStats, open_part, result_array
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.settings import JobSettings
from twoshift.engine import BlockFuture
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.results import BlockResult
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import Window
from twoshift.errors import Broken, InvalidInput, NoRoom, TryLater
from twoshift.ports import Blobs

__all__ = ["ShardScorer", "Stopped", "model_rows", "readable_rows"]

_WINDOW_ROWS, _WINDOW_BYTES = 2048, 4 << 20  # sorted by length within; what memory grows by
_AHEAD = 8  # windows that are prepared, on the device or written while one is read


_Begun = Future[tuple[pa.RecordBatch, Window]]  # kept columns, and the rows with the engine


class Stopped(Exception):
    """The shard was given up before it was published."""


@dataclass(slots=True)
class _Tally:
    """What has been written of a shard."""

    rows: int = 0
    errors: int = 0
    tokens: int = 0
    truncated: int = 0
    device_s: float = 0.0
    output_tokens: int = 0
    cached_tokens: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])


class ShardScorer:
    """Scores shards of one plan; several may be in work at once, so that the device never waits for the next."""

    def __init__(
        self,
        engine: BlockEngine,
        plan: Plan,
        blobs_for: Callable[[str], Blobs],
        worker: str,
        owner: BlockOwner | None = None,
    ) -> None:
        self._engine, self._plan, self._blobs_for, self._worker, self._owner = engine, plan, blobs_for, worker, owner
        self._schema = plan.schema
        self._kept = pa.schema([self._schema.field(name) for name in plan.settings.keep])
        schema = plan.settings.json_schema
        self._answers = None if schema is None else AnswerSchema(schema)
        self._prepare = ThreadPoolExecutor(2, "twoshift-prepare")

    def score(self, shard: int, stop: threading.Event, was_read: Callable[[], None]) -> tuple[PartStats, bool]:
        """The shard's stats, and whether it was us who published its part; raises Stopped once `stop` is set.

        `was_read` is called when all input is read: time to begin the next.
        """
        began_s = time.monotonic()
        output = self._blobs_for(self._plan.settings.output)
        location = part_location(self._plan, shard)
        staged = output.staging(location) / f"{Path(location).name}.{os.getpid()}.{uuid.uuid4().hex}"
        try:
            tally = self._write(shard, staged, stop, was_read, began_s)
            return self._stats(shard, tally, began_s), output.publish(staged, location)
        finally:
            staged.unlink(missing_ok=True)

    def close(self) -> None:
        """No more shards."""
        self._prepare.shutdown(wait=False, cancel_futures=True)

    def _write(
        self, shard: int, staged: Path, stop: threading.Event, was_read: Callable[[], None],
        began_s: float,
    ) -> _Tally:  # fmt: skip
        writer = open_part(staged, self._plan.settings.output_format, self._schema)
        tally, begun = _Tally(), deque[_Begun]()  # what is not written yet; the first may be in the writer's hands
        written = deque[Future[None]]()

        def settle(window: _Begun) -> None:
            batch = self._finished(*window.result(), tally, stop)
            begun.popleft()  # not before: what is given up is taken back from the engine
            writer.write(batch)

        with ThreadPoolExecutor(1, "twoshift-write") as writes:
            try:
                for batch in self._windows(shard, stop):
                    begun.append(self._prepare.submit(self._begun, batch))
                    written.append(writes.submit(settle, begun[-1]))
                    if len(written) > _AHEAD:
                        written.popleft().result()
                was_read()
                while written:
                    written.popleft().result()
                writer.finish(self._stats(shard, tally, began_s))
            except BaseException:
                writes.shutdown(wait=True, cancel_futures=True)
                for window in begun:
                    _abandon(window)
                writer.discard()
                raise
        return tally

    def _windows(self, shard: int, stop: threading.Event) -> Iterator[pa.RecordBatch]:
        """The shard's rows in windows, whatever batches the files come in."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for piece in self._plan.shards[shard]:
            file = self._plan.files[piece.file]
            columns = self._plan.settings.read_columns
            blobs = self._blobs_for(file.location)
            for batch in read(piece, file, blobs, columns, _WINDOW_ROWS, _WINDOW_BYTES, self._kept):
                if stop.is_set():
                    raise Stopped
                if held and (batch.schema != held[0].schema or rows + batch.num_rows > _WINDOW_ROWS):
                    yield joined(held)
                    held, rows, size = [], 0, 0
                held.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= _WINDOW_ROWS or size >= _WINDOW_BYTES:
                    yield joined(held)
                    held, rows, size = [], 0, 0
        if held:
            yield joined(held)

    def _begun(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Window]:
        """The kept columns, and a window whose good rows are with the engine."""
        window = Window(batch.num_rows)
        kept, unfit = conform(batch, self._kept)
        for place, error in unfit.items():
            window.fail(place, error, "kept column")
        if READ_ERROR in batch.schema.names:
            for place, error in enumerate(batch.column(READ_ERROR).to_pylist()):
                if error is not None:
                    window.fail(place, error, "unreadable")
        rows, unreadable = _told_rows(batch, self._plan.settings)
        for place, error in unreadable.items():
            window.fail(place, error, "unreadable")
        for place, row in enumerate(rows):
            if row is None and place not in window.errors:
                window.fail(place, "the text is null", "null")
        window.submit(self._engine, rows, self._owner)
        return kept, window

    def _finished(self, kept: pa.RecordBatch, window: Window, tally: _Tally, stop: threading.Event) -> pa.RecordBatch:
        """The window's rows as the part has them, in the order of the input."""
        values = window.columns(lambda future: _result(future, stop))
        unfit = next((window.errors[place] for place, kind in window.kinds.items() if kind == NoRoom.__name__), None)
        if unfit is not None:  # the row is good, and may fit once the server's curve says so; or another server's call
            change = "give the server a larger --slo-ms or --call-budget-ms, or run the job on workers of its own"
            raise NoRoom(f"{unfit}: {change}")
        if self._answers is not None and "text" in values:
            read, unreadable = self._answers.columns(values["text"], window.errors)
            values |= read
            for place, error in unreadable.items():
                window.fail(place, error, "no JSON")
        tally.rows += window.rows
        tally.errors += len(window.errors)
        tally.tokens += window.tokens
        tally.truncated += window.truncated
        tally.device_s += window.device_s
        tally.output_tokens += window.output_tokens
        tally.cached_tokens += window.cached_tokens
        tally.kinds.update(window.kinds.values())
        return self._batch(kept, window, values)

    def _batch(self, kept: pa.RecordBatch, window: Window, values: dict[str, NDArray[Any]]) -> pa.RecordBatch:
        if unplanned := values.keys() - self._schema.names:
            raise Broken(f"the model answers with {min(unplanned)}, which was not in the job's first rows")
        failed = np.zeros(window.rows, np.bool_)
        failed[list(window.errors)] = True
        arrays = [kept.column(name) for name in self._kept.names]
        for schema_field in list(self._schema)[len(arrays) : -1]:
            column = values.get(schema_field.name)
            if column is None:
                arrays.append(pa.nulls(window.rows, schema_field.type))
                continue
            arrays.append(_cast(result_array(column, failed), schema_field))
        messages = [window.errors.get(place) for place in range(window.rows)]
        return pa.RecordBatch.from_arrays([*arrays, pa.array(messages, pa.string())], schema=self._schema)

    def _stats(self, shard: int, tally: _Tally, began_s: float) -> PartStats:
        return PartStats(
            shard=shard,
            rows=tally.rows,
            errors=tally.errors,
            tokens=tally.tokens,
            truncated=tally.truncated,
            seconds=time.monotonic() - began_s,
            device_s=tally.device_s,
            worker=self._worker,
            kinds=dict(tally.kinds),
            output_tokens=tally.output_tokens,
            cached_tokens=tally.cached_tokens,
        )


def model_rows(batch: pa.RecordBatch, settings: JobSettings) -> list[Any]:
    """A batch's rows as the model takes them: texts, pairs or dicts; None where a text is null or unreadable."""
    return _told_rows(batch, settings)[0]


def readable_rows(batch: pa.RecordBatch, settings: JobSettings) -> list[Any]:
    """The same, without the rows that could not be read."""
    rows, unreadable = _told_rows(batch, settings)
    told = batch.column(READ_ERROR).to_pylist() if READ_ERROR in batch.schema.names else [None] * len(rows)
    return [row for place, row in enumerate(rows) if told[place] is None and place not in unreadable]


def _told_rows(batch: pa.RecordBatch, settings: JobSettings) -> tuple[list[Any], dict[int, str]]:
    """The model's rows, and by place why a text cannot be read."""
    if (prompting := settings.prompting) is not None:
        return [prompting.request(row) for row in batch.select(prompting.columns).to_pylist()], {}
    if settings.text is None:
        names = [name for name in settings.columns or batch.schema.names if name != READ_ERROR]
        return batch.select(names).to_pylist(), {}
    texts, errors = _texts(batch, "text", settings.text)
    if settings.pair is None:
        return texts, errors
    seconds, more = _texts(batch, "pair", settings.pair)
    pairs = [None if None in both else both for both in zip(texts, seconds, strict=True)]
    return pairs, {**more, **errors}


def _texts(batch: pa.RecordBatch, option: str, name: str) -> tuple[list[str | None], dict[int, str]]:
    """A column as texts, null where one cannot be read; raises InvalidInput where none of its type ever could."""
    column = batch.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.to_pylist(), {}
    try:
        column.slice(0, 0).cast(pa.string())
    except pa.ArrowNotImplementedError:
        raise InvalidInput(option, name, f"a column of texts; {name} is a {column.type}") from None
    texts, unfit = fitted(column, pa.string())
    why = "no text" if pa.types.is_temporal(column.type) else "invalid UTF-8"  # a time's zone may be unknown
    return texts.to_pylist(), {place: f"column {name}: {value} is {why}" for place, value in unfit.items()}


def _result(future: BlockFuture, stop: threading.Event) -> BlockResult:
    while True:
        try:
            return future.result(0.5)
        except TimeoutError:
            if stop.is_set():
                raise Stopped from None
        except TryLater as error:  # the engine drains
            raise Stopped from error


def _abandon(future: _Begun) -> None:
    if not future.cancel() and future.exception() is None:
        future.result()[1].cancel()


def _cast(array: pa.Array, planned: pa.Field) -> pa.Array:
    if array.type == planned.type:
        return array
    expected = f"expected {planned.type}, as it was in the job's first rows"
    try:
        fitted = array.cast(planned.type)
    except pa.ArrowException as error:
        raise Broken(f"the model's column {planned.name} is {array.type} here; {expected}") from error
    if _infinities(fitted) > _infinities(array):  # a narrower float does not say so by itself
        raise Broken(f"the model's column {planned.name} has numbers too large for its type; {expected}")
    return fitted


def _infinities(array: pa.Array) -> int:
    values = array.values if pa.types.is_fixed_size_list(array.type) else array
    if not pa.types.is_floating(values.type):
        return 0
    return int(np.isinf(values.fill_null(0.0).to_numpy(zero_copy_only=False)).sum())
