"""The first rows of a job's input: what they take decides how it is cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from twoshift.batch.inputs import InputFile
from twoshift.batch.kinds.kind import JobKind, SampledRows, SampleOf
from twoshift.batch.messages import Calibrate, Calibrated
from twoshift.batch.table_rows import without_place
from twoshift.ports import Blobs

__all__ = ["Samples", "measured_on"]

_SAMPLE_FILES = 4
_MORE_SAMPLES = 16  # of so many rows, where none of the first can be scored


class Samples:
    """Rows as the model takes them: of a few files' beginnings first, and on from there; their size is noted."""

    def __init__(
        self, files: tuple[InputFile, ...], blobs_for: Callable[[str], Blobs], kind: JobKind, asked: SampleOf
    ) -> None:
        self.files, self.kind, self.asked, self._blobs_for = files, kind, asked, blobs_for
        self.last = SampledRows([], [], 100.0)  # whose sizes are known

    def __iter__(self) -> Iterator[SampledRows]:
        """At least one sample, if an empty one. Without a row that can be scored the result columns are not known."""
        files = self.files
        chosen = files[:: max(1, len(files) // _SAMPLE_FILES)][:_SAMPLE_FILES]
        streams = [self._of(file) for file in chosen]
        firsts = [sample for stream in streams if (sample := next(stream, None)) is not None]
        first = SampledRows(
            [row for each in firsts for row in each.rows], [place for each in firsts for place in each.places]
        )
        if first.rows or not files:
            yield first
        further = itertools.chain(*streams, *(self._of(file) for file in files if file not in chosen))
        yield from itertools.islice((sample for sample in further if sample.rows), _MORE_SAMPLES)
        if not first.rows:
            yield SampledRows([], [])  # nothing but nulls, or nothing at all

    def _of(self, file: InputFile) -> Iterator[SampledRows]:
        for sample in self.kind.samples(file, self._blobs_for(file.location), self.asked):
            self.last = sample if sample.row_bytes else self.last
            yield sample


def measured_on(samples: Samples, calibrated: Callable[[Calibrate], Calibrated]) -> Calibrated:
    """What the first rows take that the model can score at all; raises InvalidInput where it can score none."""
    measured, seen, first_error = None, 0, ""
    for sample in samples:
        measured, seen = calibrated(Calibrate(sample.rows)), seen + len(sample.rows)
        if measured.schema is not None or not sample.rows:
            break
        first_error = first_error or _row_error(sample, measured)
    assert measured is not None  # noqa: S101 - there is a sample, if an empty one
    samples.kind.check_measured(samples.asked.settings, measured, seen, first_error)
    return measured


def _row_error(sample: SampledRows, measured: Calibrated) -> str:
    """What the first row that failed says, as it would stand in the output."""
    why = without_place(measured.error or "")
    if not sample.places:
        return why
    location, number = sample.places[measured.error_place]
    return f"{location}, row {number}: {why}"
