"""One suite for every ledger; PostgreSQL is a real one, started here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.store.database import Database
from twoshift.store.usage import SqlUsage
from twoshift.usage_ports import DeviceUsage

pytestmark = pytest.mark.slow
MONDAY, TUESDAY = "2026-01-05", "2026-01-06"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlUsage]:
    is_sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/state.db" if is_sqlite else request.getfixturevalue("postgres").url()
    made = SqlUsage(Database(url))
    yield made
    made.close()


def had(day: str, tenant: str, lane: str = "live", device_s: float = 1.0, usd: float | None = 2.0) -> DeviceUsage:
    return DeviceUsage(day, tenant, lane, "m" * 300, 3, 1 << 40, device_s, 0.5, usd, 0.25, 1 << 33, usd)


def test_what_a_writer_says_again_replaces_what_it_said(store: SqlUsage) -> None:
    store.put("one", [])
    for device_s in (1.0, 5.0, 5.0):
        store.put("one", [had(MONDAY, "red", device_s=device_s), had(MONDAY, "red", "batch", usd=None)])
    store.put("two", [had(MONDAY, "red", device_s=0.5)])
    live, batch = store.sums(MONDAY, MONDAY, ["lane", "tenant"])[::-1]
    assert live == DeviceUsage(None, "red", "live", None, 6, 2 << 40, 5.5, 1.0, 4.0, 0.5, 2 << 33, 4.0)
    assert batch == DeviceUsage(None, "red", "batch", None, 3, 1 << 40, 1.0, 0.5, None, 0.25, 1 << 33, None)
    assert type(live.rows) is int
    assert type(live.device_s) is float


def test_sums_are_of_the_days_and_the_tenant_that_are_asked_for(store: SqlUsage) -> None:
    store.put("one", [had(MONDAY, "red"), had(TUESDAY, "red"), had(TUESDAY, "blue' OR 1=1 --")])
    assert [each.day for each in store.sums(MONDAY, TUESDAY, ["day"], "red")] == [MONDAY, TUESDAY]
    assert [each.tenant for each in store.sums(TUESDAY, TUESDAY, ["tenant"])] == ["blue' OR 1=1 --", "red"]
    assert store.sums(MONDAY, TUESDAY, [])[0].device_s == 3.0
    assert store.sums("2026-01-07", "2026-02-01", []) == []
    assert store.sums(MONDAY, TUESDAY, ["tenant"], "green") == []


def test_what_others_have_counted_of_a_day(store: SqlUsage) -> None:
    store.put("one", [had(MONDAY, "red"), had(MONDAY, "red", "batch"), had(MONDAY, "blue")])
    store.put("two", [had(MONDAY, "red", device_s=10.0), had(TUESDAY, "red")])
    assert store.spent(MONDAY, "two") == {"red": 2.0, "blue": 1.0}
    assert store.spent(MONDAY, "") == {"red": 12.0, "blue": 1.0}
    assert store.spent("2026-01-07", "") == {}
