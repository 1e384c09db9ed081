"""Answers that servers share in a real Redis: loaded at one moment, followed, and done without where it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from real_redis import RealRedis

from twoshift.answers.generations import Generation
from twoshift.answers.keys import KeyKind
from twoshift.answers.layout import ColumnLayout
from twoshift.answers.redis_following import FollowedRedis
from twoshift.answers.redis_place import PASSWORD, redis_place
from twoshift.answers.redis_writing import RedisTables
from twoshift.answers.writing import SUPERSEDED
from twoshift.engine import RowResult
from twoshift.errors import InvalidInput, TryLater
from twoshift.ports import RuntimeInfo
from twoshift.serve.keyed import Asked, RequestKeys, Rules
from twoshift.serve.metrics import ModelMetrics
from twoshift.serve.model import Answer
from twoshift.serve.precomputed import Precomputed
from twoshift.serve.redis_answers import RedisCalls, RedisKept, RedisStore
from twoshift.serve.stages import Stages
from twoshift.serve.write_back import WriteBack
from waiting import until

INFO = RuntimeInfo("m", "sha256:1", "python", "cpu", "fp32", 128, ("score",))
NOW_S = 1_000_000.0
_names = itertools.count()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRedis]:
    with RealRedis(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
def place(redis: RealRedis) -> str:
    """A name of the test's own."""
    return redis.place(f"docs-{next(_names)}")


def asked(name: str, **changes: Any) -> Generation:
    usual: dict[str, Any] = {
        "name": name, "key": "id", "kind": KeyKind.TEXT, "columns": (ColumnLayout("score", "<f8"),), "model": "m",
        "checksum": "sha256:1", "precision": "fp32", "too_long": "cut", "prompt_name": None, "text": None,
        "output": "out",
    }  # fmt: skip
    return Generation(**{**usual, **changes})


def load(place: str, name: str, *rows: dict[str, float], made_unix_s: float = NOW_S - 10, **changes: Any) -> Generation:
    """Parts one after the other."""

    def fill(writer: Any) -> None:
        for part in rows:
            writer.add([(key.encode(), np.float64(value).tobytes()) for key, value in part.items()], made_unix_s)

    return RedisTables(redis_place(place, "answer_table")).commit(asked(name, **changes), fill)


class Server:
    """One of several that share it; it looks when it is told to."""

    def __init__(self, place: str, **rules: Any) -> None:
        self.followed, made = FollowedRedis(place, "id"), Rules("id", **rules)
        self._calls = RedisCalls(self.followed)
        kept = WriteBack(made, RedisKept(self.followed, self._calls, made))
        self.answers = Precomputed(made, RedisStore(self.followed, self._calls), lambda: NOW_S, kept)
        self.metrics, self.info, self.computed = ModelMetrics(), INFO, list[Any]()
        self.followed.look()

    async def answer(self, _model: Any, rows: Any, *_more: Any) -> Answer:
        self.computed += rows
        values = {"score": np.array([float(each) for each in rows])}
        return Answer([RowResult(values, at, 0.0, 1) for at in range(len(rows))], 5, 0, Stages())

    def inside(self, *_: Any) -> Any:
        return contextlib.nullcontext(SimpleNamespace(version="1"))

    @property
    def model(self) -> Any:
        return SimpleNamespace(name="m", info=self.info, metrics=self.metrics)

    def ask(self, *keys: str) -> tuple[list[float], str]:
        request = Asked([0.5] * len(keys), RequestKeys(list(keys), "keys[{}]"), None, 0.0)
        answer = asyncio.run(self.answers.answer(self, self.model, request))  # type: ignore[arg-type]
        return [float(row["score"]) for row in answer.rows], answer.source

    def end(self) -> None:
        self.answers.close()
        self._calls.close()
        self.followed.close()


@pytest.fixture
def server(place: str) -> Iterator[Server]:
    made = Server(place)
    yield made
    made.end()


