"""`--against`: a job, the same job by another model, and the difference of their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from twoshift.batch.against import AgainstReport, against_folder, compared, read_against, write_against
from twoshift.batch.coordinator import Ending
from twoshift.batch.finish import add_to_report
from twoshift.batch.folder import is_below
from twoshift.batch.index_settings import INDEX_SETTINGS
from twoshift.batch.inputs import resolve
from twoshift.batch.job import Job, JobResult, Resumed
from twoshift.batch.plan import Plan, read_plan
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.query import query_location
from twoshift.batch.settings import JobSettings
from twoshift.errors import Broken, InvalidInput, TwoshiftError
from twoshift.registry.names import parse_ref
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.registered_models import registry_at

__all__ = ["ComparedJob"]

_logger = logging.getLogger("twoshift")


class ComparedJob:
    """Runs the candidate's job, then the stable model's below its folder; each is resumed by the same command.

    As a `Job` to whoever runs it. The output is the candidate's.
    """

    def __init__(self, candidate: Job, open_stable: Callable[[JobSettings], Job], place: str) -> None:
        """`open_stable` makes the second job, once the first is done; `place` is where both run, for the registry."""
        self.settings, self._job, self._open, self._place = candidate.settings, candidate, open_stable, place
        self._stop: tuple[bool, str] | None = None

    @property
    def tell(self) -> Callable[[str], None]:
        """As of a job: what it does after the last shard."""
        return self._job.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None]) -> None:
        self._job.tell = tell

    def run(
        self,
        found: Callable[[Resumed | None], None],
        report: Callable[[JobSnapshot], None],
        loading: Callable[[], None] = lambda: None,
        *,
        fresh: bool = False,
        retry_errors: str | None = None,
    ) -> JobResult:
        """Both, and how the first ended; or how the second did, where that is not done. Raises InvalidInput, Broken."""
        self._check_place()
        result = self._job.run(found, report, loading, fresh=fresh, retry_errors=retry_errors)
        if result.ending is not Ending.DONE or result.summary is None or self._stop is not None:
            return result if self._stop is None else replace(result, ending=Ending.STOPPED, summary=None)
        self._job = self._open(self._stable_settings())
        if self._stop is not None:  # meanwhile
            return replace(result, ending=Ending.STOPPED, summary=None)
        beside = self._job.run(found, report, loading)
        if beside.ending is not Ending.DONE:
            return beside
        made = self._compared()
        return replace(result, summary=msgspec.structs.replace(result.summary, against=made))

    def stop(self, now: bool = False) -> None:
        """As of a job; for signal handlers."""
        self._stop = (now, "")
        self._job.stop(now)

    def ask_to_stop(self, now: bool = False, why: str = "") -> None:
        """The same from another thread."""
        self._stop = (now, why)
        self._job.ask_to_stop(now, why)

    def _check_place(self) -> None:
        settings = self.settings
        files = resolve(settings.inputs, blobs_for, settings.input_format)
        if any(is_below(file.location, settings.output) for file in files):
            raise InvalidInput(
                "output",
                settings.output,
                "a folder that does not contain the input files: --against writes two outputs to this folder",
            )

    def _stable_settings(self) -> JobSettings:
        settings = self.settings
        changed: dict[str, Any] = {
            "model": settings.against, "against": None, "output": against_folder(settings.output),
            "output_format": "parquet", "keep": (settings.text,) if settings.pair and settings.text else (),
            "window": None, "into": None, "into_table": "results", "into_key": None, "partition_by": None,
            "index": None, **INDEX_SETTINGS,
        }  # fmt: skip
        if settings.query is not None:  # its result is what both read
            changed |= {"query": None, "inputs": (query_location(settings.output),), "input_format": "parquet"}
        return msgspec.structs.replace(settings, **changed)

    def _compared(self) -> AgainstReport:
        output = self.settings.output
        candidate, stable = _plan(output), _plan(against_folder(output))
        checksums = (candidate.model.checksum, stable.model.checksum)
        made = read_against(blobs_for(output), output)
        if made is None or (made.candidate_checksum, made.stable_checksum) != checksums:
            made = compared(candidate, stable, blobs_for)
            write_against(blobs_for(output), output, made)
        add_to_report(blobs_for(output), candidate, against=made)
        self._keep(made)
        return made

    def _keep(self, made: AgainstReport) -> None:
        """With the version, where the candidate is one."""
        ref = parse_ref(made.candidate)
        if ref is None or ref.version is None:
            return
        try:
            registry = registry_at(self.settings.registry)
            registry.evaluations.keep(ref, "against", self._place, made.stable, made.figures())
        except TwoshiftError as error:  # it may be read-only; the report has it
            _logger.warning("The comparison is in the report, but could not be stored in the registry: %s", error)


def _plan(folder: str) -> Plan:
    plan = read_plan(blobs_for(folder), folder)
    if plan is None:
        raise Broken(f"{folder} contains no _twoshift/plan.json; start again with another output folder")
    # The folder may have been moved since the job was begun
    return msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, output=folder))
