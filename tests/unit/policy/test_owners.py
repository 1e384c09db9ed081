"""Several jobs in one background lane."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.background_queue import BackgroundQueue, Block
from twoshift.types import CallSize

NOTHING = CallSize(0, 0, 0, 0)


def takes(queue: BackgroundQueue, rows: int) -> list[int]:
    """The blocks of one call of so many rows."""
    slices, _, _ = queue.take(NOTHING, rows, lambda _: True)
    return [part.block for part in slices for _ in range(part.stop - part.start)]


def filled(weights: dict[int, float], blocks: int, rows: int = 10) -> BackgroundQueue:
    queue = BackgroundQueue()
    for owner, weight in weights.items():
        for number in range(blocks):
            queue.add(Block(owner * 1000 + number, [1] * rows, owner=owner, weight=weight))
    return queue


def test_owners_have_the_device_by_their_weights() -> None:
    queue = filled({1: 3.0, 2: 1.0}, blocks=40)
    had = Counter(key // 1000 for _ in range(20) for key in takes(queue, 10))
    assert had[1] == 150
    assert had[2] == 50


def test_an_earlier_deadline_goes_first_whatever_the_weights() -> None:
    queue = filled({1: 100.0}, blocks=3)
    queue.add(Block(2000, [1] * 10, deadline_s=5.0, owner=2, weight=0.01))
    assert set(takes(queue, 10)) == {2000}


def test_who_was_idle_has_saved_nothing_up() -> None:
    queue = filled({1: 1.0}, blocks=40)
    for _ in range(20):
        takes(queue, 10)
    for number in range(20):
        queue.add(Block(2000 + number, [1] * 10, owner=2))
    had = Counter(key // 1000 for _ in range(10) for key in takes(queue, 10))
    assert abs(had[1] - had[2]) <= 10


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=30))
def test_every_row_is_taken_once_and_an_owners_blocks_in_order(given_blocks: list[tuple[int, int]]) -> None:
    queue = BackgroundQueue()
    for key, (owner, rows) in enumerate(given_blocks):
        queue.add(Block(key, [1] * rows, owner=owner, weight=owner + 1.0))
    taken: list[int] = []
    while queue:
        taken += takes(queue, 7)
    assert len(taken) == sum(rows for _, rows in given_blocks)
    for owner in range(4):
        own = [key for key in taken if given_blocks[key][0] == owner]
        assert own == sorted(own)


def test_a_held_owner_keeps_its_place_and_is_not_taken() -> None:
    queue = filled({1: 1.0, 2: 1.0}, blocks=2)
    queue.hold(1)
    queue.add(Block(1900, [1] * 10, owner=1, owed=True))
    assert queue.owed_blocks == 0
    assert set(takes(queue, 100)) == {2000, 2001}
    assert not queue
    assert queue.rows() == 30
    assert 1000 in queue
    queue.release(1)
    assert queue.owed_blocks == 1
    assert list(dict.fromkeys(takes(queue, 100))) == [1000, 1001, 1900]
    assert not queue.rows()


def test_a_held_block_can_be_taken_back() -> None:
    queue = filled({1: 1.0}, blocks=2)
    queue.hold(1)
    rest = queue.remove(1000)
    assert rest is not None
    assert (rest.start, rest.stop) == (0, 10)
    queue.release(1)
    assert set(takes(queue, 100)) == {1001}
