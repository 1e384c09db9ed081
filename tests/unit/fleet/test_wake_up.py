"""Requests that come while a model has no replica."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twoshift.errors import Asleep
from twoshift.fleet import wake_up
from twoshift.fleet.group import ReplicaGroup
from twoshift.fleet.wake_up import WakeUp
from twoshift.serve import host


def test_a_request_waits_for_the_first_replica_is_counted_and_asks_for_one() -> None:
    asked = list[str]()

    async def sleeps() -> None:
        waking = WakeUp()
        waking.wanted = lambda: asked.append("a replica")
        waits = asyncio.ensure_future(waking.wait(3, time.monotonic() + 600, lambda: 2.0))
        await asyncio.sleep(0)
        assert waking.queue().rows == 3
        waking.joined()
        await waits
        assert waking.queue().rows == 0

    asyncio.run(sleeps())
    assert asked == ["a replica"]


def test_a_request_with_less_time_than_a_start_is_told_when_to_come_back_and_wakes_the_model_all_the_same() -> None:
    asked = list[str]()
    waking = WakeUp()
    waking.wanted = lambda: asked.append("a replica")
    with pytest.raises(Asleep, match=r"asleep \(scaled to zero\), and a replica is ready in about 2\.5 s") as told:
        asyncio.run(waking.wait(1, time.monotonic() + 1.0, lambda: 2.5))
    assert (told.value.retry_after_s, asked) == (2.5, ["a replica"])
    assert waking.queue().rows == 0


def test_nobody_waits_for_replicas_that_do_not_start() -> None:
    asyncio.run(WakeUp().wait(1, None, lambda: None))


def test_a_start_that_takes_longer_than_the_last_one_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wake_up, "_LOOK_S", 0.001)
    looks = list[float]()

    def left_s() -> float:
        looks.append(2.0 if not looks else 900.0)  # overdue: nobody knows how long it will be
        return looks[-1]

    async def sleeps() -> None:
        waking = WakeUp()
        waits = asyncio.ensure_future(waking.wait(1, time.monotonic() + 600, left_s))
        while len(looks) < 4 and not waits.done():
            await asyncio.sleep(0.001)
        waking.joined()
        await waits

    asyncio.run(sleeps())


def test_the_wait_for_a_replica_is_no_work_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the host believes that every request costs it as much, and turns away all but one of those that come."""
    now_s = 100.0
    monkeypatch.setattr(host.time, "monotonic", lambda: now_s)
    visit = host.Visit(loop := host.Host(), 10)
    group = ReplicaGroup(cast(Any, None))
    group.fleet = cast(Any, SimpleNamespace(wakes_in_s=lambda: 20.0))

    async def sleeps() -> None:
        nonlocal now_s
        visit.begin()
        waits = asyncio.ensure_future(group.awake(1, None, visit))
        await asyncio.sleep(0)
        now_s += 60.0
        group.wake_up.joined()
        await waits
        visit.submitted()

    asyncio.run(sleeps())
    assert loop.policy.before.seconds(10) == 0.0
