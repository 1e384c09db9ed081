from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.rollout import (
    Compared,
    Crashed,
    Evidence,
    Keep,
    Promote,
    RollBack,
    RolloutPolicy,
    RolloutSettings,
    Stage,
    Version,
    VersionAnswered,
    Warmed,
    falls_in_share,
    wilson_bounds,
)

UNTIMED = settings(deadline=None)  # a busy machine is not a failure
STABLE, CANARY = Version.STABLE, Version.CANARY

events = st.one_of(
    st.just(Warmed()),
    st.builds(VersionAnswered, st.sampled_from(Version), st.floats(0, 10), st.booleans()),
    st.builds(Compared, st.integers(10, 50), st.integers(0, 10)),
    st.builds(Crashed, st.just(STABLE)),
)


def warm(settings: RolloutSettings | None = None) -> RolloutPolicy:
    policy = RolloutPolicy(settings, now_s=0.0)
    policy.observe(Warmed(), 0.0)
    return policy


def feed(policy: RolloutPolicy, version: Version, latencies_s: Iterable[float], failed: bool = False) -> None:
    for latency_s in latencies_s:
        policy.observe(VersionAnswered(version, latency_s, failed), 1.0)


def draw(rng: random.Random, count: int, scale: float = 1.0) -> list[float]:
    """Latencies of a plausible service: a median of 10 ms and a long tail."""
    return [0.010 * scale * math.exp(rng.gauss(0.0, 0.4)) for _ in range(count)]


def good_evidence(policy: RolloutPolicy, seed: int = 1, requests: int = 1000) -> random.Random:
    rng = random.Random(seed)  # noqa: S311
    feed(policy, STABLE, draw(rng, 5000))
    feed(policy, CANARY, draw(rng, requests))
    policy.observe(Compared(400, 0), 1.0)
    return rng


def test_a_version_that_behaves_like_the_old_one_is_promoted_with_its_figures() -> None:
    policy = warm()
    good_evidence(policy)
    decision = policy.decide(60.0)
    assert isinstance(decision, Promote)
    assert policy.stage is Stage.PROMOTED
    assert [figure.name.split()[0] for figure in decision.figures] == ["failed", "slower", "slower", "disagreed"]
    assert all(figure.is_good for figure in decision.figures)


@pytest.mark.parametrize(
    ("settings", "requests", "now_s", "missing"),
    [
        (RolloutSettings(), 499, 60.0, "499 of 500 requests to the canary"),
        (RolloutSettings(), 1000, 59.0, "59 of 60 s"),
        (RolloutSettings(min_requests=5001), 6000, 60.0, "5000 of 5001 requests to the stable"),
        (RolloutSettings(min_compared=401), 1000, 60.0, "400 of 401 mirrored"),
    ],
)
def test_nothing_is_promoted_without_enough_evidence(
    settings: RolloutSettings, requests: int, now_s: float, missing: str
) -> None:
    policy = warm(settings)
    good_evidence(policy, requests=requests)
    decision = policy.decide(now_s)
    assert isinstance(decision, Keep)
    assert missing in decision.reason


def test_failures_roll_back_at_once_without_waiting_for_the_minimum_of_requests() -> None:
    policy = warm()
    feed(policy, STABLE, [0.01] * 400)
    feed(policy, CANARY, [0.01] * 20, failed=True)
    decision = policy.decide(2.0)
    assert isinstance(decision, RollBack)
    assert decision.reason.startswith("breach: failed 20 of 20")
    assert policy.stage is Stage.ROLLED_BACK


def test_a_handful_of_failures_is_not_yet_a_breach() -> None:
    policy = warm()
    feed(policy, STABLE, [0.01] * 400)
    feed(policy, CANARY, [0.01] * 5, failed=True)
    assert isinstance(policy.decide(2.0), Keep)


def test_a_breach_needs_more_than_bad_luck_at_one_look() -> None:
    policy = warm()
    feed(policy, STABLE, [0.01] * 2000)
    feed(policy, CANARY, [0.01] * 23)
    feed(policy, CANARY, [0.01] * 2, failed=True)
    assert isinstance(policy.decide(2.0), Keep)


def test_a_version_somewhat_worse_than_accepted_is_neither_promoted_nor_kept_for_ever() -> None:
    policy = warm()
    feed(policy, STABLE, [0.01] * 5000)
    feed(policy, CANARY, [0.01] * 490)
    feed(policy, CANARY, [0.01] * 10, failed=True)
    policy.observe(Compared(400, 0), 1.0)
    decision = policy.decide(60.0)
    assert isinstance(decision, Keep)
    assert "failed 10 of 500" in decision.reason
    decision = policy.decide(3600.0)
    assert isinstance(decision, RollBack)
    assert "inconclusive" in decision.reason


