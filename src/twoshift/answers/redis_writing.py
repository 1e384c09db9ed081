"""A generation in Redis: its rows first, then a pointer to them. What a killed load leaves expires by itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import msgspec

from twoshift.answers.generations import Generation
from twoshift.answers.keys import LONGEST_KEY_BYTES
from twoshift.answers.records import pack_record
from twoshift.answers.redis_place import RedisPlace, redis_package, redis_reason
from twoshift.answers.writing import LENGTH_BITS, SUPERSEDED, CountedRows
from twoshift.errors import Broken, TryLater

__all__ = ["RedisTables", "RedisWriter", "read_current"]

_CHUNK_ROWS, _CHUNK_BYTES = 2_000, 4 << 20
_UNFINISHED_S = 900  # that rows without a pointer live, from the last that was added
_HISTORY = 1_000
_TIMEOUT_S, _DELAY_S = 30.0, 60.0


class RedisWriter(CountedRows):
    """Rows in; memory holds a few thousand of them."""

    def __init__(self, client: Any, rows_key: str) -> None:
        super().__init__()
        self._client, self._rows_key = client, rows_key
        self._chunk, self._chunk_bytes, self._given = dict[bytes, bytes](), 0, 0

    def add(self, rows: Iterable[tuple[bytes, bytes]], made_unix_s: float) -> None:
        """Keys and values, made at that time: of two rows with one key the one that is added later wins."""
        for key, values in rows:
            record = pack_record(key, made_unix_s, values)
            if len(record) >> LENGTH_BITS or len(key) > LONGEST_KEY_BYTES:
                self.left_out["too large"] += 1
                continue
            self._chunk[key] = record
            self._chunk_bytes += len(record)
            self._given += 1
            if len(self._chunk) >= _CHUNK_ROWS or self._chunk_bytes >= _CHUNK_BYTES:
                self.flush()
            self._date(made_unix_s)

    def flush(self) -> None:
        """What is in memory."""
        if not self._chunk:
            return
        with self._client.pipeline(transaction=False) as both:
            both.hset(self._rows_key, mapping=self._chunk)
            both.expire(self._rows_key, _UNFINISHED_S)
            new = int(both.execute()[0])
        self.rows += new
        if (superseded := self._given - new) > 0:
            self.left_out[SUPERSEDED] += superseded
        self._chunk, self._chunk_bytes, self._given = {}, 0, 0


class RedisTables:
    """A place that all servers share."""

    def __init__(self, place: RedisPlace) -> None:
        self._place = place

    def is_switched(self, name: str) -> bool:
        """Whether a generation is or was the current one; raises TryLater."""
        redis = redis_package(self._place.url)
        with closing(self._place.connect(_TIMEOUT_S)) as client:
            try:
                return name.encode() in client.lrange(self._place.key("history"), 0, _HISTORY)
            except redis.RedisError as error:
                raise TryLater(
                    f"Redis at {self._place.url} does not answer: {redis_reason(error)}", _DELAY_S
                ) from error

    def commit(self, asked: Generation, fill: Callable[[RedisWriter], None]) -> Generation:
        """Load it and make it the current one, once; raises TryLater where Redis fails."""
        return _commit(self._place, asked, fill)


def _commit(place: RedisPlace, asked: Generation, fill: Callable[[RedisWriter], None]) -> Generation:
    """The generation of that name, current from now on; `fill` adds the rows. Raises TryLater where Redis fails."""
    redis, began_s = redis_package(place.url), time.monotonic()
    rows_key = place.key("rows", asked.name, uuid.uuid4().hex[:8])
    with closing(place.connect(_TIMEOUT_S)) as client:
        try:
            before = read_current(client, place)
            if before is not None and before.name == asked.name:
                return before
            writer = RedisWriter(client, rows_key)
            fill(writer)
            writer.flush()
            made = msgspec.structs.replace(
                asked,
                **writer.facts(),
                files={rows_key: writer.rows},
                build_s=time.monotonic() - began_s,
            )
            _switch(client, place, made, before)
        except redis.RedisError as error:
            raise TryLater(
                f"Redis at {place.url} does not accept the answers: {redis_reason(error)}", _DELAY_S
            ) from error
    return made


def read_current(client: Any, place: RedisPlace) -> Generation | None:
    """Raises what the client does, and Broken where it cannot be read."""
    found = client.get(place.key("current"))
    try:
        return None if found is None else msgspec.json.decode(found, type=Generation)
    except msgspec.DecodeError as error:
        what = f"the key {place.key('current')} in Redis at {place.url} is not a manifest of answers ({error})"
        raise Broken(f"{what}: delete the key, and load the answers again with `twoshift load`") from error


def _switch(client: Any, place: RedisPlace, made: Generation, before: Generation | None) -> None:
    """All of it at one moment; raises Broken where the rows are gone already."""
    (rows_key,) = made.files
    with client.pipeline(transaction=True) as at_once:
        at_once.hlen(rows_key)
        at_once.persist(rows_key)
        at_once.set(place.key("current"), msgspec.json.encode(made))
        at_once.lpush(place.key("history"), made.name)
        at_once.ltrim(place.key("history"), 0, _HISTORY - 1)
        for replaced in () if before is None else before.files:
            at_once.unlink(replaced)  # and no expiry: that would hold up Redis while it frees millions of rows
        there = int(at_once.execute()[0])
    if there != made.rows:
        raise Broken(
            f"Redis at {place.url} has only {there:,} of {made.rows:,} rows: raise `maxmemory` of Redis, and load the "
            "answers again"
        )
