"""A job's progress on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twoshift.batch.setting_values import AUTO
from twoshift.batch.summary import dollars
from twoshift.cli.output import draws_progress, note
from twoshift.cli.progress import Ongoing
from twoshift.policy.deadline import Verdict
from twoshift.report import format_number
from twoshift.units import counted, format_duration

if TYPE_CHECKING:
    from twoshift.batch.job import Resumed
    from twoshift.batch.progress import JobSnapshot
    from twoshift.batch.settings import JobSettings

__all__ = ["JobProgress"]

_FIRST_LINE_S, _LINE_EVERY_S = 2.0, 10.0
_WIDE = 120  # columns, from which there is room for what few people need
_BAR, _WIDE_BAR = 10, 30  # columns
_AROUND = len(" 100 % ")  # what is between the bar and the text
_MOST_LINES = 2
_NAMED = 3  # parts
_FEWEST_TOKENS = 2  # a row, of a model that has tokens: there are some around every text


class JobProgress:
    """Draws snapshots as they come."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._bar: Any = None
        self._bar_width = _BAR
        self._task: Any = None
        self._due_s = time.monotonic() + _FIRST_LINE_S
        self._warned = False
        self._load_problem = ""
        self._loading: Ongoing | None = None

    def __enter__(self) -> JobProgress:
        if draws_progress():
            from rich.console import Console

            self._start_bar(Console(stderr=True))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._loaded()
        if self._bar is not None:
            self._bar.stop()

    def loading(self) -> None:
        """The input is there, and its model is loaded now."""
        self._loading = Ongoing() if self._bar is None else Ongoing(self._describe, 1.0)
        self._loading.__enter__()
        self._loading(f"Loading {self._settings.model}")

    def found(self, resumed: Resumed | None) -> None:
        """What lay in the output folder; the model is there."""
        self._loaded()
        if resumed is not None:
            note(f"Resuming: {resumed.done:,} of {resumed.shards:,} shards are done.")
        if resumed is not None and resumed.gone:
            more = f" and {len(resumed.gone) - _NAMED:,} more" if len(resumed.gone) > _NAMED else ""
            note(
                "These parts of the finished job are missing and are computed again: "
                f"{', '.join(resumed.gone[:_NAMED])}{more}."
            )

    def draw(self, now: JobSnapshot) -> None:
        """A moment of the job."""
        self._loaded()
        self._warn(now)
        if now.load_problem and now.load_problem != self._load_problem:
            note(f"The job continues, but its results cannot be loaded into the database now: {now.load_problem}")
        self._load_problem = now.load_problem
        if self._bar is not None:
            self._bar.update(self._task, completed=now.share, description=self._fitted(now))
        elif time.monotonic() >= self._due_s:
            self._write_line(now)

    def finishing(self, what: str) -> None:
        """After the last shard: an index is built."""
        if self._bar is not None:
            self._describe(what)
        elif time.monotonic() >= self._due_s:
            note(what)
            self._due_s = time.monotonic() + _LINE_EVERY_S

    def ended(self, last: JobSnapshot) -> None:
        """The last moment: a log ends with a line at 100 %, however long ago the one before was."""
        if self._bar is None and last.share >= 1 and last.rows:
            self._write_line(last)

    def _loaded(self) -> None:
        if self._loading is not None:
            self._loading.__exit__()
            self._loading = None

    def _describe(self, what: str) -> None:
        self._bar.update(self._task, description=what)

    def _start_bar(self, console: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar_width = _WIDE_BAR if console.width >= _WIDE else _BAR
        bar, share = BarColumn(self._bar_width), TextColumn("{task.percentage:>3.0f} %")
        self._bar = Progress(bar, share, TextColumn("{task.description}"), console=console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0)

    def _fitted(self, now: JobSnapshot) -> str:
        """As much as the terminal has room for: a line that is too long would push the bar out."""
        width = self._bar.console.width
        parts = _parts(now, self._settings.window is not None, is_wide=width >= _WIDE)
        return _wrapped(parts, width - self._bar_width - _AROUND)

    def _write_line(self, now: JobSnapshot) -> None:
        note(f"{now.share:.0%}: {', '.join(_parts(now, self._settings.window is not None, is_wide=True))}")
        self._due_s = time.monotonic() + _LINE_EVERY_S

    def _warn(self, now: JobSnapshot) -> None:
        if self._settings.window is None or self._warned or now.outlook.verdict is not Verdict.WILL_MISS:
            return
        if self._settings.workers == AUTO and now.workers < self._settings.most_workers:
            return  # more are on their way
        self._warned = True
        needed = now.outlook.workers_needed
        advice = (
            f"{counted(needed, 'worker')} would finish in time"
            if needed
            else "no number of workers would finish in time"
        )
        note(f"The job will not finish within {self._settings.window}: {advice}.")


def _parts(now: JobSnapshot, has_window: bool, is_wide: bool) -> list[str]:
    """What there is to tell, the most important first."""
    parts = [
        f"{_short(now.rows)} {'row' if now.rows == 1 else 'rows'}",
        f"{_short(now.rows_per_s)} rows/s",
        f"{now.shards_done:,}/{now.shards:,} shards",
    ]
    if now.rows_loaded is not None:
        parts.append(f"{_short(now.rows_loaded)} rows loaded")
    if now.left_s is not None:
        parts.append(f"{format_duration(now.left_s)} left")
    if has_window and now.outlook.chance is not None:
        parts.append(f"{now.outlook.chance:.0%} likely in time")
    if now.usd is not None:
        parts.append(dollars(now.usd))
    if now.errors:
        parts.append(counted(now.errors, "error"))
    if is_wide and now.tokens_per_s * now.elapsed_s > _FEWEST_TOKENS * now.rows > 0:
        parts.append(f"{_short(now.tokens_per_s)} tokens/s")
    if is_wide and now.padding:
        parts.append(f"{now.padding:.1%} padding")
    return parts


def _short(count: float) -> str:
    return f"{count:,.0f}" if count < 1e5 else format_number(count)


def _wrapped(parts: list[str], room: int) -> str:
    """Parts in lines no longer than the room, as many as may be; the rest is left out."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        if len(longer) <= room or not lines[-1]:
            lines[-1] = longer[: max(0, room)]
        else:
            lines.append(part[: max(0, room)])
    return "\n".join(lines[:_MOST_LINES])
