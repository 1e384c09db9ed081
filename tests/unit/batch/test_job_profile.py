"""The profile of a language model that the first of its jobs measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_llm import FakeLlm

from twoshift.types import CallSize
from twoshift.wiring import measuring
from twoshift.wiring.measuring import know_steps
from twoshift.wiring.stored_profiles import stored_profile


def test_the_first_job_of_a_model_measures_its_steps_alone_and_the_next_one_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "_MEASURE_S", 0.01)
    first, second, turns = FakeLlm(), FakeLlm(), list[str]()
    know_steps(first, lambda: turns.append("first"))
    know_steps(second, lambda: turns.append("second"))
    assert turns == ["first"]
    assert not first.inside
    assert not second.steps
    found = stored_profile(first.info)
    assert found is not None
    full = CallSize.uniform(first.shape.max_sequences)
    assert found.cost.seconds(full) == pytest.approx(first.cost.seconds(full), rel=0.1)


def test_a_job_that_waited_for_another_one_uses_what_that_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "_MEASURE_S", 0.01)
    late = FakeLlm()
    know_steps(late, lambda: know_steps(FakeLlm(), lambda: None))
    assert not late.steps
