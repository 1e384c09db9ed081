"""What a schedule is asked to do, read once."""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from twoshift.decodable import decodable
from twoshift.errors import InvalidInput
from twoshift.policy.cron import Cron
from twoshift.policy.due import next_due_s
from twoshift.policy.triggers import Missed, Overlap
from twoshift.trigger_ports import ScheduledRun
from twoshift.triggers.placeholders import filled, unknown
from twoshift.triggers.zones import offset_of
from twoshift.types import RunState
from twoshift.units import parse_duration

__all__ = ["ScheduleSpec", "run_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLACEHOLDER = re.compile(r"\{[a-z]")
_LEAST_EVERY_S = 1.0
_COMPARED, _AHEAD_S = 1500, 2 * 366 * 86_400  # runs ahead whose outputs must differ, at least two
_HOUR_S, _DAY_S = 3600, 86_400


@decodable
class ScheduleSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule. `cron` or `after` sets when jobs start; `job` has the keys of a job file, and placeholders."""

    name: str
    job: dict[str, Any]
    cron: str | None = None
    after: str | None = None  # a marker: when it appears, and whenever it is replaced
    every: str = "30s"  # how often is looked for the marker
    tz: str = "UTC"
    missed: Literal["skip", "once"] = "skip"
    overlap: Literal["skip", "queue", "cancel"] = "skip"

    def check(self) -> None:
        """Raises InvalidInput."""
        if not _NAME.fullmatch(self.name):
            raise InvalidInput("name", self.name, "at most 64 characters: letters, digits, '-', '_' and '.'")
        offset_of(self.tz)
        if (self.cron is None) == (self.after is None):
            accepted = "either a cron expression, or `after` (the path of a marker file), not both"
            raise InvalidInput("cron", self.cron, accepted)
        if self.cron is not None:
            Cron.parse(self.cron)
        if self.after is not None and (not self.after.strip() or "\0" in self.after):
            accepted = "the path of a marker file, or an object in a bucket, such as s3://bucket/key"
            raise InvalidInput("after", self.after, accepted)
        if self.after is not None and _PLACEHOLDER.search(self.after):
            raise InvalidInput(
                "after", self.after, "a path without placeholders: the same marker file starts every run"
            )
        if self.every_s < _LEAST_EVERY_S:
            raise InvalidInput("every", self.every, "a duration of at least 1s")
        if not isinstance(self.job.get("output"), str):
            raise InvalidInput(
                "output", self.job.get("output"), "a folder with a placeholder in it, such as out/{date}"
            )
        unknown(self.job)
        self._check_outputs()

    @property
    def every_s(self) -> float:
        """How often is looked for the marker."""
        return parse_duration(self.every, "every")

    @property
    def when_missed(self) -> Missed:
        """What becomes of missed runs."""
        return Missed(self.missed)

    @property
    def when_going(self) -> Overlap:
        """What becomes of a run where the last one still goes."""
        return Overlap(self.overlap)

    def settings(self, run: ScheduledRun) -> dict[str, Any]:
        """Of one run's job."""
        return filled(self.job, run, self.tz)

    def _check_outputs(self) -> None:
        """No two runs may write to one folder."""
        seen: dict[str, float] = {}
        for run in itertools.islice(self._ahead(), _COMPARED):
            output = self.settings(run)["output"].rstrip("/")
            if output in seen:
                base = self.job["output"].rstrip("/")
                accepted = (
                    f"a separate folder for each run: two runs would write to {output}; add {{date}}, "
                    f"{{time}} or {{run}}"
                )
                raise InvalidInput("output", self.job["output"], f"{accepted}, such as {base}/{{run}}")
            seen[output] = run.due_unix_s

    def _ahead(self) -> Iterator[ScheduledRun]:
        """Runs as they may come; a marker may be replaced at any time of a day, and at the same one of the next."""
        at_s = time.time() // 1
        if self.cron is None:
            for later_s in (0, _HOUR_S, _DAY_S):
                yield run_of(f"ahead-{later_s}", "", at_s + later_s)
            return
        cron, offset = Cron.parse(self.cron), offset_of(self.tz)
        until_s = max(at_s + _AHEAD_S, next_due_s(cron, next_due_s(cron, at_s, offset), offset))
        while (at_s := next_due_s(cron, at_s, offset)) <= until_s:
            yield run_of(f"ahead-{at_s}", "", at_s)


def run_of(schedule_id: str, key: str, due_unix_s: float, state: RunState = RunState.WAITING) -> ScheduledRun:
    """The run for that key: the same schedule and key give the same id, and so one job."""
    digest = hashlib.sha256(f"{schedule_id} {key}".encode()).hexdigest()
    return ScheduledRun(f"job-{digest[:12]}", schedule_id, key, due_unix_s, state)
