"""Rows of tables, a window at a time: read, handed to the engine, and as the part has them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twoshift.batch.inputs import READ_ERROR, Piece, as_typed, conform, fitted, joined, read
from twoshift.batch.json_answers import AnswerSchema
from twoshift.batch.origins import Origin, Origins
from twoshift.batch.part_stats import MOST_FAILED, FailedRow
from twoshift.batch.plan import Plan
from twoshift.batch.result_columns import ERROR, result_array
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.known import SINKS
from twoshift.batch.windows import WINDOW_BYTES, WINDOW_ROWS, Stopped, Tally, columns_of
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.gentle_prepare import gentle_of
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import Window
from twoshift.errors import Broken, InvalidInput
from twoshift.ports import Blobs
from twoshift.types import TextPolicy

__all__ = ["TableBatch", "TableRows", "TableWindow", "model_rows", "readable_rows", "without_place"]

_NAMED_VALUES, _SHOWN_VALUE = 2, 40  # of a failed row, and characters of each
_FIRST_ROWS = 256  # of a worker's first window
_AS_THEY_ARE: Mapping[str, str] = MappingProxyType({})
_ALONE = re.compile(r"^row 0(?:, |: )")
_A = {"bool": "a bool", "float": "a float", "int": "an int", "string": "a string"}


@dataclass(frozen=True, slots=True)
class TableBatch:
    """A window's rows as they were read."""

    batch: pa.RecordBatch
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class TableWindow:
    """Kept columns, and the rows with the engine."""

    kept: pa.RecordBatch
    window: Window
    origins: tuple[Origin, ...]

    def cancel(self) -> None:
        """Nobody wants the results any more."""
        self.window.cancel()


