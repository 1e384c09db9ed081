"""Duration of a replica's start, and whether the replica may be stopped when idle."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["ColdStart", "plan_cold_start"]


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Time until the first answer of a new replica."""

    load_s: float
    startup_s: float
    cold_start_s: float
    objective_s: float | None
    scale_to_zero: bool | None  # None: no objective was given
    warm_floor: int | None  # replicas that must stay up


def plan_cold_start(
    model_bytes: float, bandwidth_bytes_per_s: float, startup_s: float = 0.0, objective_s: float | None = None
) -> ColdStart:
    """Bytes divided by bandwidth, plus start-up; no scale-to-zero if that exceeds the objective."""
    for name, value in (
        ("bytes", model_bytes),
        ("bandwidth", bandwidth_bytes_per_s),
        ("objective", objective_s),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidInput(name, value, "a finite number above 0")
    if not (math.isfinite(startup_s) and startup_s >= 0):
        raise InvalidInput("startup", startup_s, "a finite number of seconds, 0 or more")
    load_s = model_bytes / bandwidth_bytes_per_s
    total_s = load_s + startup_s
    allowed = None if objective_s is None else total_s <= objective_s * (1 + 1e-9)
    floor = None if allowed is None else int(not allowed)
    return ColdStart(load_s, startup_s, total_s, objective_s, allowed, floor)
