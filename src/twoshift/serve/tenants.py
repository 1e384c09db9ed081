"""Whose keys, jobs and files they are, and how much of the server is theirs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import msgspec

from twoshift.blobs.roots import check_root
from twoshift.declare import check, key
from twoshift.errors import OverLimit, TooLarge
from twoshift.serve.bucket import Bucket
from twoshift.serve.counts import TenantCounts
from twoshift.serve.limit_record import NOT_SPENT, LimitRecord
from twoshift.values import count, names, whole

__all__ = ["DAY_S", "Tenant", "TenantSettings", "day_of"]

DAY_S = 86_400  # as every day of UTC has on the clock of a computer


class TenantSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One tenant, as a configuration has it; what is not said is not limited."""

    requests_per_second: Annotated[
        float | None,
        key("Maximum number of requests per second, over all keys of the tenant.", count(), shown="no limit"),
    ] = None
    concurrent_jobs: Annotated[
        int | None, key("Maximum number of running jobs; further jobs wait in the queue.", whole(), shown="no limit")
    ] = None
    open_jobs: Annotated[int, key("Maximum number of queued and running jobs; further jobs are refused.", whole())] = (
        10_000
    )
    stored_bytes: Annotated[
        int | None,
        key("Maximum total size of the tenant's stored files, in bytes.", whole(most=10**18), shown="no limit"),
    ] = None
    device_seconds_per_day: Annotated[
        float | None,
        key("Maximum device seconds per day, for live requests and jobs together.", count(), shown="no limit"),
    ] = None
    job_roots: Annotated[
        tuple[str, ...] | None,
        key(
            "Folders, s3://, gs:// or az:// prefixes, brokers and databases that jobs and streams of the tenant "
            "may use.",
            names(),
            shown="the server's `job_roots`",
        ),
    ] = None

    def __post_init__(self) -> None:
        check(self)
        for root in self.job_roots or ():
            check_root(root, "job_roots")

    @property
    def is_limited(self) -> bool:
        """Whether there is something to count for it with each request."""
        return self.requests_per_second is not None or self.device_seconds_per_day is not None


class Tenant:
    """A tenant in use. The server's loop counts, the ledger's thread says what was spent."""

    def __init__(
        self,
        name: str,
        settings: TenantSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        record: LimitRecord | None = None,  # that other processes count in, too
    ) -> None:
        self.name, self.settings, self._wall = name, settings or TenantSettings(), wall
        self.record = record or LimitRecord()
        rate = self.settings.requests_per_second
        self.bucket = None if rate is None else Bucket(rate, clock, self.record.bucket)
        self.requests = 0  # of this process, as the next
        self.refusals: dict[str, int] = {}  # by reason
        self.elsewhere = TenantCounts()  # by other processes of this server; replaced whole by whoever hears from them
        self.spent_s = 0.0  # of the devices on the day that the ledger last spoke of, by all servers
        self._has_days = self.settings.device_seconds_per_day is not None

    def replied(self, refusal: str | None) -> None:
        """A request of it has its reply."""
        self.requests += 1
        if refusal is not None:
            self.refusals[refusal] = self.refusals.get(refusal, 0) + 1

    def counts(self) -> TenantCounts:
        """By this process so far."""
        return TenantCounts(self.requests, dict(self.refusals))

    def total(self) -> TenantCounts:
        """By all processes of the server."""
        return self.counts().plus(self.elsewhere)

    def check_rate(self) -> None:
        """Raises OverLimit where a request is one too many; takes nothing."""
        if self.bucket is not None and (wait_s := self.bucket.wait_s()):
            limit = f"{self.settings.requests_per_second:g} requests per second"
            raise OverLimit(f"the tenant {self.name} is over its limit of {limit}", wait_s)

    def check_device(self) -> None:
        """Raises OverLimit where its device seconds of today are spent."""
        if self._has_days and (why := self.why_spent()):
            raise OverLimit(why, DAY_S - self._wall() % DAY_S)

    def check_storage(self, used_bytes: int, more_bytes: int) -> None:
        """Raises TooLarge where so many bytes more than it uses would be over its limit."""
        most = self.settings.stored_bytes
        if most is not None and used_bytes + more_bytes > most:
            used = f"the tenant already stores or uploads {used_bytes:,} of {most:,} bytes"
            left = f"at most {max(0, most - used_bytes):,} bytes: {used}; delete some files"
            raise TooLarge("file", f"a file of {more_bytes:,} bytes", left)

    def spent(self, day: int, device_s: float) -> None:
        """What it has had of the devices on a day."""
        self.spent_s = device_s
        most = self.settings.device_seconds_per_day
        if most is not None:
            self.record.spent_on[0] = day if device_s >= most else NOT_SPENT  # one store: any thread, any process

    def why_spent(self) -> str:
        """Why it may have no device until the next day; empty where it may."""
        spent_on = self.record.spent_on[0]
        if spent_on == NOT_SPENT or spent_on != day_of(self._wall()):
            return ""
        most = self.settings.device_seconds_per_day
        return (
            f"the tenant {self.name} has used its {most:,.6g} device seconds for today; the quota resets at 00:00 UTC"
        )


def day_of(unix_s: float) -> int:
    """The number of a day of UTC."""
    return int(unix_s // DAY_S)
