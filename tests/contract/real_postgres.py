"""A PostgreSQL of the tests' own, which can be restarted, and a relay before it that can fall silent or be cut."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from waiting import until

__all__ = ["RealPostgres", "Relay"]

_names = itertools.count()


class RealPostgres:
    """Runs once it is made, in a folder of its own: pytest's are for one user, and PostgreSQL does not run as root."""

    def __init__(self) -> None:
        pgserver = pytest.importorskip("pgserver")
        folder, made = Path(tempfile.mkdtemp(prefix="postgres-")), list[Any]()
        with _unsynced(pgserver.postgres_server):
            self._begin(lambda: made.append(pgserver.get_server(folder, cleanup_mode="delete")))
        self._server: Any = made[0]
        self._socket = str(self._server.get_postmaster_info().socket_dir)

    def url(self) -> str:
        """Of a new, empty database."""
        name = f"jobs_{next(_names)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres:@/{name}?host={self._socket}"

    def execute(self, statement: str, url: str | None = None) -> None:
        """As somebody else would."""
        import psycopg

        with psycopg.connect(url or self._server.get_uri(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self) -> None:
        """As after a loss of power: nobody is told."""
        from pgserver._commands import pg_ctl  # pyright: ignore[reportAttributeAccessIssue] - made as it is imported

        pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self._server.pgdata, user=self._server.system_user)
        self._begin(self._server.ensure_postgres_running)
        until(self._answers)

    def _begin(self, begin: Callable[[], None]) -> None:
        """pgserver waits ten seconds for a start; on a busy machine it takes longer, and an assertion says so."""

        def has_begun() -> bool:
            with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
                begin()
                return True
            return False

        until(has_begun)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):  # it is starting up
            self.execute("SELECT 1")
            return True
        return False

    def relay(self, url: str) -> Relay:
        """A way to that database through a port of this machine."""
        return Relay(f"{self._socket}/.s.PGSQL.5432", url.partition("/jobs_")[2].partition("?")[0])

    def end(self) -> None:
        """Stop it, and delete what it had."""
        self._server.cleanup()


@contextlib.contextmanager
def _unsynced(server: Any) -> Iterator[None]:
    """The system has at once what is written, and its disk when it likes: only the end of this machine loses it."""
    made_by = server.initdb

    def initdb(words: list[str], pgdata: Path, **more: Any) -> str:
        told = made_by([*words, "--no-sync"], pgdata=pgdata, **more)
        with (pgdata / "postgresql.conf").open("a") as settings:
            settings.write("fsync = off\n")
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "initdb", initdb)
        yield


class Relay:
    """Passes bytes on both ways, unless it is silent: then it takes connections and bytes, and says nothing."""

    def __init__(self, target: str, number: str) -> None:
        self._target, self._number = target, number
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._is_over = False
        self.held_bytes = 0  # that came while it was silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Of the database behind it."""
        return f"postgresql://postgres:@127.0.0.1:{self._listener.getsockname()[1]}/jobs_{self._number}?sslmode=disable"

    def fall_silent(self) -> None:
        self._open.clear()

    def speak(self) -> None:
        self._open.set()

    def end(self) -> None:
        self._is_over = True
        self._open.set()
        for each in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            self._keep(near)
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _keep(self, one: socket.socket) -> None:
        self._ends.append(one)
        if self._is_over:  # `end` may have looked before
            one.close()

    def _connect(self, near: socket.socket) -> None:
        self._open.wait()
        if self._is_over:
            return
        far = socket.socket(socket.AF_UNIX)
        self._keep(far)
        try:
            far.connect(self._target)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.held_bytes += 0 if self._open.is_set() else len(data)
                self._open.wait()
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
