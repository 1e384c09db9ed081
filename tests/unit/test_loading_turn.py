"""Who waits for whom while models load."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from twoshift.errors import Broken
from twoshift.runtime.load_limit import load_within
from twoshift.wiring import loading_turn
from twoshift.wiring.loading_turn import LoadingTurn


@pytest.fixture(autouse=True)
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr(loading_turn, "_LONGEST_S", 1e9)  # who waits in vain never comes back


def test_a_model_that_loads_is_waited_for() -> None:
    first, second, order = LoadingTurn(), LoadingTurn(), list[str]()

    def measure() -> None:
        with second:
            second.alone()
            order.append("second")

    with first:
        other = threading.Thread(target=measure)
        other.start()
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def test_a_model_whose_time_is_over_is_waited_for_by_nobody() -> None:
    go_on, discarded = threading.Event(), threading.Event()

    def hang() -> str:
        with LoadingTurn() as turn:
            go_on.wait()
            turn.alone()
        return "late"

    with pytest.raises(Broken, match="was not loaded within"):
        load_within("m", 0.01, hang, lambda _: discarded.set(), Future())
    with LoadingTurn() as turn:
        turn.alone()
        go_on.set()
        discarded.wait()  # it has no turn any more, and does not wait for this one's


@pytest.mark.parametrize("limit_s", [None, 1e6])
def test_a_model_that_hangs_is_waited_for_by_nobody_once_it_was_cancelled(limit_s: float | None) -> None:
    go_on, has_turn, cancelled, discarded = threading.Event(), threading.Event(), Future[None](), threading.Event()

    def hang() -> str:
        with LoadingTurn():
            has_turn.set()
            go_on.wait()
        return "late"

    def cancel() -> None:
        has_turn.wait()
        cancelled.set_result(None)

    threading.Thread(target=cancel).start()
    with pytest.raises(Broken, match="loading was cancelled"):
        load_within("m", limit_s, hang, lambda _: discarded.set(), cancelled)
    with LoadingTurn() as turn:
        turn.alone()  # the test ends here only if the other one holds nothing
    go_on.set()
    discarded.wait()
