"""Copies of live requests, answered by a candidate in idle time and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")

import asyncio

from two_versions import Asking, two_versions

from twoshift.errors import InvalidInput
from twoshift.policy.rollout_values import Compared
from twoshift.serve.rollout_table import RolloutTable
from twoshift.serve.shadow import Shadow, compare_function, shadow_of


async def compared(on: Asking, table: RolloutTable, requests: int = 3) -> tuple[list[Compared], Shadow]:
    shadow = on.split.shadow = shadow_of(table, on.split, asyncio.get_running_loop())
    found = list[Compared]()
    for _ in range(requests):
        wanted = len(found) + 1
        await on.ask()
        while len(found) < wanted:
            found += shadow.taken()
            await asyncio.sleep(0.001)
    on.split.shadow = None
    shadow.close()
    return found, shadow


def run(table: RolloutTable, check: Callable[[list[Compared], Shadow], None], error: str = "") -> None:
    async def asking(on: Asking) -> None:
        check(*await compared(on, table))

    with two_versions() as made:
        made.models[1].error = error
        made.run(asking)


def test_answers_that_differ_more_than_the_bound_disagree() -> None:
    def check(found: list[Compared], shadow: Shadow) -> None:
        assert [(each.rows, each.disagreed, each.failed) for each in found] == [(1, 1, False)] * 3
        assert all(each.candidate_s is not None and each.stable_s is not None for each in found)
        assert shadow.differences().rows == 3
        assert shadow.differences().mean == pytest.approx(1 / 3)

    run(RolloutTable(max_difference=0.3), check)


def test_within_the_bound_or_without_one_they_agree_and_are_shown() -> None:
    def check(found: list[Compared], shadow: Shadow) -> None:
        assert [each.disagreed for each in found] == [0] * 3
        assert shadow.differences().p50 == pytest.approx(1 / 3, rel=0.05)

    run(RolloutTable(max_difference=0.4), check)
    run(RolloutTable(), check)


def test_a_candidate_that_fails_where_the_other_has_answered_is_told() -> None:
    def check(found: list[Compared], _shadow: Shadow) -> None:
        assert [(each.disagreed, each.failed) for each in found] == [(1, True)] * 3

    run(RolloutTable(), check, error="broken")


def test_a_users_function_says_how_far_answers_are_apart(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "def far(row, stable, candidate):\n    return abs(stable['product'] - candidate['product']) / 100\n"
    )

    def check(_found: list[Compared], shadow: Shadow) -> None:
        assert shadow.differences().worst == pytest.approx(0.1)

    run(RolloutTable(compare=f"{source}:far", max_difference=0.2), check)
    for word in (f"{source}:near", f"{tmp_path}/no.py:far", "far", f"{source}:"):
        with pytest.raises(InvalidInput, match=r"file\.py:function"):
            compare_function(word)


def test_what_there_is_no_idle_time_or_no_room_for_is_let_go() -> None:
    async def asking(on: Asking) -> None:
        class Busy:
            def waiting(self) -> Mapping[Any, Any]:
                raise InvalidInput("model", "m", "one that is there")

        shadow = Shadow(lambda: Busy(), on.split.candidate.backend, asyncio.get_running_loop(), None)  # type: ignore[arg-type, return-value]
        on.split.shadow = shadow
        for _ in range(5):
            await on.ask()
        while shadow.let_go < 5:
            await asyncio.sleep(0.001)
        shadow.close()
        assert shadow.taken() == []
        for _ in range(100):
            await on.ask()
        assert shadow.let_go >= 100 - 32 + 5  # nobody takes them: 32 wait, and no more

    with two_versions() as made:
        made.run(asking)


def test_what_another_process_has_compared_is_counted_with_its_own() -> None:
    def check(_found: list[Compared], shadow: Shadow) -> None:
        told = shadow.taken_differences()
        assert told is not None
        assert shadow.taken_differences() is None
        shadow.heard([Compared(1, 0)], told)
        assert (shadow.taken(), shadow.differences().rows) == ([Compared(1, 0)], 3)

    run(RolloutTable(), check)
