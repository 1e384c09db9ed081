"""Predictions in either database; PostgreSQL is a real one, started here."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.prediction_ports import Prediction
from twoshift.store.database import Database
from twoshift.store.predictions import SqlPredictions

pytestmark = pytest.mark.slow


def of(kind: str, measured: float, owner: str = "", high: float | None = None) -> Prediction:
    return Prediction(kind, "m", "a figure", "s", 2.0, measured, 1e9 + measured, "id", owner, None, high)


def test_they_come_back_newest_first_by_kind_and_owner_and_the_oldest_go(database: Database) -> None:
    store = SqlPredictions(database, most=4)
    store.add([])
    store.add([of("job", 1.0, "red"), of("job", 2.0, "blue")])
    store.add([of("scaling", 3.0), of("job", 4.0, "red", high=5.5)])
    assert [each.measured for each in store.list(10)] == [4.0, 3.0, 2.0, 1.0]
    assert store.list(1) == [of("job", 4.0, "red", high=5.5)]
    assert [each.measured for each in store.list(10, kind="job")] == [4.0, 2.0, 1.0]
    assert [each.measured for each in store.list(10, "job", "red")] == [4.0, 1.0]
    assert store.list(10, owner="nobody") == []
    store.add([of("rollout", 5.0)])
    assert [each.measured for each in store.list(10)] == [5.0, 4.0, 3.0, 2.0]
