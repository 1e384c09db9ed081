"""A stream's progress on stderr: a line now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from twoshift.cli.output import note
from twoshift.report import format_number
from twoshift.units import counted, format_duration

if TYPE_CHECKING:
    from twoshift.streams.progress import StreamSnapshot

__all__ = ["StreamProgress", "stream_figures", "stream_lines"]

_FIRST_S, _EVERY_S = 2.0, 10.0


class StreamProgress:
    """Draws snapshots as they come."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s, self._due_s = fresh_s, time.monotonic() + _FIRST_S
        self._problem, self._shown = "", -1

    def draw(self, now: StreamSnapshot) -> None:
        """A line where one is due, or where something has begun to fail or ended to."""
        if now.problem != self._problem:
            if bool(now.problem) != bool(self._problem):
                gone = "The problem is gone, and the stream continues."
                note(f"The stream is waiting: {now.problem}" if now.problem else gone)
            self._problem = now.problem
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _EVERY_S
        if now.windows != self._shown or now.catch_up is not None:
            self._shown = now.windows
            note("; ".join(stream_figures(now, self._fresh_s)))


def stream_figures(now: StreamSnapshot, fresh_s: float) -> Iterator[str]:
    """How it stands, in words."""
    yield f"{counted(now.rows, 'row')} in {counted(now.windows, 'window')}, {format_number(now.rows_per_s)} rows/s"
    if now.fresh_p99_s is not None and now.fresh_p50_s is not None:
        p50, p99 = format_duration(now.fresh_p50_s), format_duration(now.fresh_p99_s)
        yield f"freshness {p50} (p50), {p99} (p99), objective {format_duration(fresh_s)}"
    if now.lag_rows:
        yield f"{counted(math.ceil(now.lag_rows), 'row')} waiting, the oldest for {format_duration(now.lag_s)}"
    if now.catch_up is not None:
        yield _catch_up(now.catch_up.seconds, now.catch_up.rows_per_s)
    if now.dead_letters:
        yield counted(now.dead_letters, "dead letter")
    if now.notice:
        yield now.notice
    if now.usd is not None:
        yield f"${now.usd:,.4f}"


def _catch_up(seconds: float, rate: float) -> str:
    if math.isinf(seconds):
        return f"not catching up: rows arrive faster than they are scored ({format_number(rate)} rows/s)"
    return f"up to date in about {format_duration(seconds)} at {format_number(rate)} rows/s"


def stream_lines(last: StreamSnapshot, output: str, fresh_s: float) -> Iterator[str]:
    """How a run ended."""
    yield f"Stopped: {counted(last.rows, 'row')} in {counted(last.windows, 'window')} were committed to {output}."
    if last.in_time_share is not None:
        yield from (f"{words[0].upper()}{words[1:]}." for words in list(stream_figures(last, fresh_s))[1:2])
        yield f"{100 * last.in_time_share:.1f} % of the rows were committed within {format_duration(fresh_s)}."
    if last.errors or last.dead_letters:
        yield f"{output.rstrip('/')}/_dead/ contains {counted(last.dead_letters, 'dead letter')}, each with its reason."
    if last.notice:
        yield f"{last.notice}."
    if last.usd is not None:
        yield f"Cost of this run: ${last.usd:,.4f}."
