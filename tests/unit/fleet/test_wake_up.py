"""Requests that come while a model has no replica."""

from __future__ import annotations

import asyncio
import time

import pytest

from twoshift.errors import Asleep
from twoshift.fleet.wake_up import WakeUp


def test_a_request_waits_for_the_first_replica_is_counted_and_asks_for_one() -> None:
    asked = list[str]()

    async def sleeps() -> None:
        wake_up = WakeUp()
        wake_up.wanted = lambda: asked.append("a replica")
        waits = asyncio.ensure_future(wake_up.wait(3, time.monotonic() + 600, lambda: 2.0))
        await asyncio.sleep(0)
        assert wake_up.queue().rows == 3
        wake_up.joined()
        await waits
        assert wake_up.queue().rows == 0

    asyncio.run(sleeps())
    assert asked == ["a replica"]


def test_a_request_with_less_time_than_a_start_is_told_when_to_come_back_and_wakes_the_model_all_the_same() -> None:
    asked = list[str]()
    wake_up = WakeUp()
    wake_up.wanted = lambda: asked.append("a replica")
    with pytest.raises(Asleep, match=r"asleep, and a replica is ready in about 2\.5 s") as told:
        asyncio.run(wake_up.wait(1, time.monotonic() + 1.0, lambda: 2.5))
    assert (told.value.retry_after_s, asked) == (2.5, ["a replica"])
    assert wake_up.queue().rows == 0


def test_nobody_waits_for_replicas_that_do_not_start() -> None:
    asyncio.run(WakeUp().wait(1, None, lambda: None))