class TableRows:
    """The rows of one plan's tables."""

    def __init__(
        self, engine: BlockTaker, plan: Plan, blobs_for: Callable[[str], Blobs], owner: BlockOwner | None = None
    ) -> None:
        self._engine, self._plan, self._blobs_for, self._owner = engine, plan, blobs_for, owner
        self._schema = plan.schema
        self._kept = pa.schema([self._schema.field(name) for name in plan.settings.keep])
        schema = plan.settings.json_schema
        self._answers = None if schema is None else AnswerSchema(schema)
        self._origins = Origins(plan)
        # A device that packs rows of any length begins with the first few, as one where rows take long to prepare;
        # others want rows to sort
        begins_early = engine.runtime.info.live_stream or gentle_of(engine) is not None
        self._window_rows = _FIRST_ROWS if begins_early else WINDOW_ROWS

    def windows(self, shard: int, stop: threading.Event) -> Iterator[TableBatch]:
        """The shard's rows in windows, whatever batches the files come in."""
        held, origins = list[pa.RecordBatch](), list[Origin]()
        rows = size = 0
        for piece, seen, batch in self._batches(shard):
            if stop.is_set():
                raise Stopped
            if held and (batch.schema != held[0].schema or rows + batch.num_rows > self._window_rows):
                yield self._window(held, origins)
                held, origins, rows, size = [], [], 0, 0
            held.append(batch)
            origins.append(Origin(rows, piece, seen))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= self._window_rows or size >= WINDOW_BYTES:
                yield self._window(held, origins)
                held, origins, rows, size = [], [], 0, 0
        if held:
            yield self._window(held, origins)

    def _window(self, held: list[pa.RecordBatch], origins: list[Origin]) -> TableBatch:
        self._window_rows = min(WINDOW_ROWS, 2 * self._window_rows)
        return TableBatch(joined(held), tuple(origins))

    def _batches(self, shard: int) -> Iterator[tuple[Piece, int, pa.RecordBatch]]:
        """The shard's batches, each with its piece and how many rows of that came before it."""
        columns = self._plan.settings.read_columns
        for piece in self._plan.pieces(shard):
            file, seen = self._plan.files[piece.file], 0
            blobs = self._blobs_for(file.location)
            for batch in read(piece, file, blobs, columns, self._window_rows, WINDOW_BYTES, self._kept):
                yield piece, seen, batch
                seen += batch.num_rows

    def begin(self, given: TableBatch) -> TableWindow:
        """The kept columns, and a window whose good rows are with the engine."""
        batch = given.batch
        window = Window(batch.num_rows)
        kept, unfit = conform(batch, self._kept)
        for place, error in unfit.items():
            window.fail(place, error, "kept column")
        if READ_ERROR in batch.schema.names:
            for place, error in enumerate(batch.column(READ_ERROR).to_pylist()):
                if error is not None:
                    window.fail(place, error, "unreadable")
        rows, unreadable = _told_rows(batch, self._plan.settings, self._plan.types, self._plan.model.is_ordered)
        for place, error in unreadable.items():
            window.fail(place, error, "unreadable")
        prompting = self._plan.settings.prompting
        of_prompts = () if prompting is None else prompting.columns
        texts = self._plan.settings.texts
        for place, row in enumerate(rows):
            if row is not None or place in window.errors:
                continue
            if texts.empty == "skip":
                window.skipped.add(place)
            elif texts.empty == "error":
                window.fail(place, "the text is empty", "empty")
            else:
                window.fail(place, _null(batch, of_prompts, place), "null")
        window.submit(self._engine, rows, self._owner, too_long=texts.too_long)
        return TableWindow(kept, window, given.origins)

    def finish(self, begun: TableWindow, tally: Tally, stop: threading.Event) -> pa.RecordBatch:
        """The window's rows as the part has them, in the order of the input."""
        window = begun.window
        values = columns_of(window, stop)
        if self._answers is not None and "text" in values:
            read, unreadable = self._answers.columns(values["text"], window.errors)
            values |= read
            for place, error in unreadable.items():
                window.fail(place, error, "no JSON")
        batch = self._batch(begun, values)
        unwritable = SINKS[self._plan.settings.output_format].unwritable(batch)
        odd = {place: why for place, why in unwritable.items() if place not in window.errors}
        tally.add(window, window.rows, [*window.kinds.values(), *("not finite" for _ in odd)])
        whole = self._with_errors(batch, begun, odd)
        failed = sorted(window.errors.keys() | odd.keys())[: MOST_FAILED - len(tally.failed)]
        tally.failed += [_failed_row(whole, place, self._kept.names) for place in failed]
        return whole

    def _with_errors(self, batch: pa.RecordBatch, begun: TableWindow, more: dict[int, str]) -> pa.RecordBatch:
        if not more:
            return batch
        errors = batch.column(ERROR).to_pylist()
        for place, error in more.items():
            errors[place] = f"{self._origins.name(begun.origins, place)}: {error}"
        return batch.set_column(len(batch.schema) - 1, self._schema.field(ERROR), pa.array(errors, pa.string()))

    def _batch(self, begun: TableWindow, values: dict[str, NDArray[Any]]) -> pa.RecordBatch:
        kept, window = begun.kept, begun.window
        if unplanned := values.keys() - self._schema.names:
            raise Broken(
                f"the model returned the column {min(unplanned)}, which it did not return for the job's first rows; a "
                "model must return the same columns for all rows"
            )
        failed = np.zeros(window.rows, np.bool_)
        failed[[*window.errors, *window.skipped]] = True
        arrays = [kept.column(name) for name in self._kept.names]
        for schema_field in list(self._schema)[len(arrays) : -1]:
            column = values.get(schema_field.name)
            if column is None:
                arrays.append(pa.nulls(window.rows, schema_field.type))
                continue
            arrays.append(_cast(result_array(column, failed), schema_field))
        messages: list[str | None] = [None] * window.rows
        for place, error in window.errors.items():
            messages[place] = f"{self._origins.name(begun.origins, place)}: {without_place(error)}"
        return pa.RecordBatch.from_arrays([*arrays, pa.array(messages, pa.string())], schema=self._schema)


def _failed_row(batch: pa.RecordBatch, place: int, kept: list[str]) -> FailedRow:
    """For people: its kept values, shortened, and why."""
    values = ((name, batch.column(name)[place].as_py()) for name in kept[:_NAMED_VALUES])
    named = ", ".join(f"{name} {str(value)[:_SHOWN_VALUE]}" for name, value in values)
    return FailedRow(named, batch.column(ERROR)[place].as_py())


def model_rows(
    batch: pa.RecordBatch, settings: JobSettings, types: Mapping[str, str] = _AS_THEY_ARE, is_ordered: bool = False
) -> list[Any]:
    """A batch's rows as the model takes them: texts, pairs or dicts; None where a text is null or unreadable.

    `types` says what columns become; with `is_ordered` the model takes the columns that are named as a list.
    """
    return _told_rows(batch, settings, types, is_ordered)[0]


def readable_rows(
    batch: pa.RecordBatch, settings: JobSettings, types: Mapping[str, str] = _AS_THEY_ARE, is_ordered: bool = False
) -> dict[int, Any]:
    """The same by place, without the rows that could not be read."""
    rows, unreadable = _told_rows(batch, settings, types, is_ordered)
    told = batch.column(READ_ERROR).to_pylist() if READ_ERROR in batch.schema.names else [None] * len(rows)
    return {place: row for place, row in enumerate(rows) if told[place] is None and place not in unreadable}


