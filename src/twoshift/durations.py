"""A time as people read it."""

from __future__ import annotations

import math

__all__ = ["format_duration"]


def format_duration(seconds: float) -> str:
    """Seconds as people read them: `26 s`, `11h 45m`, `12h`."""
    if seconds == math.inf:
        return "never"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 72:
        return f"{hours / 24:.1f} d"
    return f"{hours}h {minutes:02d}m" if minutes else f"{hours}h"
