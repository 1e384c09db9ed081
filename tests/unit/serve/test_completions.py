"""Rows on their way to an engine's thread: who is woken when."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, cast

import numpy as np
import pytest

from twoshift.engine.live_intake import LiveIntake
from twoshift.runtime.encoder.tokens import TokenRows
from twoshift.serve.completions import Completions
from twoshift.serve.host import Host
from twoshift.serve.live_request import LiveRequest

ROW = TokenRows(np.zeros(1, np.int32), np.arange(2), np.zeros(1, np.bool_))


class Intake:
    """Of an engine that is busy: it looks by itself once its call has ended."""

    resting = 0

    def __init__(self) -> None:
        self.gather_until_s, self.rows, self.rows_at_wake = -math.inf, 0, list[int]()

    def submit(self, rows: TokenRows, asked: Any) -> list[int]:
        self.rows += 1
        return [self.rows]

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
