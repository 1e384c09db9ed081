"""A day of minutes in either database; PostgreSQL is a real one, started here."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.store.database import Database
from twoshift.store.minutes import SqlMinutes

pytestmark = pytest.mark.slow
DAY_S = 86_400


def test_minutes_come_back_in_order_of_their_own_server_and_old_ones_go(database: Database) -> None:
    one, two = SqlMinutes(database, "a:1"), SqlMinutes(database, "b:1")
    for minute in (3, 1, 2):
        one.add({"m": {"at": minute}, "n" * 200: {}}, DAY_S + 60 * minute, 0)
    two.add({"m": {"at": 9}}, DAY_S, 0)
    assert [each["at"] for each in one.since("m", DAY_S)] == [1, 2, 3]
    assert [each["at"] for each in one.since("m", DAY_S + 120)] == [2, 3]
    one.add({"m": {"at": 30}}, DAY_S + 180, DAY_S + 120)  # the same minute once more
    assert [each["at"] for each in one.since("m", 0)] == [2, 30]
    assert two.since("m", 0) == []
    one.add({}, DAY_S, 0)
