from __future__ import annotations

from collections import Counter

from twoshift.batch.turns import in_turn
from twoshift.ports import JobRecord
from twoshift.types import JobState


def job(name: str, owner: str = "", **settings: object) -> JobRecord:
    return JobRecord(name, settings, JobState.QUEUED, 1000.0, 1000.0, owner=owner)


def names(*waiting: JobRecord, at_work: dict[str, int] | None = None) -> list[str]:
    return [each.id for each in in_turn(waiting, Counter(at_work or {}))]


def test_of_one_owner_whose_window_ends_first_is_next_and_then_the_oldest() -> None:
    waiting = [job("a"), job("b", window="2h"), job("c", due_unix_s=1500.0), job("d"), job("e", window="1h")]
    assert names(*waiting) == ["c", "e", "b", "a", "d"]


def test_owners_take_turns_whoever_has_more() -> None:
    many = [job(f"red-{k}", "red", due_unix_s=2000.0) for k in range(4)]
    assert names(*many, job("blue", "blue", due_unix_s=9000.0)) == ["red-0", "blue", "red-1", "red-2", "red-3"]


def test_who_has_fewest_at_work_comes_first() -> None:
    waiting = [job("red", "red", due_unix_s=1.0), job("blue", "blue")]
    assert names(*waiting, at_work={"red": 3}) == ["blue", "red"]
