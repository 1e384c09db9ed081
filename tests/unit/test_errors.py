from __future__ import annotations

import pytest

from twoshift.endpoints.faults import fault_of
from twoshift.errors import (
    Elsewhere,
    Inapplicable,
    InvalidInput,
    NotFound,
    OverLimit,
    TooLarge,
    TryLater,
    WrongState,
)


@pytest.mark.parametrize(
    ("why", "after_s", "told"),
    [
        ("full", 30.0, "full; try again in 30 s"),
        ("full", 12_200.0, "full; try again in 3h 23m"),
        ("full; try again in 30 s", 30.0, "full; try again in 30 s"),
        (str(OverLimit("full; later", 7200.0)), 0.25, "full; later; try again in 250 ms"),
    ],
)
def test_when_to_come_back_is_said_once_and_as_people_say_it(why: str, after_s: float, told: str) -> None:
    assert str(TryLater(why, after_s)) == told


def test_clients_are_not_told_what_is_not_theirs_to_know() -> None:
    lost = TryLater("the database sqlite:////home/x.db does not answer", 1.0, "the database does not answer")
    taken = Elsewhere("the server vm, process 11243, runs the jobs of sqlite:////home/x.db", 5.0)
    assert "x.db" in str(lost)
    assert "11243" in str(taken)
    assert fault_of(lost).message == "the database does not answer; try again in 1 s"
    assert fault_of(taken).message == "another server runs the jobs of this database; try again in 5 s"
    assert fault_of(TryLater("full", 1.0)).message == "full; try again in 1 s"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Inapplicable("index_key", "id", "without --index"), "index_key: 'id' cannot be used without --index"),
        (Inapplicable("--detach", True, "without --on"), "--detach cannot be used without --on"),
        (WrongState("job", "completed", "it cannot be paused"), "the job is completed: it cannot be paused"),
        (NotFound("model", "n", "one of m"), "model: 'n' was not found; expected one of m"),
        (NotFound("model", None, "one of m"), "model is missing; expected one of m"),
        (TooLarge("input", "5 rows", "at most 4"), "input: too large (5 rows); expected at most 4"),
        (TooLarge("lengths", 5, "at most 4"), "lengths: too large (5); expected at most 4"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_bad_input_has_a_sentence_of_its_own(error: InvalidInput, told: str) -> None:
    assert str(error) == told
    assert str(error.renamed("--there")) == told.replace(error.field, "--there", 1)
