"""Rows on their way to an engine's thread: who is woken when."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from twoshift.engine.live_intake import LiveIntake
from twoshift.engine.waiting import LiveRows
from twoshift.errors import TryLater
from twoshift.runtime.encoder.tokens import TokenRows
from twoshift.serve.completions import Awaited, Completions
from twoshift.serve.host import Host
from twoshift.serve.live_request import LiveRequest

ROW = TokenRows(np.zeros(1, np.int32), np.arange(2), np.zeros(1, np.bool_))


class Intake:
    """Of an engine that is busy: it looks by itself once its call has ended."""

    resting = 0

    def __init__(self) -> None:
        self.gather_until_s, self.rows, self.rows_at_wake = -math.inf, 0, list[int]()
        self.together, self.refuses = list[int](), False  # requests of each call

    def submit_together(self, asked: Sequence[LiveRows]) -> list[list[int] | Exception]:
        self.together.append(len(asked))
        if self.refuses:
            return [TryLater("the queue is full", 1.0)] * len(asked)
        first, self.rows = self.rows, self.rows + len(asked)
        return [[key] for key in range(first, self.rows)]

    def forget(self, keys: Sequence[int]) -> int:
        return len(keys)

    def wake(self) -> None:
        self.gather_until_s = -math.inf
        self.rows_at_wake.append(self.rows)


def busy_host(requests: int) -> Host:
    """One that has a hundred requests inside, of a millisecond each, where it has them."""
    host = Host()
    for _ in range(32):
        host.policy.before.observed(100, 0.001)
    for _ in range(requests):
        host.policy.admitted(100)
    return host


async def submitted(host: Host | None, turns: int) -> Intake:
    """A request with each of so many turns of the loop."""
    made, intake = Completions(host), Intake()
    for _ in range(turns):
        now_s = time.monotonic()
        made.submit(cast(LiveIntake, intake), ROW, LiveRequest(["a"], now_s + 60, now_s))
        await asyncio.sleep(0)
    return intake


@pytest.mark.parametrize("host", [None, busy_host(0)])
def test_an_engine_looks_by_itself_where_the_host_is_not_behind(host: Host | None) -> None:
    async def check() -> None:
        intake = await submitted(host, 5)
        assert intake.gather_until_s == -math.inf
        assert intake.rows_at_wake == []

    asyncio.run(check())


def test_an_engine_waits_for_what_a_busy_host_has_in_hand_and_is_woken_once() -> None:
    async def check() -> None:
        intake = await submitted(busy_host(100), 1)
        assert intake.gather_until_s > -math.inf
        for _ in range(10):  # nothing else comes
            await asyncio.sleep(0)
        assert intake.rows_at_wake == [1]
        assert intake.gather_until_s == -math.inf

    asyncio.run(check())


def submit(made: Completions, intake: Intake) -> Awaited:
    now_s = time.monotonic()
    return made.submit(cast(LiveIntake, intake), ROW, LiveRequest(["a"], now_s + 60, now_s))


def test_requests_of_one_turn_are_submitted_together_to_their_own_models() -> None:
    async def check() -> None:
        made, one, other = Completions(), Intake(), Intake()
        for _ in range(3):
            submit(made, one)
        submit(made, other)
        await asyncio.sleep(0)
        submit(made, one)
        await asyncio.sleep(0)
        assert (one.together, other.together) == ([3, 1], [1])

    asyncio.run(check())


def test_a_request_that_nobody_waits_for_any_more_is_not_submitted() -> None:
    async def check() -> None:
        made, intake = Completions(), Intake()
        gone, _ = submit(made, intake), submit(made, intake)
        gone.cancel()
        made.forget(gone)
        await asyncio.sleep(0)
        assert intake.together == [1]

    asyncio.run(check())


def test_requests_that_are_refused_together_raise_an_error_each() -> None:
    async def check() -> None:
        made, intake = Completions(), Intake()
        intake.refuses = True
        asked = [submit(made, intake) for _ in range(2)]
        found = await asyncio.gather(*(each.done for each in asked), return_exceptions=True)
        assert [str(each) for each in found] == 2 * [str(TryLater("the queue is full", 1.0))]
        assert found[0] is not found[1]  # each gets a traceback of its own

    asyncio.run(check())