def test_a_jobs_answers_are_found_by_every_server_and_the_newest_row_of_a_key_wins(place: str, server: Server) -> None:
    made = load(place, "g1", {"a": 1.0, "é\U0001f98a ": 2.0, "b": 3.0}, {"a": 4.0})
    assert (made.rows, made.left_out) == (3, {SUPERSEDED: 1})
    other = Server(place)
    for each in (server, other):
        each.followed.look()
        assert each.ask("a", "é\U0001f98a ", "b") == ([4.0, 2.0, 3.0], "precomputed")
    other.end()


def test_a_new_run_replaces_all_of_it_and_rows_that_were_replaced_go(
    place: str, server: Server, redis: RealRedis
) -> None:
    before = load(place, "g1", {"a": 1.0, "b": 1.0})
    server.followed.look()
    load(place, "g2", {"a": 2.0})
    looked = asyncio.run(server.answers.look_up(RequestKeys(["a", "b"], "keys[{}]"), None, server.model))
    assert [each.found for each in looked] == ["hit", "miss"]  # of the new run, though it had not looked yet
    assert server.ask("a", "b") == ([2.0, 0.5], "mixed")
    assert not redis.client().exists(*before.files)
    assert server.followed.counts.swaps == 2


def test_a_redis_that_refuses_a_look_up_is_told_once_and_answers_are_computed(
    place: str, server: Server, redis: RealRedis, caplog: pytest.LogCaptureFixture
) -> None:
    (rows,) = load(place, "g1", {"a": 1.0}).files
    server.followed.look()
    redis.client().delete(rows)
    redis.client().set(rows, "no hash")
    for _ in range(2):
        assert server.ask("a")[0] == [0.5]
    assert sum("refuses a look-up: WRONGTYPE" in each for each in caplog.messages) == 1


def test_the_same_job_is_loaded_once_and_an_older_one_is_known_as_done(place: str) -> None:
    first = load(place, "g1", {"a": 1.0})
    assert load(place, "g1", {"a": 5.0}) == first
    load(place, "g2", {"a": 2.0})
    tables = RedisTables(redis_place(place, "answer_table"))
    assert (tables.is_switched("g1"), tables.is_switched("g2"), tables.is_switched("g3")) == (True, True, False)


def test_a_load_that_is_killed_is_not_served_and_expires(place: str, server: Server, redis: RealRedis) -> None:
    load(place, "g1", {"a": 1.0})

    def fill(writer: Any) -> None:
        writer.add([(b"a", np.float64(9.0).tobytes())], NOW_S)
        writer.flush()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RedisTables(redis_place(place, "answer_table")).commit(asked("g2"), fill)
    server.followed.look()
    assert server.ask("a") == ([1.0], "precomputed")
    left = list(redis.client().keys(f"*{place.partition('#')[2]}:rows:g2*"))
    assert len(left) == 1
    assert redis.client().ttl(left[0]) > 0


@pytest.mark.parametrize(
    ("changes", "found"),
    [({"checksum": "sha256:2"}, "wrong_version"), ({"precision": "int8"}, "wrong_version"),
     ({"made_unix_s": NOW_S - 6}, "stale")],
)  # fmt: skip
def test_rows_of_another_version_or_that_are_too_old_are_computed(
    place: str, changes: dict[str, Any], found: str
) -> None:
    load(place, "g1", {"a": 1.0}, **changes)
    server = Server(place, max_age_s=5.0)
    assert server.ask("a") == ([0.5], "live")
    assert server.metrics.looked_up == {found: 1}
    server.end()


def test_what_one_server_has_computed_another_one_has_too_and_no_other_version(place: str, server: Server) -> None:
    load(place, "g1", {"a": 1.0})
    other = Server(place)
    server.followed.look()
    assert server.ask("new") == ([0.5], "live")
    until(lambda: other.ask("new")[1] == "precomputed")
    assert server.metrics.written_back == {"kept": 1}
    other.info = RuntimeInfo("m", "sha256:2", "python", "cpu", "fp32", 128, ("score",))
    other.computed.clear()
    assert other.ask("new") == ([0.5], "live")
    assert len(other.computed) == 1
    other.end()


def test_damaged_rows_are_computed(place: str, server: Server, redis: RealRedis) -> None:
    made = load(place, "g1", {"a": 1.0})
    redis.client().hset(next(iter(made.files)), "a", b"no row")
    server.followed.look()
    assert server.ask("a") == ([0.5], "live")
    assert server.metrics.looked_up == {"damaged": 1}


