"""Rows that are added to a table of PostgreSQL, by a column that grows; NOTIFY wakes the stream, as does the time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar

from twoshift.batch.stores.known import without_password
from twoshift.errors import InvalidInput, TryLater, first_line
from twoshift.extras import needed
from twoshift.streams.messages import arrived_messages
from twoshift.streams.source import Arrived, Position, Waiting

__all__ = ["PostgresSource"]

T = TypeVar("T")
_CONNECT_S, _RETRY_S = 10, 1.0
_LIVELY = {"keepalives_idle": 30, "tcp_user_timeout": 60_000}  # a connection that is cut is noticed
_LOOK_EVERY_S = 1.0  # where nobody notifies
_MOST_ROWS = 5000  # that are asked for at once
_FIRST_BYTES = 512.0  # of a row, until some were seen
_LATER = ("08", "25006", "40", "53", "55", "57", "58")  # classes of errors that pass: gone, full, locked
_WHOLE = ("smallint", "integer", "bigint")
_COLUMN: LiteralString = """
SELECT format_type(atttypid, NULL), EXISTS (
    SELECT FROM pg_index WHERE indrelid = attrelid AND indisunique AND indpred IS NULL AND indnkeyatts = 1
    AND indkey[0] = attnum)
FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s AND attnum > 0 AND NOT attisdropped
"""
# A row of a transaction that began before another one that still runs: that one may yet add a smaller number
_SAFE: LiteralString = "age(t.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)"
_LAST: LiteralString = "SELECT max(t.{cursor}), count(*) FROM {table} t WHERE t.{cursor} > %s AND " + _SAFE  # noqa: S608
_ROWS: LiteralString = (
    "SELECT t.{cursor}, row_to_json(t)::text FROM {table} t WHERE t.{cursor} > %s AND t.{cursor} <= %s "
    "ORDER BY t.{cursor} LIMIT %s"
)


class PostgresSource:
    """A StreamSource."""

    needs_all_marks = False

    def __init__(self, url: str, table: str, cursor: str, settle_s: float) -> None:
        """`cursor` is a unique whole number that grows with each row; rows are read `settle_s` after they are seen."""
        self.name = without_password(url)
        self._psycopg = needed("psycopg", "postgres", self.name, "source")
        self._sql = needed("psycopg.sql", "postgres", self.name, "source")
        self._url, self._table, self._cursor, self._settle_s = url, table, cursor, settle_s
        self._session: Any = None
        self._last, self._most = -(2**63), 0  # cursor of the last row that was taken; that may be taken
        self._bounds: deque[tuple[float, int]] = deque()  # when it was seen that rows up to a cursor are there
        self._waiting = 0
        self._next_look_s = 0.0
        self._row_bytes = _FIRST_BYTES

    def begin(self, marks: Sequence[Position]) -> None:
        """Behind the last row that was committed; connects when it is first asked."""
        if marks:
            self._last = int(marks[-1]["cursor"])
        self._most = self._last

    def take(self, most_rows: int, most_bytes: int, wait_s: float) -> Arrived | None:
        """The next rows, in the order of the cursor."""
        until_s = time.monotonic() + wait_s
        while True:
            now_s = time.monotonic()
            if self._most <= self._last and now_s >= self._next_look_s:
                self._asked(self._look)
            if self._most > self._last:
                count = max(1, min(most_rows, _MOST_ROWS, int(most_bytes / self._row_bytes)))
                return self._arrived(self._asked(lambda session, count=count: self._rows(session, count)))
            if now_s >= until_s:
                return None
            pause_s = min(until_s, self._next_look_s) - now_s
            if pause_s > 0 and self._asked(lambda session, pause_s=pause_s: _notified(session, pause_s)):
                self._next_look_s = 0.0

    def waiting(self) -> Waiting:
        """As the last look has counted them."""
        return Waiting(self._waiting)

    def merged(self, positions: Sequence[Position]) -> Position:
        """The last one."""
        return positions[-1]

    def close(self) -> None:
        """Disconnect."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _asked(self, work: Callable[[Any], T]) -> T:
        """What the work with a connection gives; the errors of the database in our words."""
        try:
            if self._session is None:
                self._session = self._connected()
            return work(self._session)
        except self._psycopg.Error as error:
            self.close()
            state, why = error.sqlstate or "", first_line(error).strip()
            is_gone = isinstance(error, self._psycopg.OperationalError) and not state
            if is_gone or state.startswith(_LATER):
                raise TryLater(f"{self.name} does not answer ({why})", _RETRY_S) from error
            raise InvalidInput("source", self.name, f"a database with the table {self._table} ({why})") from error

    def _connected(self) -> Any:
        session = self._psycopg.connect(self._url, connect_timeout=_CONNECT_S, autocommit=True, **_LIVELY)
        found = session.execute(_COLUMN, [self._table, self._cursor]).fetchone()
        if found is None:
            session.close()
            raise InvalidInput("cursor", self._cursor, f"an existing column of the table {self._table}")
        kind, is_unique = found
        if kind not in _WHOLE or not is_unique:
            session.close()
            but = "" if is_unique else ", and its values need not be unique"
            accepted = f"a unique column of whole numbers, such as a serial key; this column has the type {kind}{but}"
            raise InvalidInput("cursor", self._cursor, accepted)
        channel = self._sql.Identifier(self._table.rpartition(".")[2])
        session.execute(self._sql.SQL("LISTEN {}").format(channel))
        return session

    def _look(self, session: Any) -> None:
        """How far rows may be taken: those that were there `settle_s` ago."""
        now_s = time.monotonic()
        found = session.execute(self._statement(_LAST), [self._last]).fetchone()
        bound, self._waiting = found
        if bound is not None and (not self._bounds or self._bounds[-1][1] < bound):
            self._bounds.append((now_s, bound))
        while self._bounds and now_s - self._bounds[0][0] >= self._settle_s:
            self._most = max(self._most, self._bounds.popleft()[1])
        self._next_look_s = now_s + (min(_LOOK_EVERY_S, self._settle_s) if self._bounds else _LOOK_EVERY_S)

    def _rows(self, session: Any, count: int) -> list[tuple[int, str]]:
        return session.execute(self._statement(_ROWS), [self._last, self._most, count]).fetchall()

    def _statement(self, words: LiteralString) -> Any:
        names = {"table": self._sql.Identifier(*self._table.split(".")), "cursor": self._sql.Identifier(self._cursor)}
        return self._sql.SQL(words).format(**names)

    def _arrived(self, rows: list[tuple[int, str]]) -> Arrived | None:
        if not rows:  # deleted since
            self._last, self._waiting = self._most, 0
            return None
        first, self._last = rows[0][0], rows[-1][0]
        self._waiting = max(0, self._waiting - len(rows))
        payloads = [text.encode() for _, text in rows]
        self._row_bytes = 0.9 * self._row_bytes + 0.1 * sum(map(len, payloads)) / len(payloads)
        location = f"{self._table}:{first}-{self._last}"
        ages = [self._settle_s] * len(rows)
        return arrived_messages(location, payloads, {"cursor": self._last}, ages, self._last < self._most)


def _notified(session: Any, wait_s: float) -> bool:
    return any(True for _ in session.notifies(timeout=wait_s, stop_after=1))
