"""`twoshift.run`: a model over a dataset from Python, with a handle to follow it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twoshift.batch.job import JobResult
from twoshift.batch.part_records import list_output
from twoshift.batch.progress import NOTHING_YET, JobSnapshot
from twoshift.batch.settings import make_settings
from twoshift.errors import Broken, Late
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import job_for

__all__ = ["RunningJob", "run"]


def run(
    inputs: str | Sequence[str],
    *,
    model: str,
    output: str,
    fresh: bool = False,
    retry_errors: str | None = None,
    on_progress: Callable[[JobSnapshot], None] | None = None,
    **settings: Any,
) -> RunningJob:
    """Map a model over files in the background; the same call again resumes. `settings` are the keys of a job file.

    Raises InvalidInput for settings that cannot be used; what goes wrong later is raised by `wait`.
    """
    if isinstance(schema := settings.get("json_schema"), Mapping):
        settings["json_schema"] = json.dumps(schema)
    listed = [inputs] if isinstance(inputs, str) else list(inputs)
    return RunningJob(
        {"inputs": listed, "model": model, "output": output, **settings}, fresh, retry_errors, on_progress
    )


class RunningJob:
    """A job that a thread of this process runs, with workers of its own. The program waits for it before it ends."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        fresh: bool,
        retry_errors: str | None,
        on_progress: Callable[[JobSnapshot], None] | None,
    ) -> None:
        """Start it."""
        self.settings = make_settings(dict(settings))
        self._job, self._on_progress = job_for(self.settings), on_progress
        self._fresh, self._retry_errors = fresh, retry_errors
        self._progress, self._result, self._error = NOTHING_YET, None, None
        self._thread = threading.Thread(target=self._run, name="twoshift-job")
        self._thread.start()

    @property
    def progress(self) -> JobSnapshot:
        """How far it is: `share`, `rows`, `errors`, `rows_per_s`, `left_s` and others."""
        return self._progress

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however it did."""
        return not self._thread.is_alive()

    @property
    def output(self) -> str:
        """The folder with the results."""
        return self.settings.output

    @property
    def paths(self) -> list[str]:
        """The files that are committed so far, one a shard."""
        folder = self.output.rstrip("/")
        return [f"{folder}/{name}" for name in sorted(list_output(blobs_for(self.output), self.output).sizes)]

    @property
    def report(self) -> str:
        """The HTML report, which is there once a shard is committed."""
        return f"{self.output.rstrip('/')}/_twoshift/report.html"

    def wait(self, timeout_s: float | None = None) -> JobResult:
        """How it ended: done, or stopped by `stop`; raises Late after `timeout_s`, Broken where it failed.

        An interrupt stops the job; what is committed is kept.
        """
        try:
            self._thread.join(timeout_s)
        except KeyboardInterrupt:
            self.stop()
            self._thread.join()
            raise
        if not self.is_over:
            raise Late(f"the job in {self.output} is not done after {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        assert self._result is not None  # noqa: S101 - the thread leaves one of both
        if self._result.ending in ("too many errors", "dead shards", "low recall"):
            raise Broken(_why(self._result, self.output))
        return self._result

    def stop(self, now: bool = False) -> None:
        """Let the shards in work finish, or give them up `now`; the same `run` resumes."""
        self._job.ask_to_stop(now)

    def _run(self) -> None:
        try:
            self._result = self._job.run(
                lambda _found: None, self._report, fresh=self._fresh, retry_errors=self._retry_errors
            )
            self._progress = self._result.last
        except Exception as error:
            self._error = error

    def _report(self, now: JobSnapshot) -> None:
        self._progress = now
        if self._on_progress is not None:
            self._on_progress(now)


def _why(result: JobResult, output: str) -> str:
    if result.dead:
        shard, what = next(iter(result.dead.items()))
        return f"{len(result.dead):,} shards in {output} failed; shard {shard}: {what}"
    if result.summary is not None:  # all is there but an index that is good enough
        return f"{output}: {result.summary.reason}"
    return f"too many rows failed in {output}: {result.last.failed_words}; the column `error` says why"
