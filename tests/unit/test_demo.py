"""The demo's verdict: each promise kept or not, with its figure, whatever the machine was busy with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Its modules, which are a program's and not a package's."""
    monkeypatch.syspath_prepend(str(DEMO))
    before = set(sys.modules)
    import verdict  # pyright: ignore[reportMissingImports]

    yield verdict
    for name in ("verdict", "figures", "live", "server"):
        if name not in before:
            sys.modules.pop(name, None)


class Replies:
    """Live traffic that is over."""

    def __init__(self, demo: Any, took_s: float, status: int) -> None:
        self._all = [demo.Reply(float(at), took_s, status) for at in range(10)]

    def between(self, *spans: tuple[float, float]) -> list[Any]:
        return [each for each in self._all if any(begin <= each.due_s < end for begin, end in spans)]


def figures(demo: Any, took_s: float = 0.02, status: int = 200, found: int = 500, back_s: float = 6.5) -> Any:
    made = sys.modules["figures"]
    lane = made.Lane(10.0, 1.0)
    moments = made.Moments(0.0, 3.0, 4.0, back_s, 6.0, 9.0)
    parity, rows = made.Parity(100, 0.9999, 0.9999), made.Rows(500, found, 0, 0)
    return made.Figures(
        2, 100.0, 10.0, moments, Replies(demo, took_s, status), lane, lane, lane, parity, rows, {}, 60.0
    )


def broken(promises: list[Any]) -> list[str]:
    return [each.what for each in promises if not each.kept]


def test_every_promise_that_was_kept_says_its_figure(demo: Any) -> None:
    promises = demo.promises_of(figures(demo))
    assert broken(promises) == []
    assert [each.found for each in promises][:2] == ["20.0 of 100 ms"] * 2
    assert "after 2.5 s" in [each.found for each in promises]


def test_late_answers_are_a_broken_promise_that_a_busy_machine_may_explain(demo: Any) -> None:
    promises = demo.promises_of(figures(demo, took_s=0.3))
    assert broken(promises) == ["live p99 without the job", "live p99 with the job"]
    assert all(each.is_timed for each in promises if not each.kept)


def test_no_answer_at_all_is_a_verdict_and_no_traceback(demo: Any) -> None:
    promises = demo.promises_of(figures(demo, status=504, back_s=0.0))
    assert [each.found for each in promises][:2] == ["no answer"] * 2
    assert "a killed replica is replaced" in broken(promises)


def test_a_lost_row_is_nobodys_fault_but_ours(demo: Any) -> None:
    (lost,) = [each for each in demo.promises_of(figures(demo, found=499)) if not each.kept]
    assert (lost.found, lost.is_timed) == ("1 lost, 0 twice", False)


def test_a_machine_with_other_work_is_said_to_be_busy(demo: Any) -> None:
    assert "load of 9.1 on 2 cores" in demo.busy_machine(9.1, 2)
    assert demo.busy_machine(0.3, 2) == ""
