"""One suite for every store of jobs; PostgreSQL is a real one, started here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")


from twoshift.errors import InvalidInput, NotFound, TryLater
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.types import JobKindName, JobState

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/some/folder/state.db"
    return request.getfixturevalue("postgres").url()


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], SqlJobs]]:
    made: list[SqlJobs] = []

    def open_() -> SqlJobs:
        made.append(SqlJobs(Database(url), clock=lambda: 5.0))
        return made[-1]

    yield open_
    for each in made:
        each.close()


def job(name: str, state: JobState = JobState.QUEUED) -> JobRecord:
    return JobRecord(name, {"inputs": ["a"], "model": "m"}, state, 1.0, 1.0)


def test_a_job_comes_back_as_it_was_given_also_to_who_opens_it_anew(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    assert store.add(job("a"))
    assert opened().get("a") == job("a")
    with pytest.raises(NotFound, match="id of an existing job"):
        store.get("b")


def test_an_id_is_taken_once(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    assert store.add(job("a"))
    assert not store.add(job("a", JobState.DONE))
    assert store.get("a").state is JobState.QUEUED
    assert store.add(job("b"))  # and the store goes on


def test_a_state_changes_only_from_one_that_is_expected(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    store.add(job("a"))
    assert store.move("a", JobMove.BEGIN, "begun")
    assert not store.move("a", JobMove.RESUME)
    found = store.get("a")
    assert (found.state, found.reason, found.updated_unix_s) == (JobState.RUNNING, "begun", 5.0)
    assert not store.move("none", JobMove.BEGIN)


def test_of_many_that_want_the_same_change_one_makes_it(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    store.add(job("a"))
    made: list[bool] = []

    def claim() -> None:
        made.append(store.move("a", JobMove.BEGIN))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]


def test_the_newest_come_first_in_pages_and_unfinished_ones_oldest_first(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    for name, state in (("a", JobState.DONE), ("b", JobState.PAUSED), ("c", JobState.QUEUED), ("d", JobState.FAILED)):
        store.add(job(name, state))
    assert [each.id for each in store.list(2)] == ["d", "c"]
    assert [each.id for each in store.list(2, after="c")] == ["b", "a"]
    assert [each.id for each in store.unfinished()] == ["b", "c"]


def waits(name: str, owner: str, due_unix_s: float | None = None, state: JobState = JobState.QUEUED) -> JobRecord:
    return JobRecord(name, {"output": f"out/{name}/"}, state, 1.0, 1.0, owner=owner, due_unix_s=due_unix_s)


def test_of_each_owner_those_whose_windows_end_first_are_next(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    for each in (
        waits("no-window", "red"), waits("late", "red", 9.0), waits("over", "red", 1.0, JobState.DONE),
        waits("soon", "red", 2.0), waits("paused", "red", 1.0, JobState.PAUSED), waits("begun", "red", 1.0),
        waits("said-to-run", "blue", None, JobState.RUNNING), waits("as-late", "red", 9.0),
    ):  # fmt: skip
        store.add(each)
    assert [each.id for each in store.waiting(2, ["begun"])] == ["late", "soon", "said-to-run"]
    every = store.waiting(9)
    assert [each.id for each in every] == ["no-window", "late", "soon", "begun", "said-to-run", "as-late"]
    assert [each.due_unix_s for each in every] == [None, 9.0, 2.0, 1.0, None, 9.0]
    assert store.overdue() == 3  # at 5.0: soon, paused and begun


def test_all_queued_jobs_of_an_owner_say_why_they_wait(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    for each in (
        waits("a", "red"), waits("b", "red"), waits("later", "red"), waits("c", "blue"),
        waits("runs", "red", None, JobState.RUNNING),
    ):  # fmt: skip
        store.add(each)
    store.wait_for("red", "others run", ["later"])
    assert {each.id: each.reason for each in store.unfinished()} == {
        "a": "others run", "b": "others run", "later": "", "c": "", "runs": "",
    }  # fmt: skip


def test_a_folder_is_of_the_one_job_that_is_not_over(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    store.add(waits("a", "red", None, JobState.DONE))
    assert store.of_output("out/a") is None
    store.add(waits("b", "red"))
    assert [store.of_output(name) for name in ("out/b", "out/b/", "out/bb")] == [store.get("b"), store.get("b"), None]
    assert (store.open_jobs("red"), store.open_jobs("blue")) == (1, 0)


def test_streams_are_apart_from_jobs_and_no_folder_is_of_both(opened: Callable[[], SqlJobs], url: str) -> None:
    store, streams = opened(), SqlJobs(Database(url), kinds=(JobKindName.STREAM,))
    store.add(job("a"))
    streams.add(JobRecord("s", {"output": "/out"}, JobState.QUEUED, 1.0, 1.0, kind=JobKindName.STREAM))
    try:
        for each, own, other in ((store, "a", "s"), (streams, "s", "a")):
            assert [found.id for found in each.list()] == [own]
            assert [found.id for found in each.unfinished()] == [own]
            assert [found.id for found in each.waiting(5)] == [own]
            with pytest.raises(NotFound):
                each.get(other)
        found = store.of_output("/out/")
        assert found is not None
        assert (found.id, found.kind) == ("s", JobKindName.STREAM)
        assert store.open_jobs("") == 2
    finally:
        streams.close()


def test_the_progress_of_several_is_told_at_once(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    for name in "abc":
        store.add(job(name))
    store.progressed({"a": {"rows": 1}, "b": {"rows": 2}})
    store.progressed({})
    assert [each.progress for each in store.unfinished()] == [{"rows": 1}, {"rows": 2}, None]


def test_progress_and_the_log_are_kept(opened: Callable[[], SqlJobs]) -> None:
    store = opened()
    store.add(job("a"))
    store.progressed({"a": {"rows": 3}})
    for text in ("first", "second", "third"):
        store.note("a", text)
    assert store.get("a").progress == {"rows": 3}
    assert store.notes("a", 2) == [(5.0, "second"), (5.0, "third")]


@pytest.mark.parametrize("url", ["nonsense", "mysql://a/b", "sqlite://", "sqlite:///:memory:"], indirect=False)
def test_a_url_that_cannot_be_used_is_told(url: str) -> None:
    with pytest.raises(InvalidInput, match="database"):
        Database(url)


def test_a_database_that_does_not_answer_is_for_later_and_its_password_is_not_shown() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(TryLater, match="does not answer") as told:
        Database("postgresql://user:secret@127.0.0.1:1/none")
    assert "secret" not in str(told.value)
