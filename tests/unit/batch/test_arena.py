"""Memory between a worker and a preparing process, and the engine as that process sees it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from texts_runtime import INFO, CharacterPreparer
from twoshift.batch.preparing.arena import ARENA_BYTES, Arena, ArenaBlocks, ArenaSpace, Placed, arena_file, placed_bytes
from twoshift.batch.preparing.messages import Answered, Cancelled, FromPreparer, Given, Submitted
from twoshift.batch.preparing.remote_engine import RemoteEngine
from twoshift.error_codec import encode_error
from twoshift.errors import NoRoom, TryLater
from waiting import until


@pytest.fixture
def arenas() -> Iterator[tuple[Arena, Arena]]:
    """One memory, as two processes have it."""
    file = arena_file()
    ours, theirs = Arena(file), Arena(file)
    os.close(file)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_what_one_puts_there_the_other_reads_as_it_was(arenas: tuple[Arena, Arena]) -> None:
    ours, theirs = arenas
    arrays = {
        "ids": np.arange(7, dtype=np.int32),
        "flags": np.array([True, False]),
        "vectors": np.ones((3, 5), np.float32),
        "words": np.array(["a", "long word"]),
        "none": np.zeros((0, 4)),
    }
    placed = ours.put(arrays, 4096)
    found = theirs.copies(placed)
    for name, values in arrays.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


def test_a_copy_does_not_change_with_the_memory(arenas: tuple[Arena, Arena]) -> None:
    ours, theirs = arenas
    found = theirs.copies(ours.put({"x": np.arange(3)}, 0))
    ours.put({"x": np.zeros(3, int)}, 0)
    assert found["x"].tolist() == [0, 1, 2]


def test_objects_have_no_place() -> None:
    assert placed_bytes({"x": np.array(["a", None], object)}) is None


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60))
def test_space_is_never_given_twice_and_all_comes_back(steps: list[tuple[int, bool]]) -> None:
    space, held = ArenaSpace(100), list[tuple[int, int]]()
    for size, gives_back in steps:
        if gives_back and held:
            space.give_back(*held.pop(size % len(held)))
        elif sum(each for _, each in held) + size <= 100 and _has_gap(held, size):
            start = space.take(size)
            assert start is not None
            assert all(start + size <= other or other + length <= start for other, length in held)
            held.append((start, size))
    for each in held:
        space.give_back(*each)
    assert space.take(100) == 0


def _has_gap(held: list[tuple[int, int]], size: int) -> bool:
    """Whether so much is free in one piece."""
    edges = [*sorted(held), (100, 0)]
    at = 0
    for start, length in edges:
        if start - at >= size:
            return True
        at = start + length
    return False


def test_who_finds_no_space_waits_until_some_is_given_back() -> None:
    space, found = ArenaSpace(100), list[int | None]()
    assert space.take(101) is None
    assert space.take(80) == 0
    waiting = threading.Thread(target=lambda: found.append(space.take(30)))
    waiting.start()
    space.give_back(0, 80)
    waiting.join()
    assert found == [0]


class Remote:
    """An engine of a process, without one."""

    def __init__(self, arena: Arena) -> None:
        self.sent, self.arena = list[FromPreparer](), arena
        plan: Any = None
        given = Given(CharacterPreparer(), INFO, 0, plan, lambda _: plan, "here")
        self.engine = RemoteEngine(given, ArenaBlocks(arena), self.sent.append)

    def block(self, rows: int) -> tuple[Any, Submitted]:
        future = self.engine.submit_block(self.engine.runtime.prepare(["ab"] * rows))
        message = self.sent[-1]
        assert isinstance(message, Submitted)
        return future, message


def test_results_are_sent_at_first_and_have_room_in_the_memory_from_then_on(arenas: tuple[Arena, Arena]) -> None:
    remote = Remote(arenas[0])
    future, first = remote.block(10)
    assert first.room is None
    assert all(isinstance(each, Placed) for each in first.arrays.values())
    np.testing.assert_array_equal(arenas[1].copies(first.arrays)["ids"], [97, 98] * 10)
    remote.engine.answered(Answered(first.number, columns={"y": np.ones((10, 100))}, device_s=0.5))
    assert future.result(0).columns["y"].shape == (10, 100)
    assert future.result(0).device_s == 0.5
    _, second = remote.block(20)
    assert second.room is not None
    assert 20 * 100 * 8 <= second.room[1] < ARENA_BYTES


def test_memory_is_used_again_once_a_block_is_answered_and_not_before(arenas: tuple[Arena, Arena]) -> None:
    remote = Remote(arenas[0])
    future, first = remote.block(10)
    _, second = remote.block(10)
    assert _start(first) != _start(second)
    future.cancel()
    assert remote.sent[-1] == Cancelled(first.number)
    assert _start(remote.block(10)[1]) not in (_start(first), _start(second))
    remote.engine.answered(Answered(first.number, encode_error(TryLater("cancelled", 1.0))))
    assert _start(remote.block(10)[1]) == _start(first)


def _start(block: Submitted) -> int:
    placed = block.arrays["ids"]
    assert isinstance(placed, Placed)
    return placed.start


def test_an_engine_that_takes_no_block_is_not_asked_again_for_the_next(arenas: tuple[Arena, Arena]) -> None:
    remote = Remote(arenas[0])
    future, first = remote.block(1)
    remote.engine.answered(Answered(first.number, encode_error(TryLater("the engine is draining", 1.0)), True))
    with pytest.raises(TryLater, match="draining"):
        future.result(0)
    with pytest.raises(TryLater, match="draining"):
        remote.block(1)
    remote.block(1)  # it may have changed its mind


def test_errors_of_rows_are_what_they_were(arenas: tuple[Arena, Arena]) -> None:
    remote = Remote(arenas[0])
    future, first = remote.block(2)
    errors = {0: encode_error(NoRoom("too small")), 1: encode_error(KeyError("x"))}
    remote.engine.answered(Answered(first.number, columns={"y": np.zeros(2)}, errors=errors))
    result = future.result(0)
    assert isinstance(result.errors[0], NoRoom)
    assert type(result.errors[1]).__name__ == "KeyError"


@pytest.mark.slow
def test_rows_too_large_for_the_memory_are_sent_by_themselves(arenas: tuple[Arena, Arena]) -> None:
    remote = Remote(arenas[0])
    rows = remote.engine.runtime.prepare(["x" * (ARENA_BYTES // 4 + 1)])
    sending = threading.Thread(target=lambda: remote.engine.submit_block(rows))
    sending.start()
    until(lambda: remote.sent)
    sending.join()
    message = remote.sent[0]
    assert isinstance(message, Submitted)
    assert isinstance(message.arrays["ids"], np.ndarray)
