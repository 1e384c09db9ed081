"""Precomputed answers in Redis: one thread asks it for all requests that wait, at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twoshift.answers.generations import Generation
from twoshift.answers.kept_rows import KeptKey, KeptRow, pack_kept, unpack_kept
from twoshift.answers.records import unpack_record
from twoshift.answers.redis_following import FollowedRedis, OpenRedis
from twoshift.answers.redis_place import redis_package, redis_reason
from twoshift.errors import Broken
from twoshift.ports import RuntimeInfo
from twoshift.serve.keyed import Rules
from twoshift.serve.precomputed import Looked, Stored, Unavailable
from twoshift.serve.write_back import Counted, OneRow, count_outcome, kept_version

__all__ = ["RedisCalls", "RedisKept", "RedisStore"]

_TIMEOUT_S = 0.25  # for an answer: what is missing is computed, and that takes time, too
_MOST_AT_ONCE = 256  # calls in one exchange
_MOST_WAITING = 4_096
_CLOSE_S = 5.0
_USUAL_KEPT_S = 24 * 3600.0  # of what was computed live, where no answer is ever too old
Command = Callable[[Any], object]  # adds itself to a pipeline


class _Call(NamedTuple):
    command: Command
    settle: Callable[[Any], None]  # with its result or the error, in the thread


class RedisCalls:
    """Calls of one deployment in one process, pipelined: as many as wait go together."""

    def __init__(self, followed: FollowedRedis) -> None:
        self._followed, self._redis = followed, redis_package(followed.location)
        self._waiting: list[_Call] = []
        self._changed, self._closed = threading.Condition(), False  # guards the two
        self._thread: threading.Thread | None = None

    def put(self, command: Command, settle: Callable[[Any], None]) -> bool:
        """False where too many wait, or none is taken any more."""
        with self._changed:
            if self._closed or len(self._waiting) >= _MOST_WAITING:
                return False
            self._waiting.append(_Call(command, settle))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="twoshift-redis", daemon=True)
                self._thread.start()
            self._changed.notify()
        return True

    async def ask(self, command: Command) -> Any:
        """Its result; raises RedisError, OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settled(result: Any) -> None:
            if answer.done():  # nobody waits any more
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def settle(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settled, result)

        if not self.put(command, settle):
            raise TimeoutError("too many look-ups are waiting for Redis")
        return await answer

    def close(self) -> None:
        """What waits is done first."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        client = self._followed.place.connect(_TIMEOUT_S, _TIMEOUT_S)
        while calls := self._next():
            for call, result in zip(calls, self._exchanged(client, calls), strict=True):
                call.settle(result)
        client.close()

    def _next(self) -> list[_Call]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            calls, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
        return calls

    def _exchanged(self, client: Any, calls: Sequence[_Call]) -> Sequence[Any]:
        """A result of each, or the error."""
        if self._followed.down:
            return [self._redis.ConnectionError(self._followed.down)] * len(calls)
        try:
            with client.pipeline(transaction=False) as together:
                for call in calls:
                    call.command(together)
                return together.execute(raise_on_error=False)
        except Exception as error:  # the client's own; whatever it is, those who wait are told, and the thread goes on
            self._followed.failed(error)
            return [error] * len(calls)


class RedisStore:
    """An AnswerStore that all servers share."""

    def __init__(self, followed: FollowedRedis, calls: RedisCalls) -> None:
        self._followed, self._calls = followed, calls

    def generation(self) -> Generation | None:
        """What is current now."""
        found = self._followed.now()
        return None if found is None else found.generation

    @property
    def why_none(self) -> str:
        """Why there is nothing."""
        return self._followed.why_none

    async def find(self, keys: Sequence[bytes | None], info: RuntimeInfo) -> Sequence[Looked]:
        """One call for all of them; another one where the rows were replaced meanwhile."""
        wanted = [key for key in keys if key is not None]
        if self._followed.down:
            return [Unavailable(self._followed.down)] * len(keys)
        try:
            table, values = await self._asked(wanted)
            if None in values and not await self._is_there(table):
                await asyncio.to_thread(self._followed.look)  # a new run has replaced them: nothing is missing yet
                table, values = await self._asked(wanted)
        except Exception as error:  # the client's own, or a timeout
            self._followed.refused(error)
            return [Unavailable(f"Redis at {self._followed.place.url} does not answer: {redis_reason(error)}")] * len(
                keys
            )
        found = iter(values)
        return [None if key is None or table is None else _stored(table, key, next(found)) for key in keys]

    async def _asked(self, wanted: list[bytes]) -> tuple[OpenRedis | None, Sequence[bytes | None]]:
        table = self._followed.now()
        if table is None or not wanted or not table.generation.rows:
            return None, ()
        return table, await self._calls.ask(lambda redis: redis.hmget(table.rows_key, wanted))

    async def _is_there(self, table: OpenRedis | None) -> bool:
        return table is None or bool(await self._calls.ask(lambda redis: redis.exists(table.rows_key)))


class RedisKept:
    """KeptRows that all servers share; Redis itself forgets them."""

    def __init__(self, followed: FollowedRedis, calls: RedisCalls, rules: Rules) -> None:
        self._followed, self._calls = followed, calls
        self._kept_s = max(1, round(rules.max_age_s or _USUAL_KEPT_S))

    async def find(self, info: RuntimeInfo, keys: Sequence[KeptKey]) -> Sequence[KeptRow | None]:
        """Nothing where Redis does not answer."""
        if self._followed.down:
            return [None] * len(keys)
        names = [self._name(info, key) for key in keys]
        try:
            values = await self._calls.ask(lambda redis: redis.mget(names))
        except Exception:  # the client's own, or a timeout: it is told where it was noticed
            return [None] * len(keys)
        return [_kept(key, value) for key, value in zip(keys, values, strict=True)]

    def keep(self, info: RuntimeInfo, rows: Sequence[tuple[KeptKey, float, OneRow]], counted: Counted) -> None:
        """A moment later."""
        for key, made_unix_s, row in rows:
            packed, name = pack_kept(key, made_unix_s, row), self._name(info, key)
            if packed is None:
                count_outcome(counted, "unsupported")
                continue

            def command(redis: Any, name: str = name, packed: bytes = packed) -> object:
                return redis.set(name, packed, ex=self._kept_s)

            def settle(result: Any) -> None:
                count_outcome(counted, "failed" if isinstance(result, Exception) else "kept")

            if not self._calls.put(command, settle):
                count_outcome(counted, "dropped")

    def close(self) -> None:
        """The calls are closed by who made them."""

    def _name(self, info: RuntimeInfo, key: KeptKey) -> str:
        return self._followed.place.key("kept", kept_version(info), f"{key.place:016x}")


def _stored(table: OpenRedis, key: bytes, value: bytes | None) -> Looked:
    if value is None:
        return None
    try:
        record = unpack_record(value)
    except Broken as error:
        return error
    if record.key != key:
        return Broken("a precomputed row is stored under the wrong key: load the answers again")
    return Stored(record, table.generation)


def _kept(key: KeptKey, value: bytes | None) -> KeptRow | None:
    if not isinstance(value, bytes):
        return None
    try:
        row = unpack_kept(value)
    except Broken:  # it is computed again
        return None
    return row if row.key == key else None
