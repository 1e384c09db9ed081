"""What tenants have had of the devices: counted in memory, written every second, never twice."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import NamedTuple

from twoshift.closable_thread import ClosableThread
from twoshift.errors import TryLater
from twoshift.serve.tenants import Tenant, day_of
from twoshift.usage_ports import DeviceUsage, UsageStore

__all__ = ["BATCH", "LIVE", "MICRO", "Counted", "Ledger", "Prices", "day_name"]

LIVE, MICRO, BATCH = "live", "micro", "batch"
_logger = logging.getLogger("twoshift.usage")
_KEEP_S = 1.0
_Day = tuple[str, str, str, str, str]  # day, tenant, lane, model and version
_CLOSE_S = 2.0  # that a database without an answer may hold up the end


class Counted(NamedTuple):
    """What a tenant has had in a lane of a version of a model since the start of the server; it never becomes less."""

    tenant: str
    lane: str
    model: str
    rows: int
    tokens: int
    device_s: float
    harvested_s: float = 0.0  # of those: of devices that are there for live requests
    output_tokens: int = 0  # that a language model generated
    output_s: float = 0.0  # of the device time: for those
    version: str = "1"  # of the model: the registry's number

    @property
    def who(self) -> tuple[str, str, str, str]:
        """Tenant, lane, model and version."""
        return self.tenant, self.lane, self.model, self.version


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for device time."""

    per_hour: Callable[[str], float | None]  # of a model; None where nobody has said
    batch_share: float = 1.0  # of that, for jobs and streams

    def usd(self, lane: str, model: str, device_s: float) -> float | None:
        """None without a price."""
        price = self.per_hour(model)
        if price is None:
            return None
        return device_s * price / 3600 * (1.0 if lane == LIVE else self.batch_share)


class Ledger:
    """One thread of its own; `sums` may be asked from any."""

    def __init__(
        self,
        store: UsageStore,
        counted: Callable[[], Iterable[Counted]],
        tenants: Mapping[str, Tenant],
        prices: Prices,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._counted, self._prices, self._wall = store, counted, prices, wall
        self._limited = [each for each in tenants.values() if each.settings.device_seconds_per_day is not None]
        self._writer = (
            uuid.uuid4().hex
        )  # a day of this start: what it says replaces what it said, and nothing of others
        self._seen: dict[tuple[str, str, str, str], Counted] = {}
        self._days: dict[_Day, DeviceUsage] = {}
        self._unwritten: set[_Day] = set()
        self._others: tuple[str, dict[str, float]] = ("", {})  # a day, and what other writers have counted of it
        self._is_lost = False  # whether the database does not answer
        self._thread = ClosableThread(self._keep, "twoshift-ledger", _CLOSE_S)

    def start(self) -> None:
        """Raises TryLater where nobody can tell what was spent before."""
        self._look_at_others(day_name(self._wall()))
        self._tell_tenants()
        self._thread.start()

    def close(self) -> None:
        """Write what was counted since."""
        self._thread.close()
        self._store.close()

    def sums(self, first: str, last: str, group_by: Sequence[str], tenant: str | None = None) -> list[DeviceUsage]:
        """As the store has it: what was counted in the last second may be missing."""
        return self._store.sums(first, last, group_by, tenant)

    def keep(self) -> None:
        """Count, write, and say what is spent; where the database does not answer, the next time."""
        self._count()
        try:
            self._write()
            self._look_at_others(day_name(self._wall()))
        except TryLater as error:
            if not self._is_lost:
                _logger.warning("usage counts are kept in memory until the database is available: %s", error)
            self._is_lost = True
        else:
            self._is_lost = False
        self._tell_tenants()

    def _keep(self, closed: Event) -> None:
        while not closed.wait(_KEEP_S):
            self._kept()
        self._kept()

    def _kept(self) -> None:
        try:
            self.keep()
        except Exception:  # what cannot be counted now is counted the next time
            _logger.exception("usage could not be recorded; the server tries again")

    def _count(self) -> None:
        day = day_name(self._wall())
        for now in self._counted():
            who = now.who
            before = self._seen.get(who) or Counted(*who[:3], 0, 0, 0.0, version=now.version)
            # A replica that is just being replaced may be missing for a moment: what was seen of it stays seen
            most = _most(before, now)
            if most == before:
                continue
            self._seen[who] = most
            key = (day, *who)
            usage = self._days.get(key) or DeviceUsage(*key[:4], version=now.version)
            self._days[key] = self._added(usage, before, most)
            self._unwritten.add(key)

    def _added(self, day: DeviceUsage, before: Counted, now: Counted) -> DeviceUsage:
        device_s = now.device_s - before.device_s
        usd = self._prices.usd(now.lane, now.model, device_s)
        output_usd = self._prices.usd(now.lane, now.model, now.output_s - before.output_s) if now.output_s else None
        return replace(
            day,
            rows=day.rows + now.rows - before.rows,
            tokens=day.tokens + now.tokens - before.tokens,
            device_s=day.device_s + device_s,
            harvested_s=day.harvested_s + now.harvested_s - before.harvested_s,
            usd=day.usd if usd is None else (day.usd or 0.0) + usd,
            unpriced_s=day.unpriced_s + (device_s if usd is None else 0.0),
            output_tokens=day.output_tokens + now.output_tokens - before.output_tokens,
            output_usd=day.output_usd if output_usd is None else (day.output_usd or 0.0) + output_usd,
        )

    def _write(self) -> None:
        self._store.put(self._writer, [self._days[key] for key in self._unwritten])
        self._unwritten.clear()
        today = day_name(self._wall())
        if any(key[0] != today for key in self._days):
            # Another day: a new writer, so that what comes adds to what is written even if the clock was set back
            self._writer, self._days = uuid.uuid4().hex, {}

    def _look_at_others(self, day: str) -> None:
        if self._limited:
            self._others = (day, self._store.spent(day, self._writer))

    def _tell_tenants(self) -> None:
        now_s = self._wall()
        today = day_name(now_s)
        others = self._others[1] if self._others[0] == today else {}
        for tenant in self._limited:
            own = sum(each.device_s for key, each in self._days.items() if key[:2] == (today, tenant.name))
            tenant.spent(day_of(now_s), own + others.get(tenant.name, 0.0))


def _most(before: Counted, now: Counted) -> Counted:
    return now._replace(
        rows=max(before.rows, now.rows),
        tokens=max(before.tokens, now.tokens),
        device_s=max(before.device_s, now.device_s),
        harvested_s=max(before.harvested_s, now.harvested_s),
        output_tokens=max(before.output_tokens, now.output_tokens),
        output_s=max(before.output_s, now.output_s),
    )


def day_name(unix_s: float) -> str:
    """A day of UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(unix_s))
