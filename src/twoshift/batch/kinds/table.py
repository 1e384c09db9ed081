"""A table: each row of its files becomes a row of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from twoshift.batch.inputs import InputFile, kept_schema, model_types, read
from twoshift.batch.kinds.kind import SAMPLE_ROWS, FirstLook, SampledRows, SampleOf
from twoshift.batch.messages import Calibrated
from twoshift.batch.plan import Plan
from twoshift.batch.result_columns import output_schema
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.known import SINKS
from twoshift.batch.table_rows import TableRows, readable_rows
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput, UnusableRows
from twoshift.ports import PARITY_BAR, Blobs

__all__ = ["TableKind"]

_SAMPLE_BYTES = 1 << 20


class TableKind:
    """A JobKind."""

    parts_are_counted = False
    is_rechecked = True

    def first_look(
        self, files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], settings: JobSettings
    ) -> FirstLook:
        """Columns and their types; raises InvalidInput where a column is missing or cannot be kept."""
        try:
            found = kept_schema(files, blobs_for, (*(settings.model_columns or ()), *settings.keep), settings.types)
        except InvalidInput as error:
            if error.field != "column":
                raise
            raise error.renamed(_setting_of(error.value, settings)) from error
        kept = pa.schema([found.field(name) for name in settings.keep])
        SINKS[settings.output_format].check_kept(kept)
        types = model_types(files, blobs_for, settings.model_columns, settings.types)
        takes_named_values = settings.text is None and settings.prompt is None
        return FirstLook(kept, types if takes_named_values else {})

    def samples(self, file: InputFile, blobs: Blobs, asked: SampleOf) -> Iterator[SampledRows]:
        """Rows that can be read, with their numbers."""
        seen = 0
        for batch in read(file.head(), file, blobs, asked.settings.model_columns, SAMPLE_ROWS, _SAMPLE_BYTES):
            row_bytes = batch.nbytes / max(1, batch.num_rows)
            found = readable_rows(batch, asked.settings, asked.types, asked.model.is_ordered).items()
            rows = [(row, seen + place + 1) for place, row in found if row is not None][:SAMPLE_ROWS]
            yield SampledRows([row for row, _ in rows], [(file.location, number) for _, number in rows], row_bytes)
            seen += batch.num_rows

    def check_measured(self, settings: JobSettings, measured: Calibrated, seen: int, first_error: str) -> None:
        """Raises InvalidInput where no row can be scored, and where a lossy precision is too far off."""
        if measured.schema is None and seen:
            has_columns = settings.text or settings.columns or settings.prompt
            hint = "" if has_columns else "; use --text COLUMN if the model takes texts"
            raise UnusableRows("inputs", seen, f"{first_error}{hint}")
        if measured.parity is not None and not measured.parity >= PARITY_BAR:
            found = f"{settings.precision} has a parity of {measured.parity:.4f} with fp32"
            accepted = f"fp32: on the job's first {seen} rows, {found}; at least {PARITY_BAR} is required"
            raise InvalidInput("precision", settings.precision, accepted)

    def schema(self, kept: pa.Schema, results: Mapping[str, pa.DataType]) -> pa.Schema:
        """Kept columns, results, error."""
        return output_schema(kept, results)

    def rows(
        self, engine: BlockTaker, plan: Plan, blobs_for: Callable[[str], Blobs], owner: BlockOwner | None
    ) -> TableRows:
        """Rows of the table."""
        return TableRows(engine, plan, blobs_for, owner)

    def rows_done(self, settings: JobSettings, by_model: int, written: int) -> int:
        """The model's rows are the input's, or pieces of them."""
        return written if settings.too_long == "split" else by_model


def _setting_of(column: object, settings: JobSettings) -> str:
    """Which setting names it."""
    named = {
        "text": (settings.text,),
        "pair": (settings.pair,),
        "columns": settings.columns,
        "prompt": () if settings.prompting is None else settings.prompting.columns,
    }
    return next((name for name, columns in named.items() if column in columns), "keep")
