"""A job's progress on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twoshift.cli.output import note
from twoshift.policy.deadline import Verdict
from twoshift.units import format_duration

if TYPE_CHECKING:
    from twoshift.batch.job import Resumed
    from twoshift.batch.progress import Snapshot
    from twoshift.batch.settings import JobSettings

__all__ = ["JobProgress"]

_LINE_EVERY_S = 10.0


class JobProgress:
    """Draws snapshots as they come."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._bar: Any = None
        self._task: Any = None
        self._due_s = time.monotonic() + 2.0
        self._warned = False

    def __enter__(self) -> JobProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("loading the model", total=1.0)
        else:
            note(f"Loading {self._settings.model}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def found(self, resumed: Resumed | None) -> None:
        """What lay in the output folder."""
        if resumed is not None:
            note(f"Resuming: {resumed.done:,} of {resumed.shards:,} shards done.")

    def draw(self, now: Snapshot) -> None:
        """A moment of the job."""
        self._warn(now)
        if self._bar is not None:
            self._bar.update(self._task, completed=now.share, description=_line(now))
        elif time.monotonic() >= self._due_s:
            note(f"{now.share:.0%}: {_line(now)}")
            self._due_s = time.monotonic() + _LINE_EVERY_S

    def _warn(self, now: Snapshot) -> None:
        if self._settings.window is None or self._warned or now.outlook.verdict is not Verdict.WILL_MISS:
            return
        self._warned = True
        needed = now.outlook.workers_needed
        advice = f"{needed:,} workers would make it" if needed else "no number of workers would make it"
        note(f"It will not be done within {self._settings.window}: {advice}.")


def _line(now: Snapshot) -> str:
    parts = [
        f"{now.rows:,} rows",
        f"{now.rows_per_s:,.0f} rows/s",
        f"{now.tokens_per_s:,.0f} tokens/s",
        f"{now.shards_done:,}/{now.shards:,} shards",
    ]
    outlook = now.outlook
    if (done := now.share - now.share_before) > 0:
        parts.append(f"{format_duration(now.elapsed_s * (1 - now.share) / done)} left")
    if outlook.chance is not None and outlook.verdict is not Verdict.UNKNOWN and outlook.chance < 1:
        parts.append(f"{outlook.chance:.0%} chance to make the window")
    if now.usd is not None:
        parts.append(f"${now.usd:,.2f}")
    if now.errors:
        parts.append(f"{now.errors:,} errors")
    if now.padding:
        parts.append(f"{now.padding:.1%} padding")
    return ", ".join(parts)
