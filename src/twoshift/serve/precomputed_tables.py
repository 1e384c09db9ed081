"""The stores of precomputed answers that a server follows, by deployment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twoshift.answers.following import BlobsFor, BuildTable, FollowedAnswers, OpenAnswers
from twoshift.answers.generations import Generation
from twoshift.answers.kept_rows import KeptRow, version_id
from twoshift.answers.reading import NotCached
from twoshift.answers.redis_following import FollowedRedis
from twoshift.answers.redis_place import is_redis
from twoshift.config import home
from twoshift.errors import Broken
from twoshift.ports import RuntimeInfo
from twoshift.serve.keyed import Rules
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.precomputed import Precomputed, Stored, other_version
from twoshift.serve.precomputed_settings import max_age_s
from twoshift.serve.redis_answers import RedisCalls, RedisKept, RedisStore
from twoshift.serve.write_back import WriteBack
from twoshift.serve.written_logs import WrittenLogs

__all__ = ["PrecomputedTables", "TableStore"]

Close = Callable[[], None]


class TableStore:
    """An AnswerStore: a table on this machine's disk."""

    def __init__(self, followed: FollowedAnswers) -> None:
        self.followed = followed

    def generation(self) -> Generation | None:
        """What is open now."""
        found = self.followed.now()
        return None if found is None else found.generation

    @property
    def why_none(self) -> str:
        """Why nothing is open."""
        return self.followed.why_none

    async def find(self, keys: Sequence[bytes | None], info: RuntimeInfo) -> Sequence[Stored | Broken | None]:
        """At once where the disk has not to be asked; else in a thread."""
        table = self.followed.now()  # held to the end: it may be replaced meanwhile
        if table is None:
            return [None] * len(keys)
        try:
            return _found(table, keys, may_wait=False)
        except NotCached:
            return await asyncio.to_thread(_found, table, keys, may_wait=True)


def _found(table: OpenAnswers, keys: Sequence[bytes | None], may_wait: bool) -> list[Stored | Broken | None]:
    return [None if key is None else _one(table, key, may_wait) for key in keys]


def _one(table: OpenAnswers, key: bytes, may_wait: bool) -> Stored | Broken | None:
    try:
        record = table.table.find(key, may_wait)
    except Broken as error:
        return error
    return None if record is None else Stored(record, table.generation)


class _Followed(NamedTuple):
    settings: ModelSettings
    followed: FollowedAnswers | FollowedRedis
    answers: Precomputed
    close_calls: Close

    def close(self) -> None:
        """What was to be kept is."""
        self.answers.close()
        self.close_calls()
        self.followed.close()


class PrecomputedTables:
    """Each is followed from when its deployment first names it until it is named no more."""

    def __init__(self, blobs_for: BlobsFor, build: BuildTable | None = None) -> None:
        """`build` makes the table of an output folder that has none; None: another process does."""
        self._blobs_for, self._build = blobs_for, build
        self._tables: dict[str, _Followed] = {}
        self._lock = threading.Lock()  # guards changes of it

    def follow(self, deployment: str, settings: ModelSettings | None) -> bool:
        """As these settings have it from now on; whether the deployment has precomputed answers."""
        wanted = settings is not None and settings.precomputed is not None
        with self._lock:
            before = self._tables.get(deployment)
            if before is not None and wanted and _same(before.settings, settings):
                return True
            if not wanted:
                self._tables.pop(deployment, None)
            else:
                assert settings is not None  # noqa: S101 - it is wanted
                assert settings.precomputed is not None  # noqa: S101 - the same
                assert settings.key is not None  # noqa: S101 - the settings are checked
                rules = Rules(settings.key, max_age_s(settings), settings.on_miss == "live")
                made = (
                    self._in_redis(settings, rules)
                    if is_redis(settings.precomputed)
                    else self._on_disk(settings, rules)
                )
                self._tables[deployment] = _Followed(settings, *made)
                made[0].start()
        if before is not None:
            before.close()
        return wanted

    def of(self, deployment: str) -> Precomputed | None:
        """None where it has none."""
        found = self._tables.get(deployment)
        return None if found is None else found.answers

    def close(self) -> None:
        """No more look-ups."""
        for name in [*self._tables]:
            self.follow(name, None)

    def _on_disk(self, settings: ModelSettings, rules: Rules) -> tuple[FollowedAnswers, Precomputed, Close]:
        followed = FollowedAnswers(settings.precomputed or "", rules.key, self._blobs_for, self._build)
        kept = WriteBack(rules, _written_logs(settings, rules, followed)) if settings.write_back else None
        return followed, Precomputed(rules, TableStore(followed), write_back=kept), lambda: None

    def _in_redis(self, settings: ModelSettings, rules: Rules) -> tuple[FollowedRedis, Precomputed, Close]:
        followed = FollowedRedis(settings.precomputed or "", rules.key)
        calls = RedisCalls(followed)
        kept = WriteBack(rules, RedisKept(followed, calls, rules)) if settings.write_back else None
        return followed, Precomputed(rules, RedisStore(followed, calls), write_back=kept), calls.close

    def metrics(self) -> Iterator[tuple[str, str, str, tuple[str, ...], Sequence[tuple[Any, ...]]]]:
        """As `MoreMetrics` has it."""
        seen = [(name, each.followed, each.followed.now()) for name, each in self._tables.items()]
        label = ("model",)
        keys = [(name, 0 if now is None else now.generation.rows) for name, _, now in seen]
        yield "gauge", "precomputed_keys", "Keys with a precomputed answer.", label, keys
        superseded = [(name, 0 if now is None else now.generation.superseded) for name, _, now in seen]
        about = "Rows that were replaced by a later row with the same key."
        yield "gauge", "precomputed_superseded_rows", about, label, superseded
        made = [(name, now.generation.newest_unix_s) for name, _, now in seen if now is not None]
        about = "When the newest precomputed answer was made, in Unix seconds."
        yield "gauge", "precomputed_newest_timestamp_seconds", about, label, made
        swaps = [(name, each.counts.swaps) for name, each, _ in seen]
        yield (
            "counter",
            "precomputed_swaps",
            "Number of times that a table of precomputed answers was opened.",
            label,
            swaps,
        )
        problems = [(name, each.counts.problems) for name, each, _ in seen]
        about = "Checks that found the table of precomputed answers missing, incomplete or damaged."
        yield "counter", "precomputed_problems", about, label, problems


def _written_logs(settings: ModelSettings, rules: Rules, followed: FollowedAnswers) -> WrittenLogs:
    """In the home of this machine's servers: the job's output is not theirs to write to, and may be a bucket."""
    place = followed.location if "://" in followed.location else str(Path(followed.location).absolute())
    folder = home() / "answers" / "written" / version_id(place, rules.key)

    def keeps(info: RuntimeInfo, row: KeptRow) -> bool:
        """What is neither too old nor in the table."""
        if rules.max_age_s is not None and row.made_unix_s < time.time() - rules.max_age_s:
            return False
        table = followed.now()
        if table is None or other_version(table.generation, info):
            return True
        try:
            found = table.table.find(row.key.key)
        except Broken:
            return True
        return found is None or found.made_unix_s < row.made_unix_s

    return WrittenLogs(folder, int(settings.write_back_size), keeps, lambda: followed.counts.swaps)


def _same(before: ModelSettings, now: ModelSettings | None) -> bool:
    names = ("precomputed", "key", "max_age", "on_miss", "write_back", "write_back_size")
    return now is not None and all(getattr(before, name) == getattr(now, name) for name in names)
