"""A database by URL: SQLite in a file, or PostgreSQL; brought to the newest tables when it is opened."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, column, create_engine, event, inspect, select, table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from twoshift.errors import Broken, InvalidInput, TryLater
from twoshift.extras import needed
from twoshift.policy.retries import RetryPolicy
from twoshift.retrying import retried
from twoshift.store.turn import WriteTurn

__all__ = ["Database", "newest_revision", "upsert_into"]

_BUSY_MS = 5_000  # that a writer waits for another one
_RETRY_S = 1.0
_PATIENCE_S = 5.0  # with a database that is started again, before the caller is told
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5
_ACCEPTED = "sqlite:///path/to/file.db, or postgresql://user:password@host/name"
_READS = "twoshift_reads"
_turns: dict[Path, WriteTurn] = {}  # SQLite has one writer for each file: others would sleep instead of being woken
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_ROOM = (  # to write: what nobody else's end will change
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
_SILENT = "the database does not answer"  # for clients: which one it is, the log says
_MIGRATIONS = Path(__file__).with_name("migrations")
_VERSIONS = table("alembic_version", column("version_num"))
_T = TypeVar("_T")
_logger = logging.getLogger("twoshift.database")


class Database:
    """Transactions on one database; any thread may ask for one."""

    def __init__(self, url: str) -> None:
        """Raises InvalidInput where the URL cannot be used, TryLater where nobody answers there.

        Broken where SQLite's file is damaged, or cannot be opened and written.
        """
        self.url = _checked(url)
        self._closed = threading.Event()
        self._engine = _engine(self.url, self._closed)
        self._reading = self._engine.execution_options(**{_READS: True})
        self._file = self.file
        self._writing = None if self._file is None else _turns.setdefault(self._file.resolve(), WriteTurn())
        self._is_silent = False  # which the log knows
        try:
            with self._told():
                found = "ok" if self._file is None else _checked_pages(self._engine)
                if found != "ok":
                    raise self._damaged(found)
                _migrate(self._engine)
        except TryLater as error:
            why, code = _first_line(_origin(error.__cause__)), _sqlite_code(error.__cause__)
            if code in _DAMAGE:
                raise self._damaged(why) from error
            if code in _NO_ROOM:
                raise self._unusable(why) from error
            raise
        self._opened = self._identity()

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """What it gives, which changes nothing: of SQLite it waits for no writer. Raises as `run` does."""
        return self._tried(self._reading, work)

    def run(self, work: Callable[[Connection], _T]) -> _T:
        """What it gives, in a transaction: all of it or nothing; raises TryLater where the database does not answer.

        Where the connection is lost it is done anew, for a while: unless it may have been committed.
        """
        with self._turn():
            return self._tried(self._engine, work)

    def _tried(self, engine: Engine, work: Callable[[Connection], _T]) -> _T:
        done: list[_T] = []

        def attempt() -> _T:
            self._check_file()
            with self._told(), engine.begin() as connection:
                done.append(work(connection))
            self._is_silent = False
            return done[0]

        def may_retry(error: Exception, _age_s: float) -> bool:
            is_lost = isinstance(error.__cause__, (OperationalError, InterfaceError))
            return isinstance(error, TryLater) and is_lost and not done

        policy = RetryPolicy(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _PATIENCE_S)
        try:
            return retried(attempt, policy, may_retry, self._closed.wait)
        except TryLater as error:
            self._log_once(error)
            raise

    def _damaged(self, why: str) -> Broken:
        self.close()
        what = f"the database file {self._file} is damaged ({why}) and was not changed"
        return Broken(f"{what}: restore the file from a backup, or move it away to start with an empty database")

    def _unusable(self, why: str) -> Broken:
        self.close()
        what = f"the database file {self._file} cannot be used ({why})"
        return Broken(f"{what}: make the file writable, free disk space, or use another file (--database)")

    @property
    def shown(self) -> str:
        """Its URL without the password."""
        return make_url(self.url).render_as_string(hide_password=True)

    @property
    def file(self) -> Path | None:
        """Of SQLite."""
        parsed = make_url(self.url)
        return Path(str(parsed.database)) if parsed.drivername == "sqlite" else None

    def close(self) -> None:
        """End every connection; who waits for an answer gets none any more."""
        self._closed.set()
        self._engine.dispose()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """To write."""
        if self._writing is None:
            yield
            return
        if not self._writing.take(_BUSY_MS / 1e3):
            raise TryLater(f"the database {self.shown} is busy: other processes are writing", _RETRY_S, _SILENT)
        try:
            yield
        finally:
            self._writing.give()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            why = _first_line(_origin(error))
            raise TryLater(f"the database {self.shown} does not answer ({why})", _RETRY_S, _SILENT) from error

    def _identity(self) -> tuple[int, int] | None:
        """Of SQLite's file; None where there is none."""
        try:
            found = None if self._file is None else self._file.stat()
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def _check_file(self) -> None:
        """Who has it open could go on with one that was deleted, and nobody would find anything in it again."""
        if self._identity() != self._opened:
            why = f"the database {self.shown} was deleted or replaced: restore it, or restart the server"
            raise TryLater(why, _RETRY_S, _SILENT)

    def _log_once(self, error: TryLater) -> None:
        if not self._is_silent and not self._closed.is_set():
            _logger.error("%s", error)
        self._is_silent = True


