"""Databases that are restarted, fall silent or are another server's by now."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("psycopg")

from real_postgres import RealPostgres, Relay

from twoshift.errors import Elsewhere, TryLater
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.store import claim as claims
from twoshift.store import database as databases
from twoshift.store import postgres as postgreses
from twoshift.store.claim import SqlClaim
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.types import JobState
from waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    return request.getfixturevalue("postgres").url()


@pytest.fixture
def relay(postgres: RealPostgres) -> Iterator[Relay]:
    made = postgres.relay(postgres.url())
    yield made
    made.end()


@pytest.fixture
def opened() -> Iterator[Callable[[str], Database]]:
    made: list[Database] = []

    def open_(url: str) -> Database:
        made.append(Database(url))
        return made[-1]

    yield open_
    for each in made:
        each.close()


@pytest.fixture
def claimed(opened: Callable[[str], Database]) -> Iterator[Callable[[str], SqlClaim]]:
    made: list[SqlClaim] = []

    def claim(url: str) -> SqlClaim:
        made.append(SqlClaim(opened(url)))
        return made[-1]

    yield claim
    for each in made:
        each.release()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgreses, "_ANSWER_S", 0.5)
    monkeypatch.setattr(databases, "_PATIENCE_S", 1.0)


def job(name: str) -> JobRecord:
    return JobRecord(name, {"inputs": ["a"], "model": "m"}, JobState.QUEUED, 1.0, 1.0)


def test_a_store_goes_on_after_its_database_was_restarted(
    postgres: RealPostgres, opened: Callable[[str], Database]
) -> None:
    store = SqlJobs(opened(postgres.url()))
    store.add(job("a"))
    for move in (JobMove.BEGIN, JobMove.FINISH):
        postgres.restart()
        assert store.move("a", move)
        postgres.restart()
        assert store.get("a").state is move.after


def test_a_change_waits_for_a_database_that_is_down_just_now(
    postgres: RealPostgres, relay: Relay, opened: Callable[[str], Database]
) -> None:
    store = SqlJobs(opened(relay.url))
    store.add(job("a"))
    relay.fall_silent()
    threading.Timer(1.0, relay.speak).start()
    assert store.move("a", JobMove.BEGIN)


def test_a_restart_takes_the_claim_from_nobody(postgres: RealPostgres, claimed: Callable[[str], SqlClaim]) -> None:
    url = postgres.url()
    ours, others = claimed(url), claimed(url)
    assert ours.take()
    postgres.restart()
    assert not others.take()
    assert "process" in others.told
    assert ours.renew()


def test_one_has_the_claim_until_it_lets_it_go(url: str, claimed: Callable[[str], SqlClaim]) -> None:
    ours, others = claimed(url), claimed(url)
    assert ours.take()
    assert not others.take()
    ours.release()
    assert others.take()
    assert not ours.renew()


def test_of_many_that_want_the_claim_one_gets_it(url: str, claimed: Callable[[str], SqlClaim]) -> None:
    wanting = [claimed(url) for _ in range(6)]
    got: list[bool] = []
    threads = [threading.Thread(target=lambda each=each: got.append(each.take())) for each in wanting]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 5 + [True]


def test_who_was_silent_for_long_loses_the_claim_and_can_change_nothing_any_more(
    postgres: RealPostgres, opened: Callable[[str], Database], claimed: Callable[[str], SqlClaim]
) -> None:
    url = postgres.url()
    ours, others = claimed(url), claimed(url)
    store, taken = SqlJobs(opened(url), claim=ours), SqlJobs(opened(url), claim=others)
    assert ours.take()
    store.add(job("a"))
    postgres.execute("UPDATE claims SET seen_unix_s = seen_unix_s - 60", url)
    assert others.take()
    for change in (
        lambda: store.move("a", JobMove.CANCEL),
        lambda: store.progressed({"a": {}}),
        lambda: store.note("a", "text"),
        lambda: store.add(job("b")),
    ):
        with pytest.raises(Elsewhere, match="runs the jobs of"):
            change()
    assert taken.move("a", JobMove.BEGIN)
    assert store.get("a").state is JobState.RUNNING
    assert not ours.renew()
    assert not ours.take()


def test_the_claim_of_a_process_that_is_no_more_is_free_at_once(
    postgres: RealPostgres, claimed: Callable[[str], SqlClaim]
) -> None:
    url = postgres.url()
    told = f"""
from twoshift.store.claim import SqlClaim
from twoshift.store.database import Database
import os
assert SqlClaim(Database({url!r})).take()
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", told], check=True, timeout=120)
    assert claimed(url).take()


def test_who_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgreses._PARAMS, "connect_timeout", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TryLater, match="does not answer"):
        Database(f"postgresql://a:b@127.0.0.1:{silent.getsockname()[1]}/c")


@pytest.mark.usefixtures("hurried")
def test_a_database_that_falls_silent_is_given_up_and_found_again(
    relay: Relay, opened: Callable[[str], Database]
) -> None:
    store = SqlJobs(opened(relay.url))
    store.add(job("a"))
    relay.fall_silent()
    with pytest.raises(TryLater, match="does not answer"):
        store.get("a")
    relay.speak()
    assert store.get("a") == job("a")


def test_nobody_waits_for_an_answer_once_it_is_closed(
    relay: Relay, opened: Callable[[str], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgreses, "_ANSWER_S", 600.0)
    database = opened(relay.url)
    store = SqlJobs(database)
    store.add(job("a"))
    relay.fall_silent()
    told: list[BaseException] = []

    def ask() -> None:
        try:
            store.get("a")
        except TryLater as error:
            told.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: relay.held_bytes)
    database.close()
    asking.join(60.0)  # it would wait for ten minutes
    assert len(told) == 1


def test_a_claim_lasts_longer_than_its_owner_may_have_to_wait_for_a_word() -> None:
    longest_s = postgreses._CONNECT_S + postgreses._ANSWER_S + databases._PATIENCE_S
    assert longest_s < claims._LASTS_S
