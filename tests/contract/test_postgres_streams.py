"""Streams from a table of PostgreSQL: transactions that end out of order, notifications, a server that restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_postgres import RealPostgres
from streaming import Streaming, running

from twoshift.errors import InvalidInput
from twoshift.streams import postgres_source
from waiting import until

psycopg = pytest.importorskip("psycopg")

pytestmark = pytest.mark.usefixtures("often")


@pytest.fixture
def database(postgres: RealPostgres) -> str:
    url = postgres.url()
    postgres.execute("CREATE TABLE docs (id bigserial PRIMARY KEY, x double precision, at timestamptz)", url)
    return url


@pytest.fixture
def streaming(tmp_path: Path, database: str) -> Streaming:
    return Streaming(tmp_path, {"source": database, "table": "docs", "cursor": "id"})


def put(postgres: RealPostgres, url: str, first: int, last: int) -> None:
    postgres.execute(f"INSERT INTO docs (id, x) SELECT k, k FROM generate_series({first}, {last}) k", url)  # noqa: S608


def test_rows_are_committed_once_over_several_runs(streaming: Streaming, postgres: RealPostgres, database: str) -> None:
    put(postgres, database, 0, 299)
    assert streaming.run(buffer=3000.0, compact=0).windows > 1
    put(postgres, database, 300, 304)
    assert streaming.run().rows == 5
    assert streaming.run().rows == 0
    streaming.check_squares(305)


def test_a_transaction_that_ends_late_is_waited_for_and_its_rows_are_not_lost(
    streaming: Streaming, postgres: RealPostgres, database: str
) -> None:
    with psycopg.connect(database) as late:
        late.execute("INSERT INTO docs (id, x) VALUES (0, 0)")  # and is not committed yet
        put(postgres, database, 1, 3)
        assert streaming.run().rows == 0
        late.commit()
    assert streaming.run().rows == 4
    streaming.check_squares(4)


def test_a_notification_wakes_the_stream(
    streaming: Streaming, postgres: RealPostgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "_LOOK_EVERY_S", 3600.0)  # nothing else would
    stream = streaming.stream(once=False, fresh=0.3)
    with running(stream):
        for first in (0, 5):
            put(postgres, database, first, first + 4)
            until(lambda most=first + 5: _notified(postgres, database) or stream.counts.snapshot.rows == most)
    streaming.check_squares(10)


def _notified(postgres: RealPostgres, database: str) -> bool:
    postgres.execute("NOTIFY docs", database)
    return False


def test_a_server_that_restarts_loses_no_row(streaming: Streaming, postgres: RealPostgres, database: str) -> None:
    put(postgres, database, 0, 4)
    stream = streaming.stream(once=False, fresh=0.3)
    with running(stream):
        until(lambda: stream.counts.snapshot.rows == 5)
        postgres.restart()
        until(lambda: "source" in dict(stream.counts.snapshot.problems))
        put(postgres, database, 5, 9)
        until(lambda: stream.counts.snapshot.rows == 10)
    streaming.check_squares(10)


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"table": "nothing"}, "cursor"), ({"cursor": "x"}, "whole numbers"), ({"cursor": "nothing"}, "existing")],
)
def test_a_table_or_cursor_that_cannot_be_read_in_order_is_refused(
    streaming: Streaming, changed: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput, match=field):
        streaming.run(**changed)


def test_a_cursor_is_needed_for_a_database_and_for_nothing_else(streaming: Streaming) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        streaming.settings(cursor=None)
    with pytest.raises(InvalidInput, match="not a postgresql"):
        streaming.settings(source="inbox")