def upsert_into(into: Table, connection: Connection) -> Any:
    """An insert that can update instead, as this kind of database has it; what other kinds have is not imported."""
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(into)


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


def _engine(url: str, closed: threading.Event) -> Engine:
    parsed = make_url(url)
    if parsed.drivername != "sqlite":
        needed("psycopg", "postgres", parsed.render_as_string(hide_password=True), "database")
        from twoshift.store.postgres import postgres_engine

        return postgres_engine(url, closed)
    if not parsed.database or parsed.database == ":memory:":
        raise InvalidInput(
            "database", url, "the path of a file: a database in memory would lose the data when the process ends"
        )
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
    # Who reads and then writes must not find it taken in between
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get(_READS) else "BEGIN IMMEDIATE")


def _checked_pages(engine: Engine) -> str:
    """What SQLite says of its file: `ok`, or the first thing that is wrong with it."""
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())


def _sqlite_code(error: BaseException | None) -> int:
    """Which of SQLite's errors it is; 0 for another one."""
    cause = _origin(error)
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else 0


def _migrate(engine: Engine) -> None:
    if _is_newest(engine):
        return
    from alembic import command  # a fifth of what a server imports: not for a database that has been opened before
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["engine"] = engine
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        command.upgrade(config, "head")
    except SQLAlchemyError:
        raise
    except Exception as error:  # alembic's own
        shown = make_url(str(engine.url)).render_as_string(hide_password=True)
        raise InvalidInput("database", shown, _accepted(engine, config, error)) from error


def _is_newest(engine: Engine) -> bool:
    with engine.execution_options(**{_READS: True}).begin() as connection:
        if not inspect(connection).has_table(_VERSIONS.name):
            return False
        return [*connection.scalars(select(_VERSIONS.c.version_num))] == [newest_revision()]


def newest_revision() -> str:
    """Of the tables, as Alembic names it: after the file that makes it."""
    return max(path.stem for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def _accepted(engine: Engine, config: Any, error: Exception) -> str:
    """What is accepted in place of a database that alembic cannot bring up to date."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current is None or current in {each.revision for each in scripts.walk_revisions()}:
        return f"a database whose tables can be migrated to this version ({_first_line(error)})"
    return (
        "a database of this version of Twoshift or an older one. A newer version of Twoshift has migrated this "
        f"database (to {current}; this version knows up to {scripts.get_current_head()}): use that version, or restore "
        "a copy from before the upgrade"
    )


def _origin(error: BaseException | None) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0][:200]
