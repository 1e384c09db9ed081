"""When a failed operation is retried: one policy for requests, databases, object stores and webhooks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DELIVERIES", "RetryPolicy"]

_MOST_DOUBLINGS = 60  # beyond it every pause is the longest


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential pauses with jitter, up to a maximum age."""

    first_s: float
    longest_s: float
    give_up_s: float  # after the first attempt began, no other one begins
    factor: float = 2.0

    def pause_s(self, attempts: int, age_s: float, dice: float = 1.0, least_s: float = 0.0) -> float | None:
        """Seconds after so many attempts, spread by `dice` from 0 to 1; None to give up.

        `least_s` is what the other side asked for.
        """
        grown_s = self.first_s * self.factor ** min(attempts - 1, _MOST_DOUBLINGS)
        pause_s = max(least_s, min(self.longest_s, grown_s) * (0.5 + dice / 2))
        return pause_s if age_s + pause_s <= self.give_up_s else None


DELIVERIES = RetryPolicy(2.0, 3600.0, 24 * 3600.0, factor=3.0)  # of webhooks: the age is that of the event
