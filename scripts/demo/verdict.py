"""What was promised, and whether it was kept."""

from __future__ import annotations

import os
from dataclasses import dataclass

from figures import Figures
from live import Reply, percentile_ms

from twoshift.units import counted

__all__ = ["Promise", "busy_machine", "load_now", "promises_of"]

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
            f"{rows.lost:,} lost, {rows.twice:,} twice",
            not (rows.lost or rows.twice),
        ),
        Promise(
            "both shifts answer alike",
            f"cosine {figures.parity.least:.6f} or more, of {counted(figures.parity.sample, 'text')}",
            figures.parity.least >= _PARITY,
        ),
        Promise(
            "a killed replica is replaced",
            "not in time" if back_s is None else f"after {back_s:.1f} s",
            back_s is not None,
            is_timed=True,
        ),
    ]


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
