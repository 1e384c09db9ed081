"""One suite for every store of schedules and notices; PostgreSQL is a real one, started here."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.errors import Elsewhere
from twoshift.ports import JobRecord
from twoshift.store.claim import SqlClaim
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.store.notices import SqlNotices
from twoshift.store.schedules import SqlSchedules
from twoshift.trigger_ports import Delivery, Notice, ScheduledRun, ScheduleRecord
from twoshift.types import DeliveryState, JobState, RunState

pytestmark = pytest.mark.slow


def schedule(name: str, owner: str = "") -> ScheduleRecord:
    return ScheduleRecord(f"sch-{owner}-{name}", owner, name, {"cron": "@daily"}, 1.5, 1_763_000_000.25)


def run(number: int, of: str = "sch--a", state: RunState = RunState.WAITING) -> ScheduledRun:
    return ScheduledRun(f"job-{of}-{number}", of, f"cron {number}", float(number), state, f"out/{number}")


def test_a_schedule_comes_back_as_it_was_given_and_changed(database: Database) -> None:
    store = SqlSchedules(ClaimedDatabase(database))
    assert store.add(schedule("b"))
    assert store.add(schedule("a"))
    assert store.add(schedule("a", "bob"))
    assert not store.add(dataclasses.replace(schedule("a"), id="another"))
    assert store.all("") == [schedule("a"), schedule("b")]
    store.change("sch--a", is_paused=True, problem="no answer")
    changed = dataclasses.replace(schedule("a"), is_paused=True, problem="no answer")
    assert store.all() == [changed, schedule("a", "bob"), schedule("b")]


def test_a_run_is_decided_on_once_together_with_its_schedule(database: Database) -> None:
    store = SqlSchedules(ClaimedDatabase(database))
    store.add(schedule("a"))
    assert store.decide(run(1), since_unix_s=7.0)
    assert not store.decide(dataclasses.replace(run(1), id="another"), since_unix_s=8.0)
    assert not store.decide(dataclasses.replace(run(1), key="another"))
    assert store.all()[0].since_unix_s == 8.0
    assert store.runs("sch--a") == store.waiting() == [run(1)]


def test_a_run_is_shown_with_its_job(database: Database) -> None:
    store, jobs = SqlSchedules(ClaimedDatabase(database)), SqlJobs(database)
    store.add(schedule("a"))
    for number in (1, 2):
        store.decide(run(number))
    jobs.add(JobRecord(run(1).id, {}, JobState.RUNNING, 1.0, 1.0))
    store.settle(run(1).id, RunState.SUBMITTED)
    store.settle(run(2).id, RunState.SKIPPED, "the last one was still running")
    newest, oldest = store.runs("sch--a")
    assert (newest.state, newest.job_state, newest.reason) == ("skipped", None, "the last one was still running")
    assert (oldest.state, oldest.job_state) == ("submitted", "running")
    assert store.runs("sch--a", 1) == [newest]
    assert store.waiting() == []
    store.remove("sch--a")
    assert store.all() == store.runs("sch--a") == []
    assert jobs.get(run(1).id).state is JobState.RUNNING


def delivery(number: int, target: str = "a:443", due_s: float = 5.0) -> Delivery:
    webhook, url = "ops", f"https://{target}/"
    return Delivery(f"msg_{target}_{number}", "bob", "job.completed", "job-1", webhook, url, target, "{}", 1.0, due_s)


def test_notices_become_deliveries_both_or_neither(database: Database) -> None:
    store = SqlNotices(ClaimedDatabase(database))
    notice = Notice("bob", "job.completed", "job-1", {"rows": 3}, 1.5, ("ops",))
    for _ in range(3):
        store.post(notice)

    def fails(_notice: Notice) -> list[Delivery]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.spread(fails)
    seen: list[Notice] = []

    def spread(found: Notice) -> list[Delivery]:
        seen.append(found)
        return [delivery(len(seen))]

    assert [store.spread(spread, limit=2), store.spread(spread, limit=2), store.spread(spread)] == [2, 1, 0]
    assert seen == [notice] * 3
    assert [each.id for each in store.list()] == ["msg_a:443_3", "msg_a:443_2", "msg_a:443_1"]
    assert store.list(owner="alice") == []


def test_those_that_are_due_come_oldest_first_and_no_target_fills_the_list(database: Database) -> None:
    store = SqlNotices(ClaimedDatabase(database))
    many = [delivery(k, "slow:443", 1.0 + k / 1e3) for k in range(500)]
    store.post(Notice("", "job.failed", "job-1", {}, 1.0))
    store.spread(lambda _: [*many, delivery(1, "quick:443", 4.0), delivery(2, "quick:443", 6.0)])
    assert [each.id for each in store.due(5.0, 2)] == ["msg_slow:443_0", "msg_slow:443_1", "msg_quick:443_1"]
    after = dataclasses.replace(many[0], attempts=1, due_unix_s=100.0, state=DeliveryState.WAITING, told="status 500")
    store.tried(after)
    store.tried(dataclasses.replace(many[1], state=DeliveryState.DELIVERED))
    assert [each.id for each in store.due(5.0, 1)] == ["msg_slow:443_2", "msg_quick:443_1"]
    assert after in store.list(1000)


def test_who_has_not_the_claim_changes_nothing(database: Database) -> None:
    claim, other = SqlClaim(database), SqlClaim(database)
    assert claim.take()
    schedules, notices = SqlSchedules(ClaimedDatabase(database, other)), SqlNotices(ClaimedDatabase(database, other))
    with pytest.raises(Elsewhere):
        schedules.add(schedule("a"))
    with pytest.raises(Elsewhere):
        notices.post(Notice("", "job.failed", "job-1", {}, 1.0))
    ours = SqlSchedules(ClaimedDatabase(database, claim))
    assert ours.add(schedule("a"))
    with pytest.raises(Elsewhere):
        schedules.decide(run(1))
    assert ours.decide(run(1))
    claim.release()