def test_rows_or_a_manifest_that_are_gone_are_told(
    place: str, server: Server, redis: RealRedis, caplog: pytest.LogCaptureFixture
) -> None:
    made, current = load(place, "g1", {"a": 1.0}), redis_place(place, "x").key("current")
    server.followed.look()
    redis.client().delete(*made.files)
    server.followed.look()
    assert (server.followed.now(), "evicted" in caplog.text) == (None, True)
    redis.client().set(current, b"{}")
    server.followed.look()
    assert "not a manifest" in caplog.text
    redis.client().delete(current)
    server.followed.look()
    assert "no longer served" in server.followed.why_none
    assert server.ask("a") == ([0.5], "live")


@pytest.mark.parametrize("harm", ["kill", "freeze"])
def test_a_redis_that_is_gone_costs_live_answers_a_line_in_the_log_and_nothing_else(
    redis: RealRedis, place: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twoshift.answers")
    load(place, "g1", {"a": 1.0})
    server, strict = Server(place), Server(place, computes_missing=False)
    assert server.ask("a") == ([1.0], "precomputed")
    getattr(redis, harm)()
    try:
        for _ in range(3):
            assert server.ask("a") == ([0.5], "live")
        assert server.metrics.looked_up == {"hit": 1, "unavailable": 3}
        told = [each for each in caplog.messages if "does not answer" in each]
        assert len(told) == 1
        with pytest.raises(TryLater, match="does not answer"):
            strict.ask("a")
        with pytest.raises(TryLater, match="does not answer"):
            asyncio.run(server.answers.look_up(RequestKeys(["a"], "keys[{}]"), None, server.model))
        with pytest.raises(TryLater, match="does not"):
            load(place, "g2", {"a": 2.0}) if harm == "kill" else strict.ask("a")
    finally:
        redis.start() if harm == "kill" else redis.thaw()
    for each in (server, strict):
        until(lambda each=each: [each.followed.look(), each.ask("a")][1] == ([1.0], "precomputed"))
        each.end()
    assert any("answers again" in each for each in caplog.messages)


def test_a_server_that_starts_before_redis_says_why_it_computes(tmp_path: Path) -> None:
    with RealRedis(tmp_path) as redis:
        load(redis.place(), "g1", {"a": 1.0})
        redis.kill()
        server = Server(redis.place())
        assert server.ask("a") == ([0.5], "live")
        assert "does not answer" in server.followed.why_none
        redis.start()
        server.followed.look()
        assert server.ask("a") == ([1.0], "precomputed")
        server.end()


def test_many_look_ups_at_once_are_a_few_exchanges(place: str, server: Server) -> None:
    load(place, "g1", {f"k{number}": float(number) for number in range(300)})
    server.followed.look()

    async def all_of_them() -> list[Any]:
        keys = [RequestKeys([f"k{number}"], "keys[{}]") for number in range(300)]
        return await asyncio.gather(*(server.answers.look_up(each, [0.5], server.model) for each in keys))

    found = asyncio.run(all_of_them())
    assert [float(each[0].row["score"]) for each in found] == [float(number) for number in range(300)]
    assert sum(each.name == "twoshift-redis" for each in threading.enumerate()) <= 2


def test_a_password_comes_from_the_environment_and_not_from_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=PASSWORD) as raised:
        redis_place("redis://user:secret@host/0", "precomputed")
    assert "secret" not in str(raised.value)
    with RealRedis(tmp_path, password="secret") as redis:  # noqa: S106
        with pytest.raises(TryLater, match=PASSWORD):
            load(redis.place(), "g1", {"a": 1.0})
        monkeypatch.setenv(PASSWORD, "secret")
        assert load(redis.place(), "g1", {"a": 1.0}).rows == 1


@pytest.mark.parametrize(
    "given", ["redis://", "redis://host/x", "redis://host:x/0", "redis://host/0?a=b", "redis://h/0#a b"]
)
def test_places_that_are_none_are_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="redis://host:6379/0#NAME"):
        redis_place(given, "precomputed")
