"""Background rows that are prepared on the cores of live calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from texts_runtime import INFO, CharacterPreparer, SumRuntime
from twoshift.engine import Engine
from twoshift.engine.gentle_prepare import GentlePreparing, gentle_of
from twoshift.engine.window import Window
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.runtime.encoder.tokens import TokenRows

BESIDE_LIVE = LaneLimits(slo_s=0.1)


@dataclass
class Clock(CharacterPreparer):
    """A row takes a millisecond of the processor to prepare."""

    row_s: float = 0.001
    worked_s: float = 0.0
    rested_s: float = 0.0
    pieces: list[int] = field(default_factory=list[int])

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        self.worked_s += self.row_s * len(rows)
        self.pieces.append(len(rows))
        return super().prepare(rows)

    def rest(self, seconds: float) -> None:
        self.rested_s += seconds

    def gentle(self, has_live: bool) -> GentlePreparing:
        return GentlePreparing(self, lambda: has_live, lambda: self.worked_s, self.rest)


class OnCpu(SumRuntime):
    """Its calls run on the cores on which rows are prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(INFO, device="cpu: none, 2 threads")


def texts(count: int) -> list[str]:
    return [chr(97 + at % 26) * (1 + at % 7) for at in range(count)]


@given(st.integers(1, 300), st.floats(1e-6, 0.01), st.booleans())
def test_rows_in_pieces_are_the_rows_at_once(count: int, row_s: float, has_live: bool) -> None:
    rows, clock = texts(count), Clock(row_s)
    found, expected = clock.gentle(has_live).prepare(rows), CharacterPreparer().prepare(rows)
    assert isinstance(found, TokenRows)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.offsets, expected.offsets)
    assert sum(clock.pieces) == count


def test_beside_live_rows_preparing_has_a_tenth_of_a_core_and_never_keeps_it_for_long() -> None:
    clock = Clock()
    clock.gentle(has_live=True).prepare(texts(400))
    assert clock.worked_s / (clock.worked_s + clock.rested_s) == pytest.approx(0.1, rel=0.02)
    assert max(clock.pieces[1:]) * clock.row_s <= 0.002


def test_without_live_rows_preparing_does_not_rest() -> None:
    clock = Clock()
    clock.gentle(has_live=False).prepare(texts(400))
    assert clock.rested_s == 0.0


def test_several_threads_have_one_share_together() -> None:
    clock, inside, most = Clock(), 0, 0

    def rest(_: float) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1

    preparing = GentlePreparing(clock, lambda: True, lambda: clock.worked_s, rest)
    threads = [threading.Thread(target=preparing.prepare, args=(texts(40),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


@pytest.mark.parametrize(
    ("runtime", "limits", "is_gentle"),
    [(OnCpu, BESIDE_LIVE, True), (OnCpu, LaneLimits(), False), (SumRuntime, BESIDE_LIVE, False)],
)
def test_only_rows_beside_live_ones_on_the_same_cores_are_prepared_gently(
    runtime: type[SumRuntime], limits: LaneLimits, is_gentle: bool
) -> None:
    with Engine(runtime(), CallCost.line(0.001, 1e-5), limits) as engine:
        assert (gentle_of(engine) is not None) == is_gentle


def test_a_window_of_a_served_model_has_the_same_results_and_its_bad_row_is_alone() -> None:
    rows = [*texts(30), "!bad", *texts(30)]
    with Engine(OnCpu(), CallCost.line(0.001, 1e-5), BESIDE_LIVE) as engine:
        window = Window(len(rows))
        window.submit(engine, rows)
        columns = window.columns()
    assert list(window.errors) == [30]
    good = [place for place in range(len(rows)) if place != 30]
    assert columns["sum"][good].tolist() == [float(sum(map(ord, rows[place]))) for place in good]
