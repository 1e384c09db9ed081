"""What a caller, or a user's class, gets wrong: said clearly and at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from twoshift.engine import Engine
from twoshift.errors import Broken, BrokenModel, InvalidInput, Late
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.runtime.load import load_model

MODEL = """
class Model:
    def load(self):
        pass

    def predict(self, batch):
        return {"doubled": 2 * batch["x"]}

class First(Model):
    def predict(self, batch):
        return {"doubled": 2 * batch["x"][:1]}
"""
ROWS = [{"x": float(k)} for k in range(40)]


def engine_of(folder: Path, name: str) -> Engine:
    (folder / "model.py").write_text(MODEL)
    return Engine(load_model(f"{folder / 'model.py'}:{name}"), CallCost.line(1e-3, 1e-5), LaneLimits(slo_s=600.0))


def test_a_class_that_returns_too_few_rows_fails_its_calls_and_is_not_tried_row_by_row(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "First")
    try:
        prepared = engine.runtime.prepare(ROWS)
        block, live = engine.submit_block(prepared), engine.submit(prepared, engine.now_s() + 600)
        for future in (block, *live):
            with pytest.raises(BrokenModel, match="one output row per input row"):
                future.result(120)
        assert engine.stats().calls <= 2
        alone = engine.submit(prepared.slice(0, 1), engine.now_s() + 600)  # the engine lives on
        assert alone[0].result(120)["doubled"] == 0
    finally:
        engine.close()


def test_what_cannot_be_submitted_is_told_what_to_do(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "Model")
    prepared = engine.runtime.prepare(ROWS)
    with pytest.raises(InvalidInput, match=r"rows returned by engine\.runtime\.prepare"):
        engine.submit(["raw text"], engine.now_s() + 600)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match=r"rows returned by engine\.runtime\.prepare"):
        engine.submit_block(["raw text"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(Late, match=r"has passed: engine\.now_s\(\) is"):
        engine.submit(prepared, 5.0 - engine.now_s())
    engine.close()
    with pytest.raises(Broken, match="closed"):
        engine.submit(prepared, engine.now_s() + 600)
    with pytest.raises(Broken, match="closed"):
        engine.submit_block(prepared)
