"""Rows are prepared on the loop once that has shown to be quick, and not to wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from twoshift.serve.live_request import LiveRequest
from twoshift.serve.prepare_time import PrepareTime
from twoshift.serve.preparing import Preparing
from twoshift.serve.stages import Stages


def seen(is_users: bool, count: int = 1_000, waited_s: float = 0.0, per_character_s: float = 1e-7) -> PrepareTime:
    made = PrepareTime(is_users)
    for number in range(count):
        characters = 100 * (1 + number % 3)
        made.observed(characters, characters * per_character_s, waited_s)
    return made


def test_a_library_prepares_short_texts_on_the_loop_from_the_first_one() -> None:
    made = PrepareTime(is_users=False)
    assert (made.is_quick(100), made.is_quick(10_000)) == (True, False)


def test_a_users_code_does_so_after_it_was_quick_for_a_while() -> None:
    assert not seen(True, 0).is_quick(100)
    assert not seen(True, 10).is_quick(100)
    assert seen(True).is_quick(100)


@pytest.mark.parametrize("is_users", [False, True])
def test_what_it_costs_decides_how_long_a_request_may_be(is_users: bool) -> None:
    assert seen(is_users, per_character_s=1e-7).is_quick(4_000)
    assert not seen(is_users, per_character_s=1e-5).is_quick(100)


def test_a_users_code_that_waits_for_long_goes_back_to_threads_until_it_does_not() -> None:
    made = seen(True)
    made.observed(100, 1e-5, 0.2)
    assert not made.is_quick(100)
    for _ in range(100):
        made.observed(100, 1e-5, 0.0)
    assert not made.is_quick(100)
    for _ in range(1_000):
        made.observed(100, 1e-5, 0.0)
    assert made.is_quick(100)


def test_one_stall_of_the_machine_does_not_send_thousands_of_requests_to_threads() -> None:
    made = seen(True)
    made.observed(100, 1e-5, 0.015)
    assert made.is_quick(100)


@pytest.mark.parametrize("every", [1, 10, 50])
def test_a_users_code_that_waits_now_and_then_stays_in_threads(every: int) -> None:
    made = PrepareTime(is_users=True)
    for number in range(2_000):
        made.observed(100, 1e-5, 0.02 if number % every == 0 else 0.0)
    assert not made.is_quick(100)


def test_code_that_waits_for_each_request_never_holds_up_the_loop() -> None:
    threads = set[str]()

    def prepare(_rows: Sequence[Any]) -> Any:
        threads.add(threading.current_thread().name)
        time.sleep(0.003)
        return None

    async def ask() -> None:
        preparing = Preparing("waits", prepare, is_users=True)
        for _ in range(80):
            now_s = time.monotonic()
            request = LiveRequest([1], now_s + 60.0, now_s)
            prepared = await preparing.prepared(request, 10, Stages(), now_s)
            assert prepared.rows is None
        preparing.close()

    asyncio.run(ask())
    assert threads
    assert all(name.startswith("twoshift-prepare-waits") for name in threads)
