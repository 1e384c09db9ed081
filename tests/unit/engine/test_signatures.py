"""Rows of different types or sizes never share a call, and do not break the calls of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.engine import Engine
from twoshift.engine.signatures import Signatures
from twoshift.engine.window import Window
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.runtime.load import load_model

SOURCE = """
class Doubler:
    def load(self):
        pass

    def predict(self, batch):
        return {"doubled": (2 * batch["x"]).reshape(len(batch["x"]), -1).sum(axis=1)}
"""
ROWS: dict[str, list[Any]] = {
    "types": [1, 2.5],
    "sizes": [np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0])],
    "both": [np.array([1, 2]), np.array([1.0, 2.0]), 3, 4.5],
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Over a class that takes rows of any type and size; the test turns the crank."""
    path = tmp_path / "doubler.py"
    path.write_text(SOURCE)
    runtime = load_model(f"{path}:Doubler")
    with Engine(runtime, CallCost.line(1e-4, 1e-6), LaneLimits(max_rows=64, slo_s=1000.0), start=False) as made:
        yield made


def crank(engine: Engine) -> None:
    while engine._policy.background or len(engine._policy.live):
        engine.step(0.0)


def doubled(row: Any) -> float:
    return float(2 * np.sum(row))


@pytest.mark.parametrize("kinds", ROWS)
def test_live_rows_of_each_signature_have_calls_of_their_own_and_none_fails(engine: Engine, kinds: str) -> None:
    rows = ROWS[kinds] * 20
    asked = [engine.submit(engine.runtime.prepare([{"x": row}]), engine.now_s() + 500) for row in rows]
    crank(engine)
    assert [float(future.result()["doubled"]) for (future,) in asked] == [doubled(row) for row in rows]
    assert engine.stats().calls == len(ROWS[kinds])
    assert {future.result().call_rows for (future,) in asked} == {20}


@pytest.mark.parametrize("kinds", ROWS)
def test_blocks_of_each_signature_have_calls_of_their_own_and_none_fails(engine: Engine, kinds: str) -> None:
    rows = ROWS[kinds] * 20
    asked = [engine.submit_block(engine.runtime.prepare([{"x": row}])) for row in rows]
    crank(engine)
    assert [float(future.result().columns["doubled"][0]) for future in asked] == [doubled(row) for row in rows]
    assert engine.stats().calls == len(ROWS[kinds])


def test_a_jobs_rows_of_different_sizes_are_run_together_by_size(engine: Engine) -> None:
    rows = [{"x": [1.0] * (1 + place % 3)} for place in range(60)]
    window = Window(len(rows))
    window.submit(engine, rows)
    crank(engine)
    assert window.columns()["doubled"].tolist() == [doubled(row["x"]) for row in rows]
    assert not window.errors
    assert engine.stats().calls == 3


def test_background_rows_ride_only_with_live_rows_of_their_signature(engine: Engine) -> None:
    live = engine.submit(engine.runtime.prepare([{"x": 1}]), engine.now_s() + 500)
    other = engine.submit_block(engine.runtime.prepare([{"x": 2.5}] * 3))
    alike = engine.submit_block(engine.runtime.prepare([{"x": 2}] * 3))
    crank(engine)
    assert live[0].result().call_rows == 4
    assert alike.result().columns["doubled"].dtype == np.int64
    assert other.result().columns["doubled"].tolist() == [5.0] * 3


def test_texts_of_any_width_share_a_call(tmp_path: Path) -> None:
    path = tmp_path / "words.py"
    path.write_text(
        "import numpy as np\n"
        "class Words:\n"
        "    def load(self): pass\n"
        "    def prepare(self, rows): return {'word': np.array([row['word'] for row in rows])}\n"
        "    def predict(self, batch): return {'size': np.char.str_len(batch['word'])}\n"
    )
    runtime = load_model(f"{path}:Words")
    with Engine(runtime, CallCost.line(1e-4, 1e-6), LaneLimits(slo_s=1000.0), start=False) as engine:
        words = ["a", "word", "of", "another", "width"]
        asked = [engine.submit(runtime.prepare([{"word": word}]), engine.now_s() + 500)[0] for word in words]
        crank(engine)
        assert [future.result()["size"] for future in asked] == [len(word) for word in words]
        assert engine.stats().calls == 1


def test_columns_in_another_order_share_a_call(engine: Engine) -> None:
    both = [engine.runtime.prepare([row]) for row in ({"x": 1, "y": 2.0}, {"y": 2.0, "x": 1})]
    assert both[0].signature == both[1].signature
    assert both[0].signature != engine.runtime.prepare([{"x": 1, "y": 2}]).signature


def test_signatures_are_remembered_within_bounds_and_numbers_never_come_twice() -> None:
    signatures = Signatures()
    numbers = [signatures.number(("x", size)) for size in range(5000)]
    assert len(set(numbers)) == 5000
    assert signatures.number(None) == 0 < min(numbers)
    assert signatures.number(("x", 4999)) == numbers[-1]
    assert len(signatures._numbers) <= 1024
    assert all(a < b for a, b in itertools.pairwise(numbers))