def test_warming_twice_does_not_restart_the_clock() -> None:
    policy = warm()
    good_evidence(policy)
    policy.observe(Warmed(), 59.0)
    assert isinstance(policy.decide(60.0), Promote)


def test_failures_that_the_old_version_has_too_are_no_breach() -> None:
    policy = warm()
    for version, requests in ((STABLE, 5000), (CANARY, 2500)):
        feed(policy, version, [0.01] * (requests * 9 // 10))
        feed(policy, version, [0.01] * (requests // 10), failed=True)
    policy.observe(Compared(400, 0), 1.0)
    assert not isinstance(policy.decide(60.0), RollBack)


@pytest.mark.parametrize(("scale", "percentile"), [(2.0, "p50"), (1.5, "p50")])
def test_a_slower_version_is_rolled_back_by_its_percentiles(scale: float, percentile: str) -> None:
    rng, policy = random.Random(3), warm()  # noqa: S311
    feed(policy, STABLE, draw(rng, 5000))
    feed(policy, CANARY, draw(rng, 400, scale))
    decision = policy.decide(5.0)
    assert isinstance(decision, RollBack)
    assert f"slower than the old {percentile}" in decision.reason


def test_a_version_with_the_same_median_and_a_bad_tail_is_rolled_back() -> None:
    rng, policy = random.Random(3), warm()  # noqa: S311
    feed(policy, STABLE, draw(rng, 5000))
    feed(policy, CANARY, [each if n % 8 else 0.5 for n, each in enumerate(draw(rng, 400))])
    decision = policy.decide(5.0)
    assert isinstance(decision, RollBack)
    assert "slower than the old p99" in decision.reason


def test_an_objective_is_watched_as_well_as_the_old_percentiles() -> None:
    policy = warm(RolloutSettings(slo_s=0.05))
    good_evidence(policy)
    decision = policy.decide(60.0)
    assert isinstance(decision, Promote)
    assert "slower than the SLO" in [figure.name for figure in decision.figures]


def test_a_version_that_fails_fast_is_not_taken_for_a_fast_one() -> None:
    policy = warm()
    feed(policy, STABLE, [0.01] * 1000)
    feed(policy, CANARY, [0.0001] * 100, failed=True)
    feed(policy, CANARY, [0.02] * 100)
    slow = [figure for figure in policy.figures() if "p50" in figure.name]
    assert [(figure.seen, figure.of) for figure in slow] == [(100, 100)]


def test_answers_that_disagree_roll_back_at_once() -> None:
    policy = warm()
    policy.observe(Compared(60, 20), 1.0)
    decision = policy.decide(1.0)
    assert isinstance(decision, RollBack)
    assert "disagreed 20 of 60" in decision.reason


def test_without_mirrored_rows_agreement_is_not_required_when_so_configured() -> None:
    rng, policy = random.Random(2), warm(RolloutSettings(min_compared=0))  # noqa: S311
    feed(policy, STABLE, draw(rng, 5000))
    feed(policy, CANARY, draw(rng, 1000))
    assert isinstance(policy.decide(60.0), Promote)


@UNTIMED
@given(st.lists(st.tuples(events, st.floats(0, 5)), max_size=30))
def test_a_crash_of_the_new_version_rolls_back_immediately_from_any_open_stage(
    seen: list[tuple[Evidence, float]],
) -> None:
    policy, now_s = RolloutPolicy(None, 0.0), 0.0
    for event, wait_s in seen:
        now_s += wait_s
        policy.observe(event, now_s)
    policy.observe(Crashed(CANARY, "CUDA error"), now_s)
    assert policy.stage is Stage.ROLLED_BACK
    assert not any(policy.routes_to_canary(key) for key in range(200))
    decision = policy.decide(now_s)
    assert isinstance(decision, RollBack)
    assert "CUDA error" in decision.reason


def test_a_crash_of_the_old_version_says_nothing_about_the_new_one() -> None:
    policy = warm()
    policy.observe(Crashed(STABLE), 1.0)
    assert isinstance(policy.decide(1.0), Keep)


def test_evidence_that_stays_inconclusive_rolls_back_at_the_maximum_time_and_says_so() -> None:
    policy = warm()
    feed(policy, CANARY, [0.01] * 10)
    assert isinstance(policy.decide(3599.0), Keep)
    decision = policy.decide(3600.0)
    assert isinstance(decision, RollBack)
    assert "inconclusive after 3600 s" in decision.reason


def test_a_version_that_never_warms_is_given_up() -> None:
    policy = RolloutPolicy(None, 100.0)
    assert isinstance(policy.decide(1000.0), Keep)
    assert not policy.routes_to_canary(1)
    assert isinstance(policy.decide(1000.5), RollBack)


@UNTIMED
@given(st.lists(st.tuples(events, st.floats(0, 100)), max_size=40), st.lists(events, max_size=10))
def test_a_final_decision_never_changes(seen: list[tuple[Evidence, float]], later: list[Evidence]) -> None:
    policy, now_s = RolloutPolicy(RolloutSettings(min_requests=3, min_compared=0, min_s=0.0), 0.0), 0.0
    for event, wait_s in seen:
        now_s += wait_s
        policy.observe(event, now_s)
        policy.decide(now_s)
    final = policy.decide(now_s + 10_000.0)
    final = policy.decide(now_s + 20_000.0) if isinstance(final, Keep) else final
    assert not isinstance(final, Keep), "every rollout ends"
    for event in [*later, Warmed(), Crashed(CANARY)]:
        policy.observe(event, now_s + 30_000.0)
        assert policy.decide(now_s + 30_000.0) == final


@UNTIMED
@given(st.lists(st.tuples(events, st.floats(0, 100)), max_size=60))
def test_a_promotion_always_has_the_evidence_it_needs(seen: list[tuple[Evidence, float]]) -> None:
    settings = RolloutSettings(
        min_requests=4,
        min_compared=10,
        min_s=30.0,
        error_tolerance=1.0,
        median_tolerance=1.0,
        tail_tolerance=1.0,
        disagreement_limit=1.0,
    )
    policy, now_s, warm_s = RolloutPolicy(settings, 0.0), 0.0, math.inf
    counts, compared = {STABLE: 0, CANARY: 0}, 0
    for event, wait_s in seen:
        now_s += wait_s
        if isinstance(event, Warmed):
            warm_s = min(warm_s, now_s)
        elif isinstance(event, VersionAnswered):
            counts[event.version] += 1
        elif isinstance(event, Compared):
            compared += event.rows
        policy.observe(event, now_s)
        enough = min(counts.values()) >= 4 and compared >= 10 and now_s - warm_s >= 30.0
        decision = policy.decide(now_s)
        assert isinstance(decision, Promote) == enough or isinstance(decision, RollBack)
        if not isinstance(decision, Keep):
            return


@pytest.mark.parametrize("seed", range(4))
def test_like_versions_looked_at_after_every_request_are_not_rolled_back(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    policy = warm(RolloutSettings(min_s=1e4, max_s=1e5, slo_s=0.03))
    stable = iter(draw(rng, 15_000))
    for number, latency_s in enumerate(draw(rng, 1500)):
        for _ in range(10):
            policy.observe(VersionAnswered(STABLE, next(stable), rng.random() < 0.003), 1.0)
        policy.observe(VersionAnswered(CANARY, latency_s, rng.random() < 0.003), 1.0)
        if number % 5 == 0:
            assert isinstance(policy.decide(1.0), Keep)
    policy.observe(Compared(400, 0), 1.0)
    assert isinstance(policy.decide(1e4), Promote)


@UNTIMED
@given(st.integers(), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_key_in_a_share_is_in_every_larger_share(key: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert falls_in_share(key, large) or not falls_in_share(key, small)
    assert not falls_in_share(key, 0.0)


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("stride", [1, 1024, 2**40])
def test_the_canary_takes_its_share_of_keys_and_the_same_ones_each_time(share: float, stride: int) -> None:
    policy, again = warm(RolloutSettings(share=share)), warm(RolloutSettings(share=share))
    keys = [n * stride for n in range(20_000)]
    taken = [policy.routes_to_canary(key) for key in keys]
    assert sum(taken) / len(keys) == pytest.approx(share, rel=0.2)
    assert taken == [again.routes_to_canary(key) for key in keys]


def test_traffic_follows_the_stage() -> None:
    policy = warm()
    good_evidence(policy)
    policy.decide(60.0)
    assert all(policy.routes_to_canary(key) for key in range(100))


@UNTIMED
@given(st.integers(0, 500), st.integers(0, 500), st.floats(0, 6))
def test_the_interval_holds_the_observed_share_and_narrows_with_evidence(good: int, bad: int, z: float) -> None:
    low, high = wilson_bounds(bad, good + bad, z)
    assert 0.0 <= low <= high <= 1.0
    if good + bad:
        assert low - 1e-9 <= bad / (good + bad) <= high + 1e-9
        more_low, more_high = wilson_bounds(10 * bad, 10 * (good + bad), z)
        assert more_high - more_low <= high - low + 1e-9


def test_the_interval_is_wilsons() -> None:
    assert wilson_bounds(10, 100, 1.96) == pytest.approx((0.0552, 0.1744), abs=1e-4)


@pytest.mark.parametrize("name", ["share", "min_requests", "error_tolerance", "max_s", "slow_factor", "slo_s"])
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        RolloutSettings(**{name: -1})


def test_more_disagreements_than_rows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="disagreed"):
        Compared(3, 4)
