"""What is counted once stays counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from twoshift.errors import OverLimit, TryLater
from twoshift.serve.ledger import BATCH, LIVE, Counted, Ledger, Prices, day_name
from twoshift.serve.tenant_metrics import tenant_metrics
from twoshift.serve.tenants import DAY_S, Tenant, TenantSettings
from twoshift.usage_ports import DeviceUsage

NOON = 20_000 * DAY_S + DAY_S / 2


@dataclass
class Kept:
    """A store in memory, which may fail before or after it has written."""

    rows: dict[tuple[str | None, ...], DeviceUsage] = field(default_factory=dict[tuple[str | None, ...], DeviceUsage])
    fails: str = ""
    before: dict[str, float] = field(default_factory=dict[str, float])
    puts: int = 0

    def put(self, writer: str, counted: Sequence[DeviceUsage]) -> None:
        if self.fails == "before":
            raise TryLater("silent", 1.0)
        self.puts += bool(counted)
        for each in counted:
            self.rows[writer, each.day, each.tenant, each.lane, each.model] = each
        if self.fails == "after":
            raise TryLater("lost on its way back", 1.0)

    def sums(self, first: str, last: str, group_by: Sequence[str], tenant: str | None = None) -> list[DeviceUsage]:
        return list(self.rows.values())

    def spent(self, day: str, besides: str) -> dict[str, float]:
        found = dict(self.before) if day == day_name(NOON) else {}
        for (writer, of, *_), each in self.rows.items():
            if of == day and writer != besides:
                found[str(each.tenant)] = found.get(str(each.tenant), 0.0) + each.device_s
        return found

    def close(self) -> None: ...


class Clock:
    now_s = NOON

    def __call__(self) -> float:
        return self.now_s


@dataclass
class LlmCounters:
    """A ledger over counters that a test sets."""

    price: float | None = 3600.0
    limit: float | None = None
    store: Kept = field(default_factory=Kept)
    clock: Clock = field(default_factory=Clock)
    now: list[Counted] = field(default_factory=list[Counted])

    def __post_init__(self) -> None:
        self.tenant = Tenant("red", TenantSettings(device_seconds_per_day=self.limit), wall=self.clock)
        self.ledger = self.again()

    def again(self) -> Ledger:
        prices = Prices(lambda _: self.price, 0.5)
        return Ledger(self.store, lambda: self.now, {"red": self.tenant}, prices, self.clock)

    def total(self) -> DeviceUsage:
        found = [*self.store.rows.values()]
        usd = [each.usd for each in found if each.usd is not None]
        return DeviceUsage(
            rows=sum(each.rows for each in found),
            tokens=sum(each.tokens for each in found),
            device_s=sum(each.device_s for each in found),
            harvested_s=sum(each.harvested_s for each in found),
            usd=sum(usd) if usd else None,
            unpriced_s=sum(each.unpriced_s for each in found),
        )


def live(rows: int, device_s: float) -> Counted:
    return Counted("red", LIVE, "m", rows, 10 * rows, device_s)


def test_live_time_has_its_full_price_and_batch_time_a_share() -> None:
    books = LlmCounters()
    books.now = [live(3, 2.0), Counted("red", BATCH, "m", 5, 50, 4.0, 4.0)]
    books.ledger.keep()
    assert books.total() == DeviceUsage(rows=8, tokens=80, device_s=6.0, harvested_s=4.0, usd=2.0 + 4.0 * 0.5)


def test_what_a_language_model_generated_has_its_part_of_the_dollars() -> None:
    books = LlmCounters()
    for rows in (1, 2):
        books.now = [Counted("red", BATCH, "m", rows, 100 * rows, 4.0 * rows, 4.0 * rows, 30 * rows, 3.0 * rows)]
        books.ledger.keep()
    [day] = books.store.rows.values()
    assert (day.tokens, day.output_tokens) == (200, 60)
    assert (day.usd, day.output_usd) == (4.0, 3.0)


def test_without_a_price_there_are_no_dollars_rather_than_none_to_pay() -> None:
    books = LlmCounters(price=None)
    books.now = [live(1, 2.0)]
    books.ledger.keep()
    assert books.total().usd is None
    assert books.total().unpriced_s == 2.0
    books.price = 0.0
    books.now = [live(1, 5.0)]
    books.ledger.keep()
    assert books.total() == DeviceUsage(rows=1, tokens=10, device_s=5.0, usd=0.0, unpriced_s=2.0)


def test_only_what_has_changed_is_written() -> None:
    books = LlmCounters()
    for _ in range(3):
        books.ledger.keep()
    assert books.store.puts == 0
    books.now = [live(1, 1.0)]
    for _ in range(3):
        books.ledger.keep()
    assert books.store.puts == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_database_that_fails_loses_nothing_and_counts_nothing_twice(when: str) -> None:
    books = LlmCounters()
    for rows in range(1, 10):
        books.store.fails = when if rows % 2 else ""
        books.now = [live(rows, float(rows))]
        books.ledger.keep()
    books.store.fails = ""
    books.ledger.keep()
    assert books.total() == DeviceUsage(rows=9, tokens=90, device_s=9.0, usd=9.0)


def test_counters_that_begin_anew_with_a_server_add_to_what_the_last_one_wrote() -> None:
    books = LlmCounters()
    books.now = [live(4, 4.0)]
    books.ledger.keep()
    books.ledger, books.now = books.again(), [live(1, 1.0)]
    books.ledger.keep()
    assert books.total() == DeviceUsage(rows=5, tokens=50, device_s=5.0, usd=5.0)


def test_a_replica_that_is_missing_for_a_moment_is_not_counted_again() -> None:
    books = LlmCounters()
    for rows in (4, 2, 4, 5):
        books.now = [live(rows, float(rows))]
        books.ledger.keep()
    assert books.total() == DeviceUsage(rows=5, tokens=50, device_s=5.0, usd=5.0)


def test_each_day_has_its_own() -> None:
    books = LlmCounters()
    books.now = [live(4, 4.0)]
    books.ledger.keep()
    books.clock.now_s += DAY_S
    books.now = [live(5, 6.0)]
    books.ledger.keep()
    days = {each.day: each.device_s for each in books.store.rows.values()}
    assert days == {day_name(NOON): 4.0, day_name(NOON + DAY_S): 2.0}


@pytest.mark.parametrize("step_s", [DAY_S, 400 * DAY_S])
def test_a_clock_that_is_set_back_over_midnight_loses_nothing(step_s: float) -> None:
    books = LlmCounters(limit=7.0)
    for rows, now_s in ((4, NOON), (5, NOON + step_s), (6, NOON), (7, NOON), (8, NOON + step_s), (9, NOON)):
        books.clock.now_s = now_s
        books.now = [live(rows, float(rows))]
        books.ledger.keep()
    days = dict[str, float]()
    for each in books.store.rows.values():
        days[str(each.day)] = days.get(str(each.day), 0.0) + each.device_s
    assert days == {day_name(NOON): 7.0, day_name(NOON + step_s): 2.0}
    with pytest.raises(OverLimit, match="7 device seconds for today"):
        books.tenant.check_device()


def test_who_has_spent_the_day_is_told_until_midnight() -> None:
    books = LlmCounters(limit=10.0)
    books.store.before = {"red": 7.0, "blue": 100.0}  # of an earlier start, or of another server
    books.ledger.start()
    books.ledger.close()
    books.tenant.check_device()
    books.now = [live(1, 2.9)]
    books.ledger.keep()
    books.tenant.check_device()
    books.now = [live(1, 3.0)]
    books.ledger.keep()
    with pytest.raises(OverLimit, match="10 device seconds for today") as told:
        books.tenant.check_device()
    assert told.value.retry_after_s == DAY_S / 2
    shown = {name: samples for _, name, _, _, samples in tenant_metrics({"red": books.tenant}, list)()}
    assert (shown["tenant_quota_seconds"], shown["tenant_spent_seconds"]) == ([("red", 10.0)], [("red", 10.0)])
    books.clock.now_s = (NOON // DAY_S + 1) * DAY_S
    assert books.tenant.why_spent() == ""
    books.ledger.keep()
    books.tenant.check_device()


def test_the_end_of_a_server_writes_what_is_left() -> None:
    books = LlmCounters()
    books.ledger.start()
    books.now = [live(1, 1.0)]
    books.ledger.close()
    assert books.total() == replace(DeviceUsage(rows=1, tokens=10, device_s=1.0, usd=1.0))
