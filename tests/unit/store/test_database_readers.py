from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import Connection, func, insert, select

from twoshift.errors import TryLater
from twoshift.store import database as databases
from twoshift.store.database import Database
from twoshift.store.tables import claims

_ROW = {"name": "a", "owner": "b", "shown": "c", "place": "d", "process": 1, "seen_unix_s": 1.0}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/state.db")
    yield made
    made.close()


def _count(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(claims)).scalar_one()


class _Writer:
    """One that has begun to write and does not go on."""

    def __init__(self, database: Database) -> None:
        self._has_written, self._may_end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=database.run, args=(self._write,))
        self._thread.start()
        self._has_written.wait()

    def _write(self, connection: Connection) -> None:
        connection.execute(insert(claims).values(_ROW))
        self._has_written.set()
        self._may_end.wait()

    def end(self) -> None:
        self._may_end.set()
        self._thread.join()


def test_who_reads_waits_for_no_writer_and_sees_what_is_committed(database: Database):
    writer = _Writer(database)
    try:
        assert database.read(_count) == 0
    finally:
        writer.end()
    assert database.read(_count) == 1


def test_who_writes_beside_one_that_does_not_end_is_told_to_come_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(databases, "_BUSY_MS", 50)
    writer = _Writer(database)
    try:
        with pytest.raises(TryLater, match="other processes are writing"):
            database.run(_count)
    finally:
        writer.end()
    assert database.run(_count) == 1


def test_a_file_that_is_deleted_or_replaced_is_noticed_and_logged_once(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, away = tmp_path / "state.db", tmp_path / "away.db"
    database.run(lambda connection: connection.execute(insert(claims).values(_ROW)))
    file.rename(away)
    for _ in range(2):
        for ask in (database.run, database.read):
            with pytest.raises(TryLater, match="deleted or replaced") as refused:
                ask(_count)
            assert str(tmp_path) not in refused.value.client_message
    assert not file.exists()
    file.write_bytes(away.read_bytes())
    with pytest.raises(TryLater, match="deleted or replaced"):
        database.read(_count)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    away.replace(file)
    assert database.read(_count) == 1
