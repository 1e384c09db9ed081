"""Whether a schedule fires, and what becomes of a run that meets another."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.cron import Cron
from twoshift.policy.triggers import LATE_S, Fire, Meeting, Missed, Overlap, Wait, meet, trigger

HOURLY = Cron.parse("0 * * * *")


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()


def utc(_at_s: int) -> int:
    return 0


def asked(since: str, now: str, missed: Missed = Missed.SKIP) -> Fire | Wait:
    return trigger(HOURLY, at(since), at(now), utc, missed)


def test_nothing_is_due_before_its_time() -> None:
    assert asked("2026-01-01T10:00", "2026-01-01T10:59:59") == Wait(int(at("2026-01-01T11:00")))


@pytest.mark.parametrize("missed", Missed)
def test_on_time_it_runs(missed: Missed) -> None:
    found = asked("2026-01-01T10:00", "2026-01-01T11:00:30", missed)
    assert found == Fire(int(at("2026-01-01T11:00")), run=True, missed=0)


def test_what_was_missed_is_skipped_or_runs_once() -> None:
    last_s = int(at("2026-01-01T15:00"))
    assert asked("2026-01-01T10:00", "2026-01-01T15:30") == Fire(last_s, run=False, missed=5)
    assert asked("2026-01-01T10:00", "2026-01-01T15:30", Missed.ONCE) == Fire(last_s, run=True, missed=5)


@pytest.mark.parametrize("missed", Missed)
def test_the_last_one_runs_where_it_is_on_time_whatever_was_missed_before(missed: Missed) -> None:
    assert asked("2026-01-01T10:00", "2026-01-01T15:00:10", missed).__class__ is Fire
    found = asked("2026-01-01T10:00", "2026-01-01T15:00:10", missed)
    assert found == Fire(int(at("2026-01-01T15:00")), run=True, missed=4)


def test_years_without_a_server_are_counted_up_to_a_bound() -> None:
    found = trigger(Cron.parse("* * * * *"), at("2016-01-01"), at("2026-01-01T00:00:59"), utc, Missed.SKIP)
    assert found == Fire(int(at("2026-01-01")), run=True, missed=1000)
    assert isinstance(found, Fire)
    assert found.missed_shown == "missed runs: 1,000 or more; this run replaces them"


@given(st.lists(st.floats(0.1, 20_000), min_size=1, max_size=40), st.sampled_from(Missed))
def test_however_time_goes_on_no_time_fires_twice_and_none_is_lost(steps_s: list[float], missed: Missed) -> None:
    since_s = now_s = begin_s = at("2026-01-01T10:00")
    decided = list[int]()
    for step_s in steps_s:
        now_s += step_s
        found = trigger(HOURLY, since_s, now_s, utc, missed)
        if isinstance(found, Fire):
            assert since_s < found.last_s <= now_s
            is_late = now_s - found.last_s > LATE_S
            assert found.run == (missed is Missed.ONCE or not is_late)
            decided.append(found.missed + (not is_late))
            since_s = found.last_s
    assert sum(decided) == (since_s - begin_s) // 3600 == (now_s - begin_s) // 3600


def test_a_run_that_meets_the_last_one() -> None:
    for overlap in Overlap:
        assert meet(overlap, last_goes=False, waiting=0) is Meeting.SUBMIT
    assert meet(Overlap.SKIP, last_goes=True, waiting=0) is Meeting.SKIP
    assert meet(Overlap.QUEUE, last_goes=True, waiting=0) is Meeting.WAIT
    assert meet(Overlap.QUEUE, last_goes=False, waiting=1) is Meeting.WAIT  # its turn comes
    assert meet(Overlap.QUEUE, last_goes=True, waiting=100) is Meeting.SKIP
    assert meet(Overlap.CANCEL, last_goes=True, waiting=0) is Meeting.CANCEL
