from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twoshift.errors import InvalidInput
from twoshift.policy.rollout_journal import rollout_replay
from twoshift.policy.rollout_values import Keep, RolloutSettings, Stage
from twoshift.sim.rollout import SCENARIOS, RolloutSpec, simulate_rollout, simulate_rollouts

SETTINGS = RolloutSettings(disagreement_bound=0.02, slo_s=0.08)
SPEC = RolloutSpec(settings=SETTINGS, most_requests=20_000)
LIVE = replace(SPEC, settings=replace(SETTINGS, shadow=False))


def scenario(name: str, spec: RolloutSpec = SPEC) -> RolloutSpec:
    return replace(spec, **SCENARIOS[name][1])


@pytest.mark.parametrize("name", ["broken", "failing", "slow", "slower", "different"])
def test_a_worse_candidate_is_caught_in_the_shadow(name: str) -> None:
    study = simulate_rollouts(scenario(name), 5)
    assert study.share_of(Stage.ROLLED_BACK) == 1
    assert study.median("exposed") == 0


@pytest.mark.parametrize("name", ["same", "slightly-worse"])
@pytest.mark.slow
def test_a_candidate_that_is_as_good_is_promoted(name: str) -> None:
    study = simulate_rollouts(scenario(name, replace(SPEC, most_requests=60_000)), 3)
    assert study.share_of(Stage.PROMOTED) == 1
    assert study.median("largest_share") == 0.25


def test_without_the_shadow_few_callers_meet_a_broken_candidate() -> None:
    study = simulate_rollouts(scenario("broken", LIVE), 20)
    assert study.share_of(Stage.ROLLED_BACK) == 1
    assert sum(run.exposed for run in study.runs) / 20 < 20
    assert study.median("failed") == 2


def test_at_a_high_rate_it_is_not_the_next_look_that_ends_it() -> None:
    study = simulate_rollouts(scenario("broken", replace(LIVE, rate_per_s=10_000.0)), 10)
    assert study.median("exposed") < 20


def test_what_both_versions_fail_rolls_nothing_back() -> None:
    study = simulate_rollouts(scenario("both-fail", replace(LIVE, most_requests=8000)), 4)
    assert study.share_of(Stage.ROLLED_BACK) == 0


def test_low_traffic_is_waited_for() -> None:
    run = simulate_rollout(scenario("low-traffic"))
    assert isinstance(run.decision, Keep)
    assert run.stage is Stage.SHADOW
    assert "more" in run.decision.reason


@pytest.mark.parametrize("spec", [SPEC, LIVE, replace(LIVE, clients=200)], ids=["shadow", "live", "few clients"])
@pytest.mark.slow
def test_a_version_compared_with_itself_is_seldom_rolled_back(spec: RolloutSpec) -> None:
    study = simulate_rollouts(replace(spec, stable_failures=0.01, candidate_failures=0.01, most_requests=5000), 12)
    assert sum(run.stage is Stage.ROLLED_BACK for run in study.runs) <= 1


def test_the_same_seed_gives_the_same_rollout_and_its_record_replays() -> None:
    entries = list[list[Any]]()
    spec = replace(SPEC, most_requests=4000)
    assert simulate_rollout(spec, sink=entries.append) == simulate_rollout(spec)
    replayed = list(rollout_replay(entries))
    assert replayed
    assert not any(step.differs for step in replayed)


@pytest.mark.parametrize("name", ["rate_per_s", "stable_failures", "slower", "clients", "most_requests", "tail"])
def test_traffic_that_makes_no_sense_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        RolloutSpec(**{name: -1})  # type: ignore[arg-type]
