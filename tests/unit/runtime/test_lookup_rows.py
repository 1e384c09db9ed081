"""Rows that are looked up: live ones beside those of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from twoshift.errors import InvalidInput, TryLater
from twoshift.runtime.lookups import Lookups


async def looked_up(row: Any) -> Any:
    if row == "hang":
        await asyncio.sleep(3600)
    if row == "down":
        raise ConnectionRefusedError("nobody is there")
    if row == "bad":
        raise KeyError("user")
    return f"{row}!"


@pytest.fixture
def lookups() -> Iterator[Lookups]:
    made = Lookups(looked_up)
    yield made
    made.close()


def test_live_rows_do_not_wait_for_a_jobs(lookups: Lookups) -> None:
    job = lookups.begin(["hang"] * 2000, live=False)
    assert lookups.begin(["a", "b"], live=True).result(120) == ["a!", "b!"]
    job.cancel()


def test_a_row_at_fault_is_named_and_a_store_that_is_down_blames_none(lookups: Lookups) -> None:
    with pytest.raises(InvalidInput, match="row 1"):
        lookups.begin(["a", "bad"], live=True).result(120)
    with pytest.raises(TryLater, match="nobody is there"):
        lookups.begin(["down"], live=False).result(120)


def test_what_is_cancelled_gives_its_room_back(lookups: Lookups) -> None:
    for _ in range(3):
        lookups.begin(["hang"] * 300, live=True).cancel()
    assert lookups.begin(["a"], live=True).result(120) == ["a!"]
