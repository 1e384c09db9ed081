"""What was promised, and whether it was kept."""

from __future__ import annotations

import os
from dataclasses import dataclass

from figures import Figures
from live import Reply, percentile_ms

from twoshift.units import counted

__all__ = ["Promise", "busy_machine", "exit_code", "exit_line", "load_now", "promises_of"]

_PARITY, _BUSY = 0.999, 0.5  # of the cores: what others have of them


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the verdict."""

    what: str
    found: str
    kept: bool
    is_timed: bool = False  # a busy machine can break it

    @property
    def verdict(self) -> str:
        return "kept" if self.kept else "NOT KEPT"


def busy_machine(load: float, cores: int) -> str:
    """What to know of a machine that had other work before the demo began; empty where it had none."""
    if load <= _BUSY * cores:
        return ""
    return (
        f"This machine is busy: a load of {load:.1f} on {counted(cores, 'core')} before the demo began. "
        "What is late may be late for that."
    )


def load_now() -> float:
    """Processes that want a core, over the last minute; 0 where the system does not say."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def promises_of(figures: Figures) -> list[Promise]:
    """All of them, with what was measured."""
    rows, back_s = figures.rows, figures.recovered_s
    return [
        _p99("live p99 without the job", figures, figures.without_job()),
        _p99("live p99 with the job", figures, figures.with_job()),
        _answered(figures),
        Promise(
            f"all of {rows.asked:,} rows once",
            figures.job_problem or f"{rows.lost:,} lost, {rows.twice:,} twice",
            not (rows.lost or rows.twice or figures.job_problem),
        ),
        Promise(
            "both shifts answer alike",
            f"cosine {figures.parity.least:.6f} or more, of {counted(figures.parity.sample, 'text')}"
            if figures.parity.sample
            else "no row to compare",
            figures.parity.least >= _PARITY,
        ),
        Promise("a killed replica is replaced", _replaced(figures, back_s), back_s is not None, is_timed=True),
    ]


def exit_code(promises: list[Promise], busy: str) -> int:
    """1 where a promise was broken for which no busy machine can be blamed."""
    return int(any(not (each.kept or (each.is_timed and busy)) for each in promises))


def exit_line(promises: list[Promise], busy: str) -> str:
    """What the exit code is, and why."""
    if all(each.kept for each in promises):
        return "Exit code 0: every promise was kept."
    if exit_code(promises, busy):
        return "Exit code 1: a promise was not kept."
    return "Exit code 0: what was not kept is a matter of time, and the machine was busy before the demo began."


def _replaced(figures: Figures, back_s: float | None) -> str:
    if not figures.moments.killed_s:
        return "none was killed: the job had ended"
    return "not in time" if back_s is None else f"after {back_s:.1f} s"


def _p99(what: str, figures: Figures, replies: list[Reply]) -> Promise:
    p99_ms = percentile_ms(replies, 0.99)
    found = "no answer" if p99_ms != p99_ms else f"{p99_ms:.1f} of {figures.slo_ms:g} ms"
    return Promise(what, found, p99_ms <= figures.slo_ms, is_timed=True)


def _answered(figures: Figures) -> Promise:
    replies = figures.without_job() + figures.with_job()
    refused = sum(each.status not in (0, 200) for each in replies)
    lost = sum(each.status == 0 for each in replies)
    found = f"{refused:,} refused, {lost:,} lost, of {len(replies):,}"
    return Promise("every live request answered", found, not (refused or lost), is_timed=not lost)
