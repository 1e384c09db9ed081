"""When a delivery that failed is tried again."""

from __future__ import annotations

__all__ = ["GIVE_UP_S", "LONGEST_S", "retry_in_s"]

_FIRST_S, _FACTOR = 2.0, 3.0
LONGEST_S = 3600.0
GIVE_UP_S = 24 * 3600.0  # after the event


def retry_in_s(attempts: int, age_s: float, dice: float) -> float | None:
    """Seconds after so many attempts, spread by `dice` from 0 to 1; None where it is time to give up."""
    pause_s = min(LONGEST_S, _FIRST_S * _FACTOR ** min(attempts - 1, 20)) * (0.5 + dice / 2)
    return pause_s if age_s + pause_s <= GIVE_UP_S else None
