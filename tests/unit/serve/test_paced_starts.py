"""Requests begin a few in each turn of the loop, in order."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("uvloop", reason="the serve extra is not installed")

from twoshift.serve.http.paced_starts import PacedStarts

SIZE = 30 << 10  # three of them fill a turn


def test_requests_begin_a_few_in_each_turn_of_the_loop_and_in_order() -> None:
    async def begun() -> list[int]:
        starts = PacedStarts()
        turns = [starts.turn(SIZE) for _ in range(10)]
        counts = [turns.index(next(each for each in turns if each is not None))]
        waiting = [each for each in turns if each is not None]
        while not all(each.done() for each in waiting):
            await asyncio.sleep(0)
            done = [each.done() for each in waiting]
            assert done == sorted(done, reverse=True)
            counts.append(sum(done))
        assert starts.turn(SIZE) is None or counts[-1] - counts[-2] == 3
        return counts

    assert asyncio.run(begun()) == [3, 3, 6, 7]


def test_a_request_of_any_size_begins_where_no_other_does() -> None:
    async def begins() -> None:
        starts = PacedStarts()
        assert starts.turn(1 << 20) is None
        later = starts.turn(1 << 20)
        assert later is not None
        await asyncio.wait_for(later, 60)

    asyncio.run(begins())


def test_the_turn_of_a_client_that_has_gone_is_the_next_ones() -> None:
    async def begun() -> None:
        starts = PacedStarts()
        turns = [starts.turn(1 << 20) for _ in range(4)]
        assert turns[0] is None
        gone, second, third = (each for each in turns if each is not None)
        gone.cancel()
        await asyncio.sleep(0)
        assert second.done()
        assert not third.done()

    asyncio.run(begun())
