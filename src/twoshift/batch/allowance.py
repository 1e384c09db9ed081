"""What somebody's jobs may do on a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twoshift.errors import OverLimit
from twoshift.ports import Blobs
from twoshift.units import counted

__all__ = ["Allowance"]

_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one owner."""

    blobs_for: Callable[[str], Blobs]  # raises InvalidInput for a place that is not its own; goes to replicas
    check_output: Callable[[str], None] = lambda _location: None  # raises where nothing is to be written
    check_place: Callable[[str, str], None] = lambda _place, _field: None  # raises for a broker that is not its own
    withheld: Callable[[], str] = lambda: ""  # why no device is to be had now; empty where one is
    concurrent_jobs: int | None = None  # that run at a time; more wait for their turn
    open_jobs: int | None = None  # that are not over; more are refused
    check_storage: Callable[[int, int], None] = lambda _used_bytes, _more_bytes: None  # raises TooLarge

    def check_open(self, count: int) -> None:
        """Raises OverLimit where so many jobs that are not over leave no room for another."""
        if self.open_jobs is not None and count >= self.open_jobs:
            raise OverLimit(
                f"this tenant has reached its limit of {count:,} queued and running jobs: wait until a job ends, or "
                "cancel a job",
                _RETRY_S,
            )

    def why_waits(self, running: int) -> str:
        """Why no other job begins beside so many; empty where one may."""
        if self.concurrent_jobs is None or running < self.concurrent_jobs:
            return ""
        return f"the tenant has reached its limit of {counted(running, 'running job')}"
