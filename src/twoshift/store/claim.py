"""Which server runs the jobs of a database: one at a time, and every write of another one is refused."""

from __future__ import annotations

import fcntl
import os
import socket
import uuid
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from twoshift.errors import Elsewhere
from twoshift.known_process import has_ended, place_here
from twoshift.store.database import Database
from twoshift.store.database_clock import database_now
from twoshift.store.tables import claims

__all__ = ["SqlClaim"]

_NAME = "jobs"
_LASTS_S = 15.0  # without a word from its owner, after which others may have it
_RETRY_S = 5.0
_UNLOCKED = " unlocked"  # after the place of an owner that has the row alone: its lock is still another one's


class SqlClaim:
    """A Claim: a row that its owner says a word in now and then.

    It outlives a restart of the database, and a proxy that hands connections round. Of SQLite the owner also holds a
    lock on a file, which ends with it: others need not wait. One that is stopped keeps the lock, and loses the row.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = uuid.uuid4().hex
        self._file: Any = None  # locked
        self.holder = ""

    def take(self) -> bool:
        """Whether it is ours from now on."""
        self._lock()
        return self._database.run(self._take)

    def renew(self) -> bool:
        """Whether it still is; to be asked every few seconds."""
        self._lock()  # whoever had it before us may be gone by now
        renewed = self._database.run(self._renew)
        if not renewed:
            self._unlock()
        return renewed

    def release(self) -> None:
        """Others may have it at once."""
        self._database.run(lambda made: made.execute(delete(claims).where(_ours(self._owner))))
        self._unlock()

    def check(self, connection: Connection) -> None:
        """For the rest of this transaction it is ours; raises Elsewhere where it is not."""
        found = connection.execute(select(claims).where(claims.c.name == _NAME).with_for_update(read=True)).first()
        if found is None or found.owner != self._owner:
            self.holder = self.holder if found is None else found.shown
            raise Elsewhere(self.told, _RETRY_S)

    @property
    def told(self) -> str:
        """Who has it, for people."""
        return f"{self.holder or 'another server'} runs the jobs of {self._database.shown}"

    def _take(self, connection: Connection) -> bool:
        now = database_now(connection)
        values = {
            "owner": self._owner, "shown": f"the server {socket.gethostname()}, process {os.getpid()},",
            "place": self._shown_place, "process": os.getpid(), "seen_unix_s": now,
        }  # fmt: skip
        found = connection.execute(select(claims, now.label("now")).where(claims.c.name == _NAME)).first()
        if found is None:
            if not self._is_locked:  # somebody is about to insert it
                return False
            try:
                with connection.begin_nested():
                    connection.execute(insert(claims).values(name=_NAME, **values))
            except IntegrityError:  # somebody was faster
                return False
            return True
        has_left = self._file is not None and not found.place.endswith(_UNLOCKED)  # its lock has ended with it
        is_free = (
            found.now - found.seen_unix_s > _LASTS_S
            or has_left
            or has_ended(found.place.removesuffix(_UNLOCKED), found.process)
        )
        if found.owner != self._owner and not is_free:
            self.holder = found.shown
            return False
        as_seen = _ours(found.owner) & (claims.c.seen_unix_s == found.seen_unix_s)
        return connection.execute(update(claims).where(as_seen).values(values)).rowcount == 1

    def _renew(self, connection: Connection) -> bool:
        change = update(claims).where(_ours(self._owner))
        change = change.values(seen_unix_s=database_now(connection), place=self._shown_place)
        if connection.execute(change).rowcount == 1:
            return True
        self.holder = connection.execute(select(claims.c.shown).where(claims.c.name == _NAME)).scalar() or ""
        return False

    @property
    def _is_locked(self) -> bool:
        return self._database.file is None or self._file is not None

    @property
    def _shown_place(self) -> str:
        return place_here() if self._is_locked else f"{place_here()}{_UNLOCKED}"

    def _lock(self) -> None:
        """Of SQLite, where nobody else who had it is alive; a process that is stopped keeps its lock."""
        if self._is_locked:
            return
        file = Path(f"{self._database.file}.lock").open("w")  # noqa: SIM115 - held until the end
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return
        self._file = file

    def _unlock(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _ours(owner: str) -> Any:
    return (claims.c.name == _NAME) & (claims.c.owner == owner)
