"""PostgreSQL as we talk to it: nobody waits for ever for one that does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any

from sqlalchemy import Engine, create_engine, event

__all__ = ["postgres_engine"]

_CONNECT_S, _ANSWER_S = 3, 5.0
_POOL, _POOL_WAIT_S = 8, 5.0
# For what libpq is not told in the URL: a machine that is gone is noticed, by both ends
_PARAMS: dict[str, Any] = {
    "connect_timeout": _CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": int(1e3 * _ANSWER_S),
}
_SESSION = (
    f"SET statement_timeout = {int(1e3 * _ANSWER_S)}; SET lock_timeout = {int(1e3 * _ANSWER_S)};"
    f"SET idle_in_transaction_session_timeout = {int(2e3 * _ANSWER_S)}"
)


def postgres_engine(url: str, closed: threading.Event) -> Engine:
    """Connections whose every wait ends: by an answer, by the time, or once `closed` is set."""
    engine = create_engine(url, pool_size=_POOL, pool_timeout=_POOL_WAIT_S)
    kind = _answered(closed)

    def connect(_dialect: Any, _record: Any, given: Any, params: dict[str, Any]) -> Any:
        return kind.connect(*given, **{**_PARAMS, **params})

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", _set_up)
    return engine


def _set_up(connection: Any, _record: Any) -> None:
    connection.autocommit = True
    connection.execute(_SESSION)
    connection.autocommit = False


def _answered(closed: threading.Event) -> Any:
    """A class of connections; psycopg alone would wait as long as the other end's kernel is there."""
    import psycopg

    class Answered(psycopg.Connection[Any]):
        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().wait(bounded(gen), *args, **kwargs)
            except _NoAnswer as error:
                self.close()  # what comes after all would be taken for the answer to the next question
                raise psycopg.OperationalError(str(error)) from None

    def bounded(gen: Any) -> Generator[Any, Any, Any]:
        until_s = time.monotonic() + _ANSWER_S
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and (closed.is_set() or time.monotonic() >= until_s):
                    raise _NoAnswer(f"no answer within {_ANSWER_S:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value

    return Answered


class _NoAnswer(Exception):
    """Waited long enough."""
