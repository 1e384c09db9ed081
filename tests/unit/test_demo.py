"""The demo's verdict: each promise kept or not, with its figure, whatever the machine was busy with."""

from __future__ import annotations

import importlib
import subprocess
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
    for name in ("verdict", "figures", "live", "server", "report"):
        if name not in before:
            sys.modules.pop(name, None)


class Replies:
    """Live traffic that is over."""

    def __init__(self, demo: Any, took_s: float, status: int) -> None:
        self._all = [demo.Reply(float(at), took_s, status) for at in range(10)]

    def between(self, *spans: tuple[float, float]) -> list[Any]:
        return [each for each in self._all if any(begin <= each.due_s < end for begin, end in spans)]


def figures(
    demo: Any, took_s: float = 0.02, status: int = 200, found: int = 500, back_s: float = 6.5, killed_s: float = 4.0,
    job: dict[str, str] | None = None,
) -> Any:  # fmt: skip
    made = sys.modules["figures"]
    lane = made.Lane(10.0, 1.0)
    moments = made.Moments(0.0, 3.0, killed_s, back_s, 6.0, 9.0)
    parity, rows = made.Parity(100, 0.9999, 0.9999), made.Rows(500, found, 0, 0)
    return made.Figures(
        2, 100.0, 10.0, moments, Replies(demo, took_s, status), lane, lane, lane, parity, rows, job or {}, 60.0
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


def test_a_job_that_failed_is_a_verdict_with_its_reason_and_a_report(demo: Any, tmp_path: Path) -> None:
    report: Any = importlib.import_module("report")
    failed = {"state": "failed", "reason": "no call has room for its rows"}
    made = figures(demo, found=0, killed_s=0.0, back_s=0.0, job=failed)
    promises = demo.promises_of(made)
    assert broken(promises) == ["all of 500 rows once", "a killed replica is replaced"]
    assert "the job is failed: no call has room for its rows" in [each.found for each in promises]
    assert "no call has room for its rows" in report.write_report(tmp_path, made, promises).read_text()
    assert sys.modules["figures"].rows_of(tmp_path / "vectors", 500)[0].lost == 500
    assert demo.exit_line(promises, "busy") == "Exit code 1: a promise was not kept."


def test_the_verdict_says_the_exit_code(demo: Any) -> None:
    kept, late = demo.promises_of(figures(demo)), demo.promises_of(figures(demo, took_s=0.3))
    assert [demo.exit_code(kept, ""), demo.exit_code(late, ""), demo.exit_code(late, "busy")] == [0, 1, 0]
    assert demo.exit_line(kept, "") == "Exit code 0: every promise was kept."
    assert demo.exit_line(late, "busy").startswith("Exit code 0: what was not kept is a matter of time")


@pytest.mark.slow
def test_help_starts_nothing(tmp_path: Path) -> None:
    words = [sys.executable, str(DEMO), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path)
    assert "Exit code 1 where a promise was not kept" in " ".join(done.stdout.split())
    assert list(tmp_path.iterdir()) == []
