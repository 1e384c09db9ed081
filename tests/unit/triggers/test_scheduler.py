"""Schedules over a real store, with a clock and jobs of the test's own."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from servers import until

pytest.importorskip("sqlalchemy")

from twoshift.errors import Elsewhere, InvalidInput, NotFound, TryLater
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.store.schedules import SqlSchedules
from twoshift.trigger_ports import ScheduledRun
from twoshift.triggers.scheduler import Scheduler
from twoshift.triggers.spec import ScheduleSpec
from twoshift.types import JobState

pytestmark = pytest.mark.slow


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()


class Killed(Exception):
    """The process ends here."""


class World:
    """A database, jobs that run when told, and a clock; the scheduler may be started again."""

    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path}/state.db")
        self.jobs, self.store = SqlJobs(self.database), SqlSchedules(ClaimedDatabase(self.database))
        self.now_s = at("2026-01-01T10:00:30")
        self.marker: str | Exception | None = None
        self.submissions, self.told = list[tuple[str, str]](), list[tuple[Any, ...]]()
        self.fails: Exception | None = None
        self.fails_after = False
        self.is_ours = True
        self.scheduler = self.started()

    def started(self) -> Scheduler:
        self.scheduler = Scheduler(self.store, self, self.marker_at, self.tell, lambda: self.now_s)
        return self.scheduler

    def submit(self, data: dict[str, Any], owner: str = "", job_id: str | None = None) -> Any:
        if self.fails is not None and not self.fails_after:
            raise self.fails
        assert job_id is not None
        if self.jobs.add(JobRecord(job_id, data, JobState.QUEUED, self.now_s, self.now_s, owner=owner)):
            self.submissions.append((job_id, data["output"]))
        if self.fails is not None:
            raise self.fails

    def cancel(self, job_id: str) -> Any:
        if not self.jobs.move(job_id, JobMove.CANCEL):
            raise InvalidInput("job", job_id, "one that is not over")

    def check(self, data: dict[str, Any], owner: str = "") -> None:
        if data["model"] != "m":
            raise NotFound("model", data["model"], "m")

    def check_ours(self) -> None:
        if not self.is_ours:
            raise Elsewhere("another server", 1.0)

    def marker_at(self, location: str, owner: str) -> str | None:
        if "secret" in location:
            raise InvalidInput("after", location, "a location below /data")
        if isinstance(self.marker, Exception):
            raise self.marker
        return self.marker

    def tell(self, *given: Any) -> None:
        self.told.append(given)

    def add(self, name: str = "hourly", output: str = "out/{run}", owner: str = "", **more: Any) -> None:
        job = {"inputs": ["in"], "output": output, "model": "m"}
        given = {"cron": "0 * * * *"} | more
        self.scheduler.add(ScheduleSpec(**{"name": name, "job": job, **given}), owner)

    def turn(self, now: str | None = None) -> None:
        """Until all that was begun is done."""
        self.now_s = self.now_s if now is None else at(now)
        self.scheduler.turn()
        self.settle()
        self.scheduler.turn()
        self.settle()

    def settle(self) -> None:
        until(lambda: not (self.scheduler._runs._at_work or self.scheduler._markers._at_work))

    def history(self, name: str = "hourly") -> list[tuple[str, str]]:
        """Newest last."""
        return [(str(run.state), shown(run.due_unix_s)) for run in self.runs(name)]

    def runs(self, name: str = "hourly") -> Sequence[ScheduledRun]:
        return self.scheduler.history(name)[::-1]

    def end_jobs(self) -> None:
        for each in self.jobs.unfinished():
            self.jobs.move(each.id, JobMove.BEGIN)
            self.jobs.move(each.id, JobMove.FINISH)


def shown(at_s: float) -> str:
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC).strftime("%H:%M")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.database.close()


def test_it_fires_once_at_its_time(world: World) -> None:
    world.add()
    world.turn("2026-01-01T10:59:59")
    assert world.runs() == []
    for _ in range(3):
        world.turn("2026-01-01T11:00:00")
    world.turn("2026-01-01T11:00:59")
    assert world.history() == [("submitted", "11:00")]
    assert [output for _, output in world.submissions] == [f"out/20260101T110000Z-{world.runs()[0].id[-6:]}"]


def test_a_schedule_that_was_added_a_moment_ago_does_not_fire_for_times_before_it(world: World) -> None:
    world.add()
    world.turn("2026-01-01T10:00:40")
    assert world.runs() == []


@pytest.mark.parametrize(("missed", "first"), [("skip", ("missed", "14:00")), ("once", ("submitted", "14:00"))])
def test_what_a_server_that_was_down_has_missed(world: World, missed: str, first: tuple[str, str]) -> None:
    world.add(missed=missed)
    world.started()
    world.turn("2026-01-01T14:30:00")
    assert world.history() == [first]
    assert world.runs()[0].reason.startswith("missed runs: 4")
    world.end_jobs()
    world.turn("2026-01-01T15:00:01")
    assert world.history() == [first, ("submitted", "15:00")]


def test_a_clock_that_jumps_ahead_makes_no_storm(world: World) -> None:
    world.add(cron="* * * * *")
    world.turn("2027-01-01T10:00:30")
    assert len(world.runs()) == len(world.submissions) == 1
    assert "missed runs: 1,000 or more" in world.runs()[0].reason


def test_a_clock_that_is_put_back_fires_nothing_twice_and_goes_on_from_where_it_is(world: World) -> None:
    world.add()
    world.turn("2026-01-01T11:00:00.2")
    world.end_jobs()
    for now in ("2026-01-01T10:59:59.9", "2026-01-01T11:00:00.5", "2026-01-01T10:30:00", "2026-01-01T11:00:10"):
        world.turn(now)
        world.turn()
    assert world.history() == [("submitted", "11:00")]
    world.turn("2036-01-01T00:00:00")  # a clock that is wrong by years, for a moment
    world.end_jobs()
    world.turn("2026-01-01T11:59:59")
    world.turn("2026-01-01T12:00:05")
    assert world.history()[-1] == ("submitted", "12:00")


@pytest.mark.parametrize("after", [False, True])
def test_a_server_that_dies_between_deciding_and_settling_has_submitted_once_in_the_end(
    world: World, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world.add()
    world.fails, world.fails_after = Killed(), after
    world.turn("2026-01-01T11:00:00")
    assert world.history() == [("waiting", "11:00")]
    world.fails = None
    world.started()
    world.turn("2026-01-01T11:20:00")  # it was decided on in time
    assert world.history() == [("submitted", "11:00")]
    assert len(world.submissions) == 1


def test_a_store_that_does_not_answer_is_asked_again(world: World) -> None:
    world.add()
    world.fails = TryLater("the disk is full", 1.0)
    world.turn("2026-01-01T11:00:00")
    assert world.history() == [("waiting", "11:00")]
    world.fails = None
    world.turn()
    assert world.history() == [("submitted", "11:00")]


def test_a_job_that_cannot_be_submitted_is_told(world: World) -> None:
    world.add(owner="alice")
    world.fails = InvalidInput("inputs", "in", "a file that is there")
    world.turn("2026-01-01T11:00:00")
    assert world.history() == [("failed", "11:00")]
    assert "a file that is there" in world.runs()[0].reason
    assert world.told[0][:2] == ("alice", "schedule.failed")


def test_a_run_that_meets_the_last_one_is_skipped(world: World) -> None:
    world.add()
    world.turn("2026-01-01T11:00:00")
    world.turn("2026-01-01T12:00:00")
    assert world.history() == [("submitted", "11:00"), ("skipped", "12:00")]
    assert "was still running" in world.runs()[1].reason
    world.end_jobs()
    world.turn("2026-01-01T13:00:00")
    assert world.history()[-1] == ("submitted", "13:00")


def test_or_waits_for_it(world: World) -> None:
    world.add(overlap="queue")
    for hour in (11, 12, 13):
        world.turn(f"2026-01-01T{hour}:00:00")
    assert world.history() == [("submitted", "11:00"), ("waiting", "12:00"), ("waiting", "13:00")]
    world.end_jobs()
    world.turn()
    assert world.history() == [("submitted", "11:00"), ("submitted", "12:00"), ("waiting", "13:00")]
    world.end_jobs()
    world.turn()
    assert world.history()[-1] == ("submitted", "13:00")


def test_or_has_it_cancelled(world: World) -> None:
    world.add(overlap="cancel")
    world.turn("2026-01-01T11:00:00")
    world.turn("2026-01-01T12:00:00")
    assert [run.job_state for run in world.runs()] == ["cancelled", "queued"]


def test_a_marker_fires_when_it_appears_and_whenever_it_is_replaced(world: World) -> None:
    world.add("loaded", cron=None, after="in/_SUCCESS", every="1s", overlap="queue")
    world.turn()
    assert world.runs("loaded") == []
    for marker, many in (("a", 1), ("a", 1), ("b", 2), (None, 2), ("b", 2), ("c", 3)):
        world.marker = marker
        world.scheduler._looked_s.clear()
        world.turn()
        world.end_jobs()
        assert len(world.runs("loaded")) == many
    world.started()
    world.turn()
    assert len(world.submissions) == 3


def test_a_marker_that_cannot_be_looked_at_is_shown_as_trouble_until_it_can(world: World) -> None:
    world.add("loaded", cron=None, after="in/_SUCCESS")
    for marker, problem in ((TryLater("no answer", 1.0), "no answer; try again in 1 s"), ("a", "")):
        world.marker = marker
        world.scheduler._looked_s.clear()
        world.turn()
        assert world.scheduler.get("loaded").problem == problem
    with pytest.raises(InvalidInput, match="below /data"):
        world.add("other", cron=None, after="/secret/_SUCCESS", output="other/{run}")


def test_while_it_is_paused_nothing_fires_and_nothing_is_missed(world: World) -> None:
    world.add(missed="once")
    assert world.scheduler.pause("hourly").is_paused
    assert world.scheduler.next_unix_s(world.scheduler.get("hourly")) is None
    world.turn("2026-01-01T12:00:10")
    world.now_s = at("2026-01-01T14:30:00")
    found = world.scheduler.resume("hourly")
    assert shown(world.scheduler.next_unix_s(found) or 0) == "15:00"
    world.turn("2026-01-01T14:40:00")
    assert world.runs() == []
    world.turn("2026-01-01T15:00:00")
    assert world.history() == [("submitted", "15:00")]


def test_one_that_is_asked_for_runs_at_once_and_no_folder_is_used_twice(world: World) -> None:
    world.add(output="out/{date}", cron="0 11 * * *")
    run = world.scheduler.run("hourly")
    assert (run.state, run.job_state, run.output) == ("submitted", "queued", "out/2026-01-01")
    world.end_jobs()
    world.turn("2026-01-01T11:00:00")
    assert world.history()[1] == ("failed", "11:00")
    assert f"another folder: the run {run.id} uses this folder" in world.runs()[1].reason


def test_two_schedules_are_told_apart(world: World) -> None:
    world.add()
    world.add()  # the very same is no other
    assert len(world.scheduler.list()) == 1
    with pytest.raises(InvalidInput, match="another name"):
        world.add(cron="5 * * * *")
    with pytest.raises(InvalidInput, match="the schedule hourly uses this folder"):
        world.add("second", cron="5 * * * *")
    with pytest.raises(NotFound, match="model"):
        world.scheduler.add(ScheduleSpec(name="x", cron="@daily", job={"output": "{run}", "inputs": "a", "model": "n"}))
    world.add(owner="bob", cron="7 * * * *")  # whose names are his own
    assert [each.owner for each in world.scheduler.list()] == ["", "bob"]
    assert [each.owner for each in world.scheduler.list("bob")] == ["bob"]
    with pytest.raises(NotFound):
        world.scheduler.get(world.scheduler.list("")[0].id, "bob")


def test_one_that_is_broken_does_not_hold_up_the_others(world: World) -> None:
    world.add("a", output="a/{run}", tz="Europe/Berlin")
    world.add()
    broken = world.scheduler.get("a")
    world.store.change(broken.id, spec=broken.spec | {"tz": "Mars/Phobos"})  # a zone that was known once
    world.turn("2026-01-01T11:00:00")
    assert world.history() == [("submitted", "11:00")]
    assert "a time zone such as" in world.scheduler.get("a").problem
    assert world.scheduler.next_unix_s(world.scheduler.get("a")) is None
    world.store.change(broken.id, spec=broken.spec)
    world.turn("2026-01-01T11:00:10")
    assert world.scheduler.get("a").problem == ""
    assert world.history("a") == [("submitted", "11:00")]


def test_a_schedule_that_was_removed_is_gone_and_may_come_again(world: World) -> None:
    world.add(output="out/{date}-{time}")
    world.turn("2026-01-01T11:00:00")
    before = world.scheduler.remove("hourly")
    with pytest.raises(NotFound, match="the name of an existing schedule"):
        world.scheduler.get("hourly")
    world.add(output="out/{date}-{time}")
    assert world.scheduler.get("hourly").id != before.id
    world.turn("2026-01-01T12:00:00")
    assert len(world.submissions) == 2


def test_where_another_server_has_the_jobs_nothing_fires_here(world: World) -> None:
    world.add()
    world.is_ours = False
    with pytest.raises(Elsewhere):
        world.scheduler.list()
    with pytest.raises(Elsewhere):
        world.turn("2026-01-01T11:00:00")
    world.is_ours = True
    assert world.runs() == []


def test_its_own_thread_does_it_all(world: World) -> None:
    world.add()
    world.now_s = at("2026-01-01T11:00:01")
    world.scheduler.start()
    until(lambda: world.history() == [("submitted", "11:00")])
    world.scheduler.close()
    world.end_jobs()
    world.now_s = at("2026-01-01T12:00:01")
    assert world.history() == [("submitted", "11:00")]  # nothing fires any more
