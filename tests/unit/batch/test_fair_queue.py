"""Who is next with those who look after batches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from twoshift.batch.requests.fair_queue import FairQueue


class Office:
    """Clerks whose checks of files end when they are told to."""

    def __init__(self) -> None:
        self.clerks, self.begun = FairQueue("clerks"), queue.Queue[str]()
        self.gates: dict[str, threading.Event] = {}
        self.clerks.start()

    def held(self, batch_id: str) -> None:
        self.begun.put(batch_id)
        self.gates[batch_id].wait(120)

    def check(self, owner: str, *batch_ids: str) -> None:
        for batch_id in batch_ids:
            self.gates[batch_id] = threading.Event()
            self.clerks.check(owner, batch_id, self.held)

    def end(self, owner: str, *batch_ids: str) -> None:
        for batch_id in batch_ids:
            self.gates[batch_id] = threading.Event()
            self.clerks.end(owner, batch_id, self.held)

    def next(self, count: int = 1) -> set[str]:
        return {self.begun.get(timeout=120) for _ in range(count)}


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.clerks.close(0.0)
    for gate in made.gates.values():
        gate.set()


def test_many_files_of_one_owner_keep_nobody_elses_from_being_read(office: Office) -> None:
    office.check("red", *(f"red-{k}" for k in range(60)))
    assert office.next() == {"red-0"}
    office.check("blue", "blue-0")
    assert office.next() == {"blue-0"}


def test_owners_take_turns(office: Office) -> None:
    office.check("red", "red-0", "red-1", "red-2")
    office.check("blue", "blue-0")
    assert office.next(2) == {"red-0", "blue-0"}
    office.check("green", "green-0")
    office.gates["red-0"].set()
    after = office.next()
    office.gates["blue-0"].set()
    assert after | office.next() == {"red-1", "green-0"}


def test_what_ends_goes_on_while_files_are_read_and_before_those_that_wait(office: Office) -> None:
    office.check("red", "red-0", "red-1")
    office.check("blue", "blue-0", "blue-1")
    assert office.next(2) == {"red-0", "blue-0"}
    office.end("red", "red-end-0", "red-end-1")
    assert office.next() == {"red-end-0"}
    office.gates["blue-0"].set()
    assert office.next() == {"red-end-1"}


def test_endings_of_one_owner_leave_a_clerk_to_others(office: Office) -> None:
    office.end("red", *(f"red-{k}" for k in range(9)))
    assert office.next(2) == {"red-0", "red-1"}
    office.end("blue", "blue-0")
    assert office.next() == {"blue-0"}


def test_one_that_is_cancelled_goes_before_the_others_of_its_owner(office: Office) -> None:
    office.check("red", "red-0", "red-1", "red-2")
    assert office.next() == {"red-0"}
    office.clerks.check_first("red", "red-2")
    office.gates["red-0"].set()
    assert office.next() == {"red-2"}


def test_after_the_end_nothing_is_begun(office: Office) -> None:
    office.check("red", "red-0", "red-1")
    assert office.next() == {"red-0"}
    assert not office.clerks.close(0.0)
    office.gates["red-0"].set()
    assert office.clerks.close(float("inf"))
    assert office.begun.empty()
