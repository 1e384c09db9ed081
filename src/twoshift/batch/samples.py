"""The first rows of a job's input: what they take decides how it is cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twoshift.batch.inputs import InputFile, piece_lines, read
from twoshift.batch.messages import Calibrate, Calibrated
from twoshift.batch.requests.rows import asked_of
from twoshift.batch.settings import JobSettings
from twoshift.batch.table_rows import readable_rows, without_place
from twoshift.batch.worker_startup import WorkerStartup
from twoshift.errors import InvalidInput, UnusableRows
from twoshift.ports import PARITY_BAR, Blobs, RuntimeInfo

__all__ = ["Samples", "measured_on"]

_SAMPLE_ROWS, _SAMPLE_FILES, _SAMPLE_REQUESTS = 64, 4, 32
_SAMPLE_BYTES = 1 << 20
_MOST_ROWS = 2048  # of a request in a sample
_MORE_SAMPLES = 16  # of so many rows, where none of the first can be scored


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows, and where each is: a file and a number, counted from 1."""

    rows: list[Any]
    places: list[tuple[str, int]]


class Samples:
    """Rows as the model takes them: of a few files' beginnings first, and on from there; their size is noted."""

    def __init__(
        self, files: tuple[InputFile, ...], blobs_for: Callable[[str], Blobs], settings: JobSettings,
        model: RuntimeInfo, types: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.files, self.settings, self._blobs_for, self._model = files, settings, blobs_for, model
        self._types = types
        self.row_bytes = 100.0  # of the rows that were looked at
        self.model_rows = 1.0  # of each: a request may have many

    def __iter__(self) -> Iterator[Sample]:
        """At least one sample, if an empty one. Without a row that can be scored the result columns are not known."""
        files = self.files
        chosen = files[:: max(1, len(files) // _SAMPLE_FILES)][:_SAMPLE_FILES]
        streams = [self._rows(file) for file in chosen]
        firsts = [sample for stream in streams if (sample := next(stream, None)) is not None]
        first = Sample(
            [row for each in firsts for row in each.rows], [place for each in firsts for place in each.places]
        )
        if first.rows or not files:
            yield first
        further = itertools.chain(*streams, *(self._rows(file) for file in files if file not in chosen))
        yield from itertools.islice((sample for sample in further if sample.rows), _MORE_SAMPLES)
        if not first.rows:
            yield Sample([], [])  # nothing but nulls, or nothing at all

    def _requests(self, file: InputFile) -> Iterator[Sample]:
        lines = piece_lines(file.head(), file, self._blobs_for(file.location))
        while some := list(itertools.islice(lines, _SAMPLE_REQUESTS)):
            asked = [asked_of(line, self.settings, self._model, _MOST_ROWS) for line in some]
            rows = [row for each in asked for row in each.rows]
            self.row_bytes = sum(map(len, some)) / len(some)
            self.model_rows = max(1.0, len(rows) / len(some))
            yield Sample(rows[:_SAMPLE_ROWS], [])  # a request that fails has its own reply

    def _rows(self, file: InputFile) -> Iterator[Sample]:
        if self.settings.endpoint is not None:
            yield from self._requests(file)
            return
        blobs, columns, seen = self._blobs_for(file.location), self.settings.model_columns, 0
        for batch in read(file.head(), file, blobs, columns, _SAMPLE_ROWS, _SAMPLE_BYTES):
            if batch.num_rows:
                self.row_bytes = batch.nbytes / batch.num_rows
            found = readable_rows(batch, self.settings, self._types, self._model.is_ordered).items()
            rows = [(row, seen + place + 1) for place, row in found if row is not None][:_SAMPLE_ROWS]
            yield Sample([row for row, _ in rows], [(file.location, number) for _, number in rows])
            seen += batch.num_rows


def measured_on(samples: Samples, muster: WorkerStartup) -> Calibrated:
    """What the first rows take that the model can score at all; raises InvalidInput where it can score none."""
    settings, measured, seen, first_error = samples.settings, None, 0, ""
    for sample in samples:
        measured, seen = muster.calibrated(Calibrate(sample.rows)), seen + len(sample.rows)
        if measured.schema is not None or not sample.rows:
            break
        first_error = first_error or _row_error(sample, measured)
    assert measured is not None  # noqa: S101 - there is a sample, if an empty one
    if settings.endpoint is not None:  # a request that fails has its own reply, and so have all of them
        return measured
    if measured.schema is None and seen:
        has_columns = settings.text or settings.columns or settings.prompt
        hint = "" if has_columns else "; give --text COLUMN if the model takes texts"
        raise UnusableRows("inputs", seen, f"{first_error}{hint}")
    if measured.parity is not None and not measured.parity >= PARITY_BAR:
        accepted = f"fp32: parity with it is {measured.parity:.4f} on the job's first {seen} rows, and at "
        raise InvalidInput("precision", settings.precision, f"{accepted}least {PARITY_BAR} is wanted")
    return measured


def _row_error(sample: Sample, measured: Calibrated) -> str:
    """What the first row that failed says, as it would stand in the output."""
    why = without_place(measured.error or "")
    if not sample.places:
        return why
    location, number = sample.places[measured.error_place]
    return f"{location}, row {number}: {why}"
