"""What a language model's server has learned of its steps is there at the next start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_llm import FakeLlm, prompt_of

from twoshift.errors import InvalidInput
from twoshift.llm_ports import Prompts
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.profile import Profile, relearned_profile
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.profile_keeper import StepProfileKeeper
from twoshift.store.profiles import FileProfiles
from twoshift.types import CallSize
from twoshift.wiring import llm_loading, served_models
from twoshift.wiring.measuring import compared_steps
from twoshift.wiring.stored_profiles import profile_of, profiles, stored_profile

TRUE = FakeLlm().cost
BUSY = TRUE.scaled(4.0)
TILTED = replace(TRUE, per_token_s=6 * TRUE.per_token_s)
SIZES = compared_steps(FakeLlm().shape)
PROFILE = Profile("m", TRUE, "2026-01-01T00:00:00+00:00", 40, checksum="sum")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileProfiles:
    """Of a home of its own, where `load_llm` gives a language model of arithmetic."""
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr(llm_loading, "load_llm", lambda *_: FakeLlm())
    return FileProfiles(tmp_path / "profiles")


def served(said: list[str], **objective: Any) -> ServedLlm:
    return served_models.served_llm("fake", ModelSettings(model="fake", **objective), said.append)


def generate(model: ServedLlm, rounds: int = 40) -> None:
    """Prompts of many lengths."""
    for number in range(rounds):
        made = [prompt_of(*range(number, number + length), max_tokens=12) for length in (1, 3, 9, 27)]
        model.engine.submit_block(Prompts(tuple(made))).result()


def off(cost: CallCost) -> list[float]:
    return [cost.seconds(size) / TRUE.seconds(size) for size in SIZES]


def test_a_server_begins_with_the_curve_that_the_last_one_has_learned(store: FileProfiles) -> None:
    profiles().put(replace(profile_of(FakeLlm.info, BUSY, RowSize.uniform(1), 40), live_cost=BUSY))
    first = served(said := [])
    assert first.engine.cost() == BUSY
    generate(first)
    first.close()
    stored = stored_profile(FakeLlm.info)
    assert stored is not None
    assert off(stored.cost) == pytest.approx([1.0] * 3, rel=0.15)
    again = served(said)
    assert again.engine.cost() == stored.cost
    again.close()
    assert said == ["Loading fake"] * 2, "nothing is measured"
    assert stored_profile(FakeLlm.info) == stored


@pytest.mark.slow
def test_a_stored_curve_that_is_too_slow_for_the_objective_does_not_keep_a_server_from_starting(
    store: FileProfiles,
) -> None:
    profiles().put(profile_of(FakeLlm.info, TRUE.scaled(100.0), RowSize.uniform(1), 40))
    served(said := [], ttft_ms=3000, tpot_ms=300).close()
    assert any("cannot meet the objective" in each for each in said)
    stored = stored_profile(FakeLlm.info)
    assert stored is not None
    assert stored.cost.seconds(CallSize.uniform(1)) < 0.3
    with pytest.raises(InvalidInput, match="tpot_ms"):
        served(said, ttft_ms=3000, tpot_ms=1)


def test_what_was_only_a_guess_is_stored_once_something_was_learned(tmp_path: Path) -> None:
    store, guess, learned = FileProfiles(tmp_path), replace(PROFILE, samples=0), [TRUE]
    keeper = StepProfileKeeper(guess, lambda: (learned[0], None), SIZES, store)
    keeper.look()
    assert store.names() == []
    learned[0] = TRUE.scaled(1.2)
    keeper.close()
    assert store.get("m").cost == TRUE.scaled(1.2)


def test_a_profile_that_somebody_has_removed_stays_away(tmp_path: Path) -> None:
    store = FileProfiles(tmp_path)
    StepProfileKeeper(PROFILE, lambda: (TRUE.scaled(0.5), None), SIZES, store).look()
    assert store.names() == []


@pytest.mark.parametrize(
    ("learned", "can_slow", "is_stored"),
    [
        (TRUE.scaled(1.05), True, False),  # about the same
        (TRUE.scaled(0.8), False, True),
        (TRUE.scaled(1.3), True, True),
        (TRUE.scaled(1.3), False, False),  # somebody has measured since, in a better moment
        (TILTED, True, True),  # another shape
        (replace(TILTED, overhead_s=0.001), False, False),  # quicker here, slower there
    ],
)
def test_a_curve_is_stored_where_it_says_something_else_by_now(
    learned: CallCost, can_slow: bool, is_stored: bool
) -> None:
    assert relearned_profile(PROFILE, (None, None), SIZES, "now", can_slow) is None
    found = relearned_profile(PROFILE, (learned, None), SIZES, "now", can_slow)
    assert found == (replace(PROFILE, cost=learned, created_at="now") if is_stored else None)
    found = relearned_profile(PROFILE, (None, learned), SIZES, "now", can_slow)
    assert found == (replace(PROFILE, live_cost=learned, created_at="now") if is_stored else None)