def _told_rows(
    batch: pa.RecordBatch, settings: JobSettings, types: Mapping[str, str], is_ordered: bool
) -> tuple[list[Any], dict[int, str]]:
    """The model's rows, and by place why one cannot be read."""
    if (prompting := settings.prompting) is not None:
        return [prompting.request(row) for row in batch.select(prompting.columns).to_pylist()], {}
    if settings.text is None:
        names = [name for name in settings.columns or batch.schema.names if name != READ_ERROR]
        rows, errors = _typed_rows(batch.select(names), types, settings.types)
        return [[*row.values()] for row in rows] if is_ordered and settings.columns else rows, errors
    texts, errors = _texts(batch, "text", settings.text)
    texts = _told_texts(texts, settings.empty, errors)
    if settings.pair is None:
        return _prompted(texts, settings.prompt_name), errors
    seconds, more = _texts(batch, "pair", settings.pair)
    seconds = _told_texts(seconds, settings.empty, more)
    pairs = [None if None in both else both for both in zip(texts, seconds, strict=True)]
    return _prompted(pairs, settings.prompt_name), {**more, **errors}


def _told_texts(texts: list[str | None], empty: str | None, errors: Mapping[int, str]) -> list[str | None]:
    """None in place of those that are not to be answered; those that cannot be read stay None."""
    if empty == "answer":
        return [text if text is not None or place in errors else "" for place, text in enumerate(texts)]
    return texts if empty is None else [None if TextPolicy.is_empty(text) else text for text in texts]


def _prompted(rows: list[Any], name: str | None) -> list[Any]:
    """Rows that name their prompt; without a name the model puts its default one before them."""
    return rows if name is None else [None if row is None else {"text": row, "prompt_name": name} for row in rows]


def _typed_rows(
    batch: pa.RecordBatch, types: Mapping[str, str], stated: Mapping[str, str]
) -> tuple[list[Any], dict[int, str]]:
    """Rows of named values, and by place which of them does not fit its column's type."""
    columns, errors = list[pa.Array](), dict[int, str]()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        typed, unfit = as_typed(column, types.get(name), name in stated)
        columns.append(typed)
        for place, value in unfit.items():
            why = f"column {name}: {value} is not {_A[types[name]]}"
            errors[place] = f"{errors[place]}; {why}" if place in errors else why
    if not columns:
        return batch.to_pylist(), errors
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist(), errors


def without_place(error: str) -> str:
    """An error of a row that was tried alone, and is the first of one there."""
    return _ALONE.sub("", error)


def _null(batch: pa.RecordBatch, of_prompts: tuple[str, ...], place: int) -> str:
    """What is null in a row."""
    names = [name for name in of_prompts if not batch.column(name)[place].is_valid]
    return f"column {names[0]}, which the prompt uses, is null" if names else "the text is null"


def _texts(batch: pa.RecordBatch, option: str, name: str) -> tuple[list[str | None], dict[int, str]]:
    """A column as texts, null where one cannot be read; raises InvalidInput where none of its type ever could."""
    column = batch.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.to_pylist(), {}
    try:
        column.slice(0, 0).cast(pa.string())
    except pa.ArrowNotImplementedError:
        raise InvalidInput(option, name, f"a text column; {name} has the type {column.type}") from None
    texts, unfit = fitted(column, pa.string())
    why = "not text" if pa.types.is_temporal(column.type) else "invalid UTF-8"  # a time's zone may be unknown
    return texts.to_pylist(), {place: f"column {name}: {value} is {why}" for place, value in unfit.items()}


def _cast(array: pa.Array, planned: pa.Field) -> pa.Array:
    if array.type == planned.type:
        return array
    expected = f"expected {planned.type}, as for the job's first rows"
    try:
        fitted = array.cast(planned.type)
    except pa.ArrowException as error:
        raise Broken(f"the model's output column {planned.name} has the type {array.type}; {expected}") from error
    if _infinities(fitted) > _infinities(array):  # a narrower float does not say so by itself
        raise Broken(
            f"the model's output column {planned.name} has numbers that are too large for {planned.type}, the type of "
            "this column in the job's first rows"
        )
    return fitted


def _infinities(array: pa.Array) -> int:
    values = array.values if pa.types.is_fixed_size_list(array.type) else array
    if not pa.types.is_floating(values.type):
        return 0
    return int(np.isinf(values.fill_null(0.0).to_numpy(zero_copy_only=False)).sum())
