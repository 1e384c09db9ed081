"""The port of a kind of job: what its input is, and how a shard of it becomes rows. All else is the same for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from twoshift.batch.inputs import InputFile
from twoshift.batch.messages import Calibrated
from twoshift.batch.plan import Plan
from twoshift.batch.settings import JobSettings
from twoshift.batch.windows import ShardRows
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.waiting import BlockOwner
from twoshift.ports import Blobs, RuntimeInfo

__all__ = ["SAMPLE_ROWS", "FirstLook", "JobKind", "SampleOf", "SampledRows"]

SAMPLE_ROWS = 64


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What a plan freezes of the input's columns."""

    kept: pa.Schema
    types: dict[str, str]  # what columns of text become for the model


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows as the model takes them, and where each is: a file and a number, counted from 1."""

    rows: list[Any]
    places: list[tuple[str, int]]
    row_bytes: float = 0.0  # of a row of the input; 0: not known
    model_rows: float = 1.0  # of each: a request may have many


@dataclass(frozen=True, slots=True)
class SampleOf:
    """What samples are taken for."""

    settings: JobSettings
    model: RuntimeInfo
    types: Mapping[str, str]


class JobKind(Protocol):
    """Decided by a job's settings, never by its id."""

    parts_are_counted: bool  # a resumed run counts errors in the parts: clients see them
    is_rechecked: bool  # rows are scored again as live requests at the end

    def first_look(
        self, files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], settings: JobSettings
    ) -> FirstLook:
        """Look into the input before a model is loaded; raises InvalidInput."""
        ...

    def samples(self, file: InputFile, blobs: Blobs, asked: SampleOf) -> Iterator[SampledRows]:
        """The first rows of a file, and on from there."""
        ...

    def check_measured(self, settings: JobSettings, measured: Calibrated, seen: int, first_error: str) -> None:
        """Raises InvalidInput where the model can score none of the first rows, or not well enough."""
        ...

    def schema(self, kept: pa.Schema, results: Mapping[str, pa.DataType]) -> pa.Schema:
        """The columns of a part."""
        ...

    def rows(
        self, engine: BlockTaker, plan: Plan, blobs_for: Callable[[str], Blobs], owner: BlockOwner | None
    ) -> ShardRows[Any, Any]:
        """How shards of a plan are read, run and written."""
        ...

    def rows_done(self, settings: JobSettings, by_model: int, written: int) -> int:
        """Rows of the input that are done, by what the model has done and what is written."""
        ...
