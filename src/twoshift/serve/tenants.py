"""Whose keys, jobs and files they are, and how much of the server is theirs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from twoshift.blobs.roots import check_root
from twoshift.errors import InvalidInput, OverLimit, TooLarge
from twoshift.serve.bucket import Bucket

__all__ = ["DAY_S", "Tenant", "TenantSettings", "day_of"]

DAY_S = 86_400  # as every day of UTC has on the clock of a computer


class TenantSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One tenant, as a configuration has it; what is not said is not limited."""

    requests_per_second: float | None = None  # over all its keys
    concurrent_jobs: int | None = None  # that run at a time; more wait in the queue
    open_jobs: int = 10_000  # that are not over; more are refused
    stored_bytes: int | None = None
    device_seconds_per_day: float | None = None  # live and batch together
    job_roots: tuple[str, ...] | None = None  # None: the server's

    def __post_init__(self) -> None:
        for name in ("requests_per_second", "device_seconds_per_day"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, value, "a number above 0")
        for name in ("concurrent_jobs", "open_jobs", "stored_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInput(name, value, "a whole number of at least 1")
        for root in self.job_roots or ():
            check_root(root, "job_roots")


class Tenant:
    """A tenant in use. The server's loop counts, the ledger's thread says what was spent."""

    def __init__(
        self,
        name: str,
        settings: TenantSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.settings, self._wall = name, settings or TenantSettings(), wall
        rate = self.settings.requests_per_second
        self.bucket = None if rate is None else Bucket(rate, clock)
        self.requests = 0
        self.refusals: dict[str, int] = {}  # by reason
        self._spent_on = -1  # the day whose device seconds are spent

    def replied(self, refusal: str | None) -> None:
        """A request of it has its reply."""
        self.requests += 1
        if refusal is not None:
            self.refusals[refusal] = self.refusals.get(refusal, 0) + 1

    def check_rate(self) -> None:
        """Raises OverLimit where a request is one too many; takes nothing."""
        if self.bucket is not None and (wait_s := self.bucket.wait_s()):
            limit = f"{self.settings.requests_per_second:g} requests a second"
            raise OverLimit(f"the tenant {self.name} is over its {limit}", wait_s)

    def check_device(self) -> None:
        """Raises OverLimit where its device seconds of today are spent."""
        if self._spent_on >= 0 and (why := self.why_spent()):
            raise OverLimit(why, DAY_S - self._wall() % DAY_S)

    def check_storage(self, used_bytes: int, more_bytes: int) -> None:
        """Raises TooLarge where so many bytes more than it uses would be over its limit."""
        most = self.settings.stored_bytes
        if most is not None and used_bytes + more_bytes > most:
            used = f"{used_bytes:,} of {most:,} bytes are stored or on their way"
            left = f"at most {max(0, most - used_bytes):,} more: {used}; delete some"
            raise TooLarge("file", f"room for {more_bytes:,} bytes", left)

    def spent(self, day: int, device_s: float) -> None:
        """What it has had of the devices on a day."""
        most = self.settings.device_seconds_per_day
        if most is not None:
            self._spent_on = day if device_s >= most else -1

    def why_spent(self) -> str:
        """Why it may have no device until the next day; empty where it may."""
        if self._spent_on != day_of(self._wall()):
            return ""
        most = self.settings.device_seconds_per_day
        return f"the tenant {self.name} has used its {most:,.6g} device seconds of today; more from 00:00 UTC on"


def day_of(unix_s: float) -> int:
    """The number of a day of UTC."""
    return int(unix_s // DAY_S)
