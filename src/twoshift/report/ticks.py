"""Where an axis puts its gridlines: on 1, 2 or 5 times a power of ten, and on round clock times."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["duration_ticks", "hour_step", "linear_ticks", "log_ticks", "multiples", "nice_step"]

_HOUR_STEPS = (1 / 60, 2 / 60, 5 / 60, 10 / 60, 0.25, 0.5, 1.0, 2.0, 3.0, 6.0, 12.0, 24.0)
_SLACK = 1e-9

# lengths of time that people say, in seconds: the few of a long axis, and all of a short one
_FEW_SPANS = (*(10.0**power for power in range(-6, 2)), 60.0, 600.0, 3600.0, 36e3, 86_400.0, 864e3, 864e4)
_MINUTES = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0)
_LONGER = (3600.0, 7200.0, 18e3, 36e3, 86_400.0, 172_800.0, 432e3, 864e3, 864e4)
_ALL_SPANS = (
    *(factor * 10.0**power for power in range(-6, 2) for factor in (1, 2, 5) if factor * 10.0**power < 30),
    30.0,
    *_MINUTES,
    *_LONGER,
)


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not under `least`."""
    power = math.floor(math.log10(least))
    for factor in (1, 2, 5, 10):
        # 10.0 ** -3 is not 0.001; a division by the whole power is
        step = factor * 10.0**power if power >= 0 else factor / 10.0**-power
        if step >= least * (1 - _SLACK):
            return step
    return 10.0 ** (power + 1)


def hour_step(least: float) -> float:
    """Like `nice_step`, on minutes, hours and days that people say."""
    if least > 24:
        return 24 * max(1.0, nice_step(least / 24))
    if least < _HOUR_STEPS[0] / 2:
        return nice_step(least)
    return next(step for step in _HOUR_STEPS if step >= least * (1 - _SLACK))


def multiples(lo: float, hi: float, step: float) -> tuple[float, ...]:
    """Every multiple of `step` between `lo` and `hi`, ends included."""
    first = math.ceil(lo / step - _SLACK)
    last = math.floor(hi / step + _SLACK)
    # 3 * 0.1 is 0.30000000000000004: fifteen digits hide it
    return tuple(float(f"{index * step:.15g}") for index in range(first, last + 1))


def linear_ticks(lo: float, hi: float, most: int) -> tuple[float, ...]:
    """At most `most + 1` evenly spaced round values between `lo` and `hi`, ends included."""
    return multiples(lo, hi, nice_step((hi - lo) / most))


def log_ticks(lo: float, hi: float, most: int) -> tuple[float, ...]:
    """Powers of ten, thinned over many decades; with 2 and 5 over few; evenly spaced within one."""
    decades = math.log10(hi / lo)
    if decades < 0.7:
        return linear_ticks(lo, hi, most)
    stride = max(1, math.ceil(decades / most))
    factors = (1, 2, 5) if decades * 3 <= most + 1 else (1,)
    first, last = math.floor(math.log10(lo)), math.ceil(math.log10(hi))
    candidates = [factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors]
    return _inside(candidates, lo, hi) or linear_ticks(lo, hi, most)


def duration_ticks(lo: float, hi: float, most: int) -> tuple[float, ...]:
    """Log ticks for seconds: 10 s, 1 min, 10 min, 1 h rather than 1,000 s."""
    for spans in (_ALL_SPANS, _FEW_SPANS):
        ticks = _inside(spans, lo, hi)
        if 2 <= len(ticks) <= most + 1:
            return ticks
    return log_ticks(lo, hi, most)


def _inside(candidates: Sequence[float], lo: float, hi: float) -> tuple[float, ...]:
    return tuple(tick for tick in candidates if lo * (1 - _SLACK) <= tick <= hi * (1 + _SLACK))
