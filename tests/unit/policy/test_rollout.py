from __future__ import annotations

from twoshift.policy.rollout import (
    Advance,
    Keep,
    RollBack,
    RolloutPolicy,
    RolloutSettings,
    Stage,
    Version,
    VersionAnswered,
    Warmed,
)


def test_a_warm_candidate_begins_at_the_first_share() -> None:
    policy = RolloutPolicy(RolloutSettings(shadow=False), 0.0)
    assert isinstance(policy.decide(1.0), Keep)
    policy.observe(Warmed(), 2.0)
    decision = policy.decide(2.0)
    assert isinstance(decision, Advance)
    assert decision.share == 0.01
    assert (policy.stage, policy.share) == (Stage.LADDER, 0.01)


def test_two_failures_of_ten_are_enough() -> None:
    policy = RolloutPolicy(RolloutSettings(shadow=False), 0.0)
    policy.observe(Warmed(), 0.0)
    policy.decide(0.0)
    for number in range(1000):
        candidate = number % 100 == 0
        version = Version.CANDIDATE if candidate else Version.STABLE
        policy.observe(VersionAnswered(version, 0.01, failed=number in (400, 900)), number / 100)
        if isinstance(policy.decide(number / 100), RollBack):
            break
    assert number == 900
