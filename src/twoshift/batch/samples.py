"""The first rows of a job's input: what they take decides how it is cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twoshift.batch.inputs import InputFile, piece_lines, read
from twoshift.batch.messages import Calibrate, Calibrated
from twoshift.batch.muster import Muster
from twoshift.batch.requests.rows import asked_of
from twoshift.batch.settings import JobSettings
from twoshift.batch.table_rows import readable_rows
from twoshift.errors import InvalidInput
from twoshift.ports import PARITY_BAR, Blobs, RuntimeInfo

__all__ = ["Samples", "measured_on"]

_SAMPLE_ROWS, _SAMPLE_FILES, _SAMPLE_REQUESTS = 64, 4, 32
_SAMPLE_BYTES = 1 << 20
_MOST_ROWS = 2048  # of a request in a sample
_MORE_SAMPLES = 16  # of so many rows, where none of the first can be scored


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

    def __iter__(self) -> Iterator[list[Any]]:
        """At least one sample, if an empty one. Without a row that can be scored the result columns are not known."""
        files = self.files
        chosen = files[:: max(1, len(files) // _SAMPLE_FILES)][:_SAMPLE_FILES]
        streams = [self._rows(file) for file in chosen]
        first = [row for stream in streams for row in next(stream, [])]
        if first or not files:
            yield first
        further = itertools.chain(*streams, *(self._rows(file) for file in files if file not in chosen))
        yield from itertools.islice(filter(None, further), _MORE_SAMPLES)
        if not first:
            yield []  # nothing but nulls, or nothing at all

    def _requests(self, file: InputFile) -> Iterator[list[Any]]:
        lines = piece_lines(file.head(), file, self._blobs_for(file.location))
        while some := list(itertools.islice(lines, _SAMPLE_REQUESTS)):
            asked = [asked_of(line, self.settings, self._model, _MOST_ROWS) for line in some]
            rows = [row for each in asked for row in each.rows]
            self.row_bytes = sum(map(len, some)) / len(some)
            self.model_rows = max(1.0, len(rows) / len(some))
            yield rows[:_SAMPLE_ROWS]

    def _rows(self, file: InputFile) -> Iterator[list[Any]]:
        if self.settings.endpoint is not None:
            yield from self._requests(file)
            return
        blobs, columns = self._blobs_for(file.location), self.settings.model_columns
        for batch in read(file.head(), file, blobs, columns, _SAMPLE_ROWS, _SAMPLE_BYTES):
            if batch.num_rows:
                self.row_bytes = batch.nbytes / batch.num_rows
            yield [row for row in readable_rows(batch, self.settings, self._types) if row is not None][:_SAMPLE_ROWS]


def measured_on(samples: Samples, muster: Muster) -> Calibrated:
    """What the first rows take that the model can score at all; raises InvalidInput where it can score none."""
    settings, measured, seen = samples.settings, None, 0
    for rows in samples:
        measured, seen = muster.calibrated(Calibrate(rows)), seen + len(rows)
        if measured.schema is not None or not rows:
            break
    assert measured is not None  # noqa: S101 - there is a sample, if an empty one
    if settings.endpoint is not None:  # a request that fails has its own reply, and so have all of them
        return measured
    if measured.schema is None and seen:
        hint = "" if settings.text or settings.columns or settings.prompt else " (--text COLUMN, where it takes texts)"
        accepted = f"rows that the model can score{hint}; of the first {seen} none: {measured.error}"
        raise InvalidInput("inputs", samples.files[0].location, accepted)
    if measured.parity is not None and not measured.parity >= PARITY_BAR:
        accepted = f"fp32: parity with it is {measured.parity:.4f} on the job's first {seen} rows, and at "
        raise InvalidInput("precision", settings.precision, f"{accepted}least {PARITY_BAR} is wanted")
    return measured
