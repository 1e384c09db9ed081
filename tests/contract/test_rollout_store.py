"""One suite for every store of rollouts; PostgreSQL is a real one, started here."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import update

from twoshift.errors import NotFound
from twoshift.rollout_ports import RolloutEvent, RolloutRecord
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.notices import SqlNotices
from twoshift.store.rollouts import SqlRollouts
from twoshift.store.tables import rollouts
from twoshift.trigger_ports import Delivery, Notice

pytestmark = pytest.mark.slow


def record(number: int, deployment: str = "m", configured: str = "m:1") -> RolloutRecord:
    return RolloutRecord(
        f"ro-{number}", deployment, configured, "m:1", f"m:{number}", "canary", "alice", {"alpha": 0.01}, 1.5,
        updated_unix_s=2.25,
    )  # fmt: skip


def test_a_rollout_comes_back_as_it_was_given(database: Database) -> None:
    store = SqlRollouts(database)
    assert store.add(record(2))
    assert store.get("ro-2") == record(2)
    assert store.active() == store.list() == [record(2)]
    with pytest.raises(NotFound, match="the id of a rollout"):
        store.get("ro-9")


def test_a_deployment_has_one_at_a_time(database: Database) -> None:
    one, other = SqlRollouts(database), SqlRollouts(database)
    assert one.add(record(2))
    assert not other.add(record(3))
    assert other.add(record(4, "n"))
    assert one.lead("ro-2")
    assert one.save("ro-2", stage="rolled_back")
    assert other.add(record(3))
    assert [each.id for each in one.active()] == ["ro-4", "ro-3"]
    assert [each.id for each in one.list(10, "m")] == ["ro-3", "ro-2"]
    assert one.last("m", "m:1").id == "ro-3"  # type: ignore[union-attr]
    assert one.last("m", "m@prod") is None


def test_one_leads_and_what_another_would_write_is_refused(database: Database) -> None:
    one, other = SqlRollouts(database), SqlRollouts(database)
    one.add(record(2))
    assert not one.save("ro-2", share=0.5)
    assert one.lead("ro-2")
    assert one.lead("ro-2")
    assert not other.lead("ro-2")
    assert one.save("ro-2", RolloutEvent(3.0, "advance: warm", ("failed 0 of 3",)), share=0.5, state={"step": 0})
    assert not other.save("ro-2", share=1.0)
    found = other.get("ro-2")
    assert (found.share, found.state, bool(found.leader)) == (0.5, {"step": 0}, True)
    assert other.events("ro-2") == [RolloutEvent(3.0, "advance: warm", ("failed 0 of 3",))]
    one.release()
    assert other.lead("ro-2")
    assert not one.save("ro-2", share=0.1)


def test_another_leads_once_the_leader_has_been_silent_for_long(database: Database) -> None:
    one, other = SqlRollouts(database), SqlRollouts(database)
    one.add(record(2))
    one.lead("ro-2")
    silent = update(rollouts).values(leader_seen_unix_s=rollouts.c.leader_seen_unix_s - 60)
    database.run(lambda made: made.execute(silent))
    assert other.lead("ro-2")
    assert not one.lead("ro-2")


def test_what_is_asked_waits_until_the_leader_has_heard_it(database: Database) -> None:
    one, other = SqlRollouts(database), SqlRollouts(database)
    one.add(record(2))
    assert other.ask("ro-2", "pause bob")
    one.lead("ro-2")
    assert one.get("ro-2").asked == ("pause bob",)
    assert other.ask("ro-2", "promote")
    assert one.save("ro-2", heard=1, paused=True)
    assert one.get("ro-2").asked == ("promote",)
    assert one.save("ro-2", heard=1, stage="promoted", share=1.0)
    assert not other.ask("ro-2", "rollback")


def test_the_end_is_told_in_the_same_write_and_nothing_comes_after_it(database: Database) -> None:
    store = SqlRollouts(database)
    store.add(record(2))
    store.lead("ro-2")
    assert store.save("ro-2", stage="promoted", share=1.0, reason="no worse")
    assert not store.save("ro-2", stage="rolled_back")
    assert not store.lead("ro-2")
    told = list[Notice]()

    def spread(notice: Notice) -> list[Delivery]:
        told.append(notice)
        return []

    SqlNotices(ClaimedDatabase(database)).spread(spread)
    [notice] = told
    assert (notice.kind, notice.subject) == ("rollout.promoted", "ro-2")
    assert notice.data == {
        "id": "ro-2", "deployment": "m", "stable": "m:1", "candidate": "m:2", "stage": "promoted", "reason": "no worse",
    }  # fmt: skip
    assert dataclasses.replace(store.get("ro-2"), updated_unix_s=0).is_over
