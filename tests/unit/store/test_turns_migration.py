from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Float, Integer, MetaData, String, Table, Text, create_engine, insert
from sqlalchemy.types import JSON

from twoshift.store import database as databases
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs

_jobs = Table(
    "jobs", MetaData(), Column("number", Integer, primary_key=True), Column("id", String), Column("settings", JSON),
    Column("state", String), Column("reason", Text), Column("owner", String), Column("created_unix_s", Float),
    Column("updated_unix_s", Float),
)  # fmt: skip


def _before(url: str) -> None:
    """Jobs as the version before has left them."""
    engine, config = create_engine(url), Config()
    config.set_main_option("script_location", str(Path(databases.__file__).parent / "migrations"))
    config.attributes["engine"] = engine
    command.upgrade(config, "0005_triggers")
    settings = {"batch": {"due_unix_s": 50.0}, "windowed": {"window": "1h"}, "plain": {"window": None}}
    with engine.begin() as connection:
        for name, given in settings.items():
            values = {"id": name, "settings": given, "state": "queued", "reason": "", "owner": ""}
            connection.execute(insert(_jobs).values(**values, created_unix_s=100.0, updated_unix_s=100.0))
    engine.dispose()


def test_jobs_of_the_version_before_keep_their_windows_and_turns(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/state.db"
    _before(url)
    store = SqlJobs(Database(url))
    try:
        assert {each.id: each.due_unix_s for each in store.waiting(9)} == {
            "batch": 50.0,
            "windowed": 3700.0,
            "plain": None,
        }
        assert [each.id for each in store.waiting(2)] == ["batch", "windowed"]
    finally:
        store.close()
