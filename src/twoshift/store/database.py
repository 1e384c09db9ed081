"""A database by URL: SQLite in a file, or PostgreSQL; brought to the newest tables when it is opened."""

from __future__ import annotations

import contextlib
import fcntl
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from twoshift.errors import InvalidInput, TryLater
from twoshift.extras import needed

__all__ = ["Database"]

_BUSY_MS = 10_000  # that a writer waits for another one
_RETRY_S = 1.0
_CLAIM = 7_746_872_043  # a number of our own among PostgreSQL's advisory locks
_ACCEPTED = "sqlite:///path/to/file.db, or postgresql://user:password@host/name"


class Database:
    """Connections to one database; any thread may ask for one."""

    def __init__(self, url: str) -> None:
        """Raises InvalidInput where the URL cannot be used, TryLater where nobody answers there."""
        self.url = _checked(url)
        self._engine = _engine(self.url)
        self._claim: Any = None
        with self._told():
            _migrate(self._engine)

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction: all of it or nothing; raises TryLater where the database does not answer."""
        with self._told(), self._engine.begin() as connection:
            yield connection

    @property
    def shown(self) -> str:
        """Its URL without the password."""
        return make_url(self.url).render_as_string(hide_password=True)

    def claim(self) -> bool:
        """Whether it is ours alone from now on, until this process ends: one server runs a database's jobs."""
        parsed = make_url(self.url)
        if parsed.drivername == "sqlite":
            self._claim = Path(f"{parsed.database}.lock").open("w")  # noqa: SIM115 - held until the end
            try:
                fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True
        with self._told():
            self._claim = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            return bool(self._claim.exec_driver_sql(f"SELECT pg_try_advisory_lock({_CLAIM})").scalar())

    def close(self) -> None:
        """End every connection, and the claim."""
        if self._claim is not None:
            self._claim.close()
        self._engine.dispose()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise TryLater(
                f"the database {self.shown} does not answer ({_first_line(error.orig)})", _RETRY_S
            ) from error


def _checked(url: str) -> str:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput("database", url, _ACCEPTED) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise InvalidInput("database", parsed.render_as_string(hide_password=True), _ACCEPTED)
    return parsed.render_as_string(hide_password=False)


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.drivername != "sqlite":
        needed("psycopg", "postgres", parsed.render_as_string(hide_password=True), "database")
        return create_engine(url, pool_pre_ping=True, pool_size=4)  # a server that was restarted is found again
    if not parsed.database or parsed.database == ":memory:":
        raise InvalidInput("database", url, "a file: state must outlive the process")
    try:
        Path(parsed.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput("database", url, f"a file in a folder that can be written ({error.strerror})") from error
    engine = create_engine(url, connect_args={"timeout": _BUSY_MS / 1e3})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # who reads and then writes must not find it taken in between


def _migrate(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["engine"] = engine
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        command.upgrade(config, "head")
    except SQLAlchemyError:
        raise
    except Exception as error:  # alembic's own: tables of a newer Twoshift
        shown = make_url(str(engine.url)).render_as_string(hide_password=True)
        raise InvalidInput("database", shown, f"one that this version of Twoshift knows ({error})") from error


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0][:200]
