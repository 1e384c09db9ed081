"""The gate of every lossy precision: measured once against full precision, and refused below the bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.ports import PARITY_BAR, Columns, Runtime
from twoshift.runtime.encoder.figures import FigureCache
from twoshift.runtime.encoder.parity import parity, parity_meaning
from twoshift.runtime.encoder.sample import parity_rows
from twoshift.runtime.encoder.task import Task

__all__ = ["checked_parity", "measured_parity"]

_SAMPLE_FORMAT = 1  # changes with the sample and the measures, so that an older figure is not used


def checked_parity(lossy: Runtime, task: Task, variant: str, exact: Callable[[], Runtime], root: Path) -> float:
    """The figure of a model in a lossy precision; raises InvalidInput where it is below the bar.

    `variant` tells versions of the precision and of its library apart; `exact` loads the model in full precision and is
    called only where these weights were not measured yet on this runtime and device.
    """
    info = lossy.info
    cache = FigureCache(root, info.checksum, (info.runtime, info.device, info.precision, variant, str(_SAMPLE_FORMAT)))
    found = cache.get()
    if found is None:
        found = measured_parity(lossy, task, exact, parity_rows(task))
        cache.put(found)
    if not found >= PARITY_BAR:
        raise InvalidInput(
            "precision",
            info.precision,
            f"fp32 for {info.model}: {info.precision} with {info.runtime} has a parity ({parity_meaning(task)}) of "
            f"{found:.4f} on the built-in sample, and at least {PARITY_BAR} is required",
        )
    return found


def measured_parity(lossy: Runtime, task: Task, exact: Callable[[], Runtime], rows: Sequence[Any]) -> float:
    """How near the worst answer on these rows is to full precision's."""
    full = exact()
    try:
        return parity(task, _answers(full, rows), _answers(lossy, rows))
    finally:
        full.close()


def _answers(runtime: Runtime, rows: Sequence[Any]) -> Columns:
    return runtime.launch([runtime.prepare(rows)]).wait()
