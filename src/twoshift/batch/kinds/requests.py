"""A file of requests: each line is a request to an endpoint, and becomes a line of its reply."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from twoshift.batch.inputs import InputFile, piece_lines
from twoshift.batch.kinds.kind import SAMPLE_ROWS, FirstLook, SampledRows, SampleOf
from twoshift.batch.kinds.request_rows import MOST_ROWS, RequestRows, asked_of
from twoshift.batch.messages import Calibrated
from twoshift.batch.plan import Plan
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.response_lines import LINES
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.waiting import BlockOwner
from twoshift.ports import Blobs

__all__ = ["RequestKind"]

_SAMPLE_REQUESTS = 32


class RequestKind:
    """A JobKind."""

    parts_are_counted = True
    is_rechecked = False

    def first_look(
        self, files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], settings: JobSettings
    ) -> FirstLook:
        """Nothing: requests have no columns, and every line is checked before there is a job."""
        return FirstLook(pa.schema([]), {})

    def samples(self, file: InputFile, blobs: Blobs, asked: SampleOf) -> Iterator[SampledRows]:
        """The rows of requests; one that fails has its own reply."""
        lines = piece_lines(file.head(), file, blobs)
        while some := list(itertools.islice(lines, _SAMPLE_REQUESTS)):
            read = [asked_of(line, asked.settings, asked.model, MOST_ROWS) for line in some]
            rows = [row for each in read for row in each.rows]
            row_bytes = sum(map(len, some)) / len(some)
            yield SampledRows(rows[:SAMPLE_ROWS], [], row_bytes, max(1.0, len(rows) / len(some)))

    def check_measured(self, settings: JobSettings, measured: Calibrated, seen: int, first_error: str) -> None:
        """Nothing: a request that fails has its own reply, and so have all of them."""

    def schema(self, kept: pa.Schema, results: Mapping[str, pa.DataType]) -> pa.Schema:
        """Lines, and the kinds of their errors."""
        return LINES

    def rows(
        self, engine: BlockTaker, plan: Plan, blobs_for: Callable[[str], Blobs], owner: BlockOwner | None
    ) -> RequestRows:
        """Requests of the file."""
        return RequestRows(engine, plan, blobs_for, owner)

    def rows_done(self, settings: JobSettings, by_model: int, written: int) -> int:
        """Requests that have their line: each may have many rows of the model."""
        return written
