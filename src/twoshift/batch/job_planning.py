"""A job's plan: found in its output folder, or made from its input and frozen there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pyarrow as pa

from twoshift.batch.by_products import ByProducts
from twoshift.batch.folder import is_below
from twoshift.batch.index_job import check_before_loading
from twoshift.batch.inputs import ContentSums, InputFile, resolve
from twoshift.batch.kinds.kind import FirstLook, SampleOf
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.loading import JobLoading
from twoshift.batch.plan import (
    Plan,
    PlannedModel,
    RowFigures,
    check_same_model,
    plan_location,
    read_plan,
    same_files,
)
from twoshift.batch.query import moved_result, queried
from twoshift.batch.samples import Samples, measured_on
from twoshift.batch.settings import JobSettings
from twoshift.batch.shard_sizes import RowWork, cut_shards, part_row_bytes
from twoshift.batch.worker_startup import WorkerStartup
from twoshift.errors import Inapplicable, InvalidInput, NotFound
from twoshift.ports import Blobs, RuntimeInfo

__all__ = ["JobOrigin", "JobPlanning"]

_NOTHING = FirstLook(pa.schema([]), {})


@dataclass(frozen=True, slots=True)
class JobOrigin:
    """What can be known of a job before its model is loaded."""

    existing: Plan | None  # that is resumed, with its files as they are now
    begun_with: tuple[InputFile, ...] | None  # its files as they were
    earlier: Plan | None  # of the job whose errors are retried
    files: tuple[InputFile, ...]  # the input; of a query, its result
    sources: tuple[InputFile, ...]  # what a query reads that has just run
    looked: FirstLook | None  # at the input of a new job

    @property
    def known(self) -> Plan | None:
        """What the job goes on from; None: it is new."""
        return self.existing or self.earlier


class JobPlanning:
    """Of one job: `look` before its model is loaded, `freeze` after that."""

    def __init__(
        self,
        settings: JobSettings,
        blobs_for: Callable[[str], Blobs],
        sums: ContentSums,
        loading: JobLoading,
        startup: WorkerStartup,
    ) -> None:
        self.settings, self._blobs_for, self._sums = settings, blobs_for, sums
        self._loading, self._startup = loading, startup
        self._kind, self._output = kind_of(settings), blobs_for(settings.output)
        self.model: PlannedModel | None = None  # once it is loaded
        self.by_products = ByProducts()  # of the frozen plan

    def look(self, fresh: bool, retry_errors: str | None) -> JobOrigin:
        """Raises InvalidInput for what can be told by now."""
        existing = self._existing(fresh)
        earlier = None if retry_errors is None else self._earlier(retry_errors)
        begun = existing or earlier
        sources = self._files(() if begun is None else begun.sources or begun.files)
        begun_with, existing = existing and existing.files, self._today(existing, sources)
        if earlier is not None:
            if self.settings.query is not None:
                raise Inapplicable("retry_errors", retry_errors, "with --query")
            same_files(earlier, self.settings, sources, self._sums.of, is_retry=True)
        is_queried = self.settings.query is not None and existing is None
        files = queried(self.settings, sources, self._blobs_for) if is_queried else sources
        looked = None if existing or earlier else self._kind.first_look(files, self._blobs_for, self.settings)
        check_before_loading(self.settings, looked)
        known = existing or earlier
        self._loading.check(known.schema if known else (looked or _NOTHING).kept, is_whole=known is not None)
        if known is None:
            self._sums.begin((*files, *sources) if is_queried else files)
        return JobOrigin(existing, begun_with, earlier, files, sources if is_queried else (), looked)

    def freeze(self, origin: JobOrigin, info: RuntimeInfo) -> Plan:
        """The job's plan with the settings of this run: as it was, or as it is now frozen."""
        self.model = model = PlannedModel.of(info, self.settings.used_adapters)
        existing, earlier, files = origin.existing, origin.earlier, origin.files
        if earlier is not None:
            check_same_model(earlier, self.settings, model, is_retry=True)
            now = same_files(earlier, self.settings, files, self._sums.of, is_retry=True)
            earlier = msgspec.structs.replace(earlier, files=now, folder=str(Path.cwd()))
        if existing is not None and earlier is not None and existing.retry_of != earlier.settings.output.rstrip("/"):
            accepted = (
                f"a new folder: this folder contains another job, which is not a retry of {earlier.settings.output}"
            )
            raise InvalidInput("output", self.settings.output, accepted)
        if existing is not None:
            check_same_model(existing, self.settings, model, is_retry=existing.retry_of is not None)
            # A retry's class may be mended, and an adapter may lie elsewhere
            running = msgspec.structs.replace(existing.model, checksum=model.checksum, adapters=model.adapters)
            plan = msgspec.structs.replace(existing, settings=self.settings, model=running)
            self.by_products = ByProducts.of(plan, self._blobs_for)
            return plan
        if earlier is not None:
            folder = earlier.settings.output.rstrip("/")
            plan = msgspec.structs.replace(earlier, settings=self.settings, model=model, retry_of=folder)
        else:
            plan = self._new_plan(files, origin.looked or _NOTHING, info)
            self._loading.check(plan.schema, is_whole=True)
            plan = msgspec.structs.replace(
                plan, sources=self._sums.filled(origin.sources, self._startup.check_interrupted)
            )
        self.by_products = ByProducts.of(plan, self._blobs_for)
        if self._output.create(plan_location(self.settings.output), msgspec.json.encode(plan)):
            return plan
        if self.settings.piece is not None:  # another process was sooner: its plan is the job's
            frozen = self._today(read_plan(self._output, self.settings.output), files)
            return self.freeze(replace(origin, existing=frozen, earlier=None), info)
        accepted = "another output folder: another job has just started in this folder"
        raise InvalidInput("output", self.settings.output, accepted)

    def _existing(self, fresh: bool) -> Plan | None:
        plan = read_plan(self._output, self.settings.output)
        if plan is not None and fresh:
            accepted = (
                "a folder without a job, because --fresh never resumes a job: use another folder, or omit --fresh"
            )
            raise InvalidInput("output", self.settings.output, accepted)
        return self._begun_by_another() if plan is None else plan

    def _earlier(self, folder: str) -> Plan:
        plan = read_plan(self._blobs_for(folder), folder)
        if plan is None:
            raise InvalidInput("retry_errors", folder, "the output folder of a job")
        if os.path.abspath(folder) == os.path.abspath(self.settings.output):  # noqa: PTH100 - links do not matter here
            raise InvalidInput(
                "output", self.settings.output, "an output folder other than the one given with --retry-errors"
            )
        return msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, output=folder))

    def _begun_by_another(self) -> Plan | None:
        """None for a folder that is free; raises InvalidInput where something else lies there."""
        folder = f"{self.settings.output.rstrip('/')}/"
        try:
            names = {blob.location.removeprefix(folder) for blob in self._output.list(folder)}
        except NotFound:
            return None
        if shown := {name for name in names if not name.startswith((".", "_"))}:
            if (plan := read_plan(self._output, self.settings.output)) is not None:  # since it was looked for
                return plan
            accepted = f"an empty or new folder; this folder contains {min(shown)}, but no job"
            raise InvalidInput("output", self.settings.output, accepted)
        return None

    def _files(self, begun_with: tuple[InputFile, ...]) -> tuple[InputFile, ...]:
        """The input, its tables at the version that the job was begun with.

        What lies in this very job's output folder, which may be in an input folder, is none of it.
        """
        found = resolve(self.settings.inputs, self._blobs_for, self.settings.input_format, begun_with)
        files = tuple(file for file in found if not is_below(file.location, self.settings.output))
        if found and not files:
            accepted = "an output folder that does not contain the input: all input files are in this folder"
            raise InvalidInput("output", self.settings.output, accepted)
        return files

    def _today(self, existing: Plan | None, files: tuple[InputFile, ...]) -> Plan | None:
        """The job that is resumed, with its files as they are now; raises InvalidInput where it is another job."""
        if existing is None:
            return None
        is_retry = existing.retry_of is not None
        begun = msgspec.structs.replace(existing, files=existing.sources or existing.files)
        now = same_files(begun, self.settings, files, self._sums.of, is_retry=is_retry)
        if not existing.sources:
            return msgspec.structs.replace(existing, files=now)
        result = moved_result(self.settings, existing.files, self._output)
        return msgspec.structs.replace(existing, sources=now, files=result)

    def _new_plan(self, files: tuple[InputFile, ...], looked: FirstLook, info: RuntimeInfo) -> Plan:
        settings = self.settings
        samples = Samples(files, self._blobs_for, self._kind, SampleOf(settings, info, looked.types))
        measured = measured_on(samples, self._startup.calibrated)
        model = PlannedModel.of(info, settings.used_adapters)
        model = msgspec.structs.replace(model, parity=measured.parity, quality=measured.quality)
        row_s = measured.seconds_per_row * samples.last.model_rows
        results = {} if measured.schema is None else _fields(measured.schema)
        schema = self._kind.schema(looked.kept, results)
        work = RowWork(row_s, samples.last.row_bytes, lambda: part_row_bytes(files, self._blobs_for, settings, schema))
        shards = cut_shards(files, self._blobs_for, settings, self._startup.most_at_once, work)
        folder = str(Path.cwd())
        files = self._sums.filled(files, self._startup.check_interrupted)
        row = RowFigures(row_s, samples.last.row_bytes, measured.host_s_per_row * samples.last.model_rows)
        plan = Plan.make(settings, model, files, shards, schema, row, folder, looked.types)
        return msgspec.structs.replace(plan, recheck_s=measured.recheck_s)


def _fields(schema: bytes) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(schema))}
