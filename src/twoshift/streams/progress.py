"""How a stream stands: what it has committed, how fresh that was, and how far it is behind."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace

from twoshift.policy.duration_histogram import DurationHistogram
from twoshift.policy.freshness import CatchUp
from twoshift.streams.source import Age, Waiting

__all__ = ["StreamCounts", "StreamSnapshot"]

_RECENT_S = 600.0  # what quantiles and rates are of, about


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """One moment of a run."""

    elapsed_s: float
    windows: int  # committed in this run, as are the rows
    rows: int
    errors: int  # rows without a result
    dead_letters: int
    rows_per_s: float  # over the last minutes
    fresh_p50_s: float | None  # None: nothing was committed
    fresh_p99_s: float | None
    in_time_share: float | None  # of the rows, of this run
    lag_rows: float | None  # that wait; None: the source cannot tell
    lag_s: float  # how long the oldest row that is not committed has waited
    window_s: float  # how long the last window was
    window_rows: int
    catch_up: CatchUp | None  # None: it is up to date
    usd: float | None
    problem: str = ""  # what it waits for
    problems: tuple[tuple[str, int], ...] = ()  # how often, by what did not answer
    parts: int = 0
    merged: int = 0  # parts that were merged into others
    notice: str = ""  # what people should know of the source


class StreamCounts:
    """Counts of a run; any thread may call it."""

    def __init__(self, objective_s: float, price_usd_per_hour: float | None) -> None:
        self._objective_s, self._price = objective_s, price_usd_per_hour
        self._began_s = time.monotonic()
        self._lock = threading.Lock()  # guards all below
        self._fresh = DurationHistogram()
        self._faded_s = self._began_s
        self._rate = 0.0
        self._in_time = self._aged = 0
        self._problem, self._problems = "", Counter[str]()
        self._now = StreamSnapshot(
            0.0, 0, 0, 0, 0, 0.0, None, None, None, None, 0.0, 0.0, 0, None, None if price_usd_per_hour is None else 0.0
        )

    def committed(self, rows: int, errors: int, dead_letters: int, ages: list[Age], window_s: float) -> None:
        """A window."""
        now_s = time.monotonic()
        with self._lock:
            kept = self._fade(now_s)
            self._rate = kept * self._rate + rows / min(_RECENT_S, max(1e-3, now_s - self._began_s))
            for age in ages:
                self._fresh.add(age.seconds, age.rows)
                self._aged += age.rows
                self._in_time += age.rows if age.seconds <= self._objective_s else 0
            now = self._now
            self._now = replace(
                now,
                windows=now.windows + 1,
                rows=now.rows + rows,
                errors=now.errors + errors,
                dead_letters=now.dead_letters + dead_letters,
                window_s=window_s,
                window_rows=rows,
            )

    def stands(self, waiting: Waiting, lag_s: float, catch_up: CatchUp | None) -> None:
        """How far it is behind."""
        with self._lock:
            self._now = replace(self._now, lag_rows=waiting.rows, lag_s=lag_s, catch_up=catch_up, notice=waiting.notice)

    def has_parts(self, parts: int, merged: int = 0) -> None:
        """How many there are, and how many have just been merged."""
        with self._lock:
            self._now = replace(self._now, parts=parts, merged=self._now.merged + merged)

    def problem(self, kind: str, what: str) -> None:
        """Something does not answer; it is tried again."""
        with self._lock:
            self._problems[kind] += 1
            self._problem = what

    def happened(self, kind: str) -> None:
        """Something to be counted that nobody has to wait for."""
        with self._lock:
            self._problems[kind] += 1

    def solved(self) -> None:
        """It answers again."""
        with self._lock:
            self._problem = ""

    @property
    def snapshot(self) -> StreamSnapshot:
        """As it is now."""
        elapsed_s = time.monotonic() - self._began_s
        with self._lock:
            has_any = self._aged > 0
            return replace(
                self._now,
                elapsed_s=elapsed_s,
                rows_per_s=self._now.rows / max(1e-3, min(elapsed_s, _RECENT_S))
                if elapsed_s < _RECENT_S
                else self._rate,
                fresh_p50_s=self._fresh.quantile(0.5) if has_any else None,
                fresh_p99_s=self._fresh.quantile(0.99) if has_any else None,
                in_time_share=self._in_time / self._aged if has_any else None,
                usd=None if self._price is None else self._price * elapsed_s / 3600,
                problem=self._problem,
                problems=tuple(sorted(self._problems.items())),
            )

    def _fade(self, now_s: float) -> float:
        kept = math.exp(-(now_s - self._faded_s) / _RECENT_S)
        self._fresh.scale(kept)
        self._faded_s = now_s
        return kept
