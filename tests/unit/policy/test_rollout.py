from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.rollout import RolloutPolicy, falls_in_share
from twoshift.policy.rollout_values import (
    Advance,
    Compared,
    Crashed,
    Evidence,
    Keep,
    Paused,
    Promote,
    PromoteAsked,
    Resumed,
    RollBack,
    RollBackAsked,
    RolloutDecision,
    RolloutSettings,
    Stage,
    Version,
    VersionAnswered,
    Warmed,
)

UNTIMED = settings(deadline=None)  # a busy machine is not a failure
STABLE, CANDIDATE = Version.STABLE, Version.CANDIDATE
LIVE = RolloutSettings(shadow=False)
SHADOW = RolloutSettings(disagreement_bound=0.02)

events = st.one_of(
    st.just(Warmed()),
    st.builds(VersionAnswered, st.sampled_from(Version), st.floats(0, 10), st.booleans()),
    st.builds(Compared, st.integers(10, 50), st.integers(0, 10)),
    st.builds(Crashed, st.just(STABLE)),
    st.sampled_from([Paused(), Resumed()]),
)


def warm(settings: RolloutSettings = LIVE) -> RolloutPolicy:
    policy = RolloutPolicy(settings, now_s=0.0)
    policy.observe(Warmed(), 0.0)
    policy.decide(0.0)
    return policy


class Traffic:
    """Live requests at 100 a second, and a look after each second."""

    def __init__(self, policy: RolloutPolicy, seed: int = 1, rate_per_s: float = 100.0) -> None:
        self.policy = policy
        self.now_s = 0.0
        self._rng = random.Random(seed)  # noqa: S311
        self._step_s = 1 / rate_per_s
        self.exposed = self.failed = 0

    def latency_s(self, scale: float = 1.0) -> float:
        return 0.010 * scale * math.exp(self._rng.gauss(0.0, 0.4))

    def send(self, requests: int, *, fails: float = 0.001, stable_fails: float = 0.001, scale: float = 1.0) -> None:
        for _ in range(requests):
            self.now_s += self._step_s
            by_candidate = falls_in_share(self._rng.getrandbits(60), self.policy.share)
            failed = self._rng.random() < (fails if by_candidate else stable_fails)
            self.exposed += by_candidate
            self.failed += by_candidate and failed
            version, latency_s = (
                (CANDIDATE, self.latency_s(scale)) if by_candidate else (STABLE, self.latency_s())
            )  # fmt: skip
            self.policy.observe(VersionAnswered(version, latency_s, failed), self.now_s)
            if self.policy.is_urgent:
                return

    def run(self, most: int = 40_000, **how: float) -> list[RolloutDecision]:
        """All decisions but those to keep, and the last."""
        made = list[RolloutDecision]()
        decision = self.policy.decide(self.now_s)
        for _ in range(0, most, 100):
            self.send(100, **how)
            decision = self.policy.decide(self.now_s)
            made += [] if isinstance(decision, Keep) else [decision]
            if self.policy.stage.is_final:
                return made
        return [*made, decision]


def compare(policy: RolloutPolicy, copies: Iterable[Compared], per_s: float = 10.0) -> RolloutDecision:
    now_s, decision = 0.0, policy.decide(0.0)
    for number, copy in enumerate(copies):
        now_s = number / per_s
        policy.observe(copy, now_s)
        decision = policy.decide(now_s)
        if policy.stage is not Stage.SHADOW:
            break
    return decision


def test_a_warm_candidate_begins_at_the_first_share() -> None:
    policy = RolloutPolicy(LIVE, 0.0)
    assert isinstance(policy.decide(1.0), Keep)
    policy.observe(Warmed(), 2.0)
    assert (policy.stage, policy.share) == (Stage.LOADING, 0.0)
    decision = policy.decide(2.0)
    assert isinstance(decision, Advance)
    assert (decision.share, policy.stage, policy.share) == (0.01, Stage.LADDER, 0.01)


def test_a_candidate_like_the_stable_version_climbs_the_ladder_and_is_promoted() -> None:
    traffic = Traffic(warm())
    made = traffic.run()
    assert [each.share for each in made if isinstance(each, Advance)] == [0.05, 0.25]
    assert isinstance(made[-1], Promote)
    assert (traffic.policy.stage, traffic.policy.share) == (Stage.PROMOTED, 1.0)
    names = [figure.name for figure in made[-1].figures]
    assert names == ["failed", "slower than the stable p50", "slower than the stable p99"]
    assert all(figure.is_shown for figure in made[-1].figures)


def test_two_failures_of_ten_are_enough_to_roll_back() -> None:
    policy, number = warm(), 0
    while not policy.is_urgent and number < 1000:
        number += 1
        version = CANDIDATE if number % 100 == 0 else STABLE
        policy.observe(VersionAnswered(version, 0.01, failed=number in (400, 1000)), number / 100)
    assert number == 1000
    decision = policy.decide(10.0)
    assert isinstance(decision, RollBack)
    assert "failed 2 of 10 (stable 0 of 990)" in decision.reason
    assert (policy.stage, policy.share) == (Stage.ROLLED_BACK, 0.0)


@pytest.mark.parametrize(("fails", "most_exposed", "most_failures"), [(0.2, 20, 3.0), (0.05, 110, 4.0)])
@pytest.mark.slow
def test_a_candidate_that_fails_is_gone_after_few_requests(
    fails: float, most_exposed: float, most_failures: float
) -> None:
    exposed = failed = 0
    for seed in range(20):
        traffic = Traffic(warm(), seed)
        made = traffic.run(fails=fails)
        assert isinstance(made[-1], RollBack)
        exposed, failed = exposed + traffic.exposed, failed + traffic.failed
    assert exposed / 20 <= most_exposed
    assert failed / 20 <= most_failures


def test_one_failure_is_not_enough() -> None:
    policy = warm()
    policy.observe(VersionAnswered(CANDIDATE, 0.01, failed=True), 1.0)
    assert not policy.is_urgent
    assert isinstance(policy.decide(1.0), Keep)


def test_failures_that_both_versions_have_roll_nothing_back() -> None:
    traffic = Traffic(warm())
    traffic.run(5000, fails=0.1, stable_fails=0.1)
    traffic.send(3000, fails=0.9, stable_fails=0.9)
    made = traffic.run(5000, fails=0.1, stable_fails=0.1)
    assert not any(isinstance(each, RollBack) for each in made)
    assert traffic.policy.evidence < 100


def test_a_candidate_that_breaks_after_an_outage_of_both_is_still_found_out() -> None:
    traffic = Traffic(warm())
    traffic.send(5000, fails=0.5, stable_fails=0.5)
    before = traffic.exposed
    made = traffic.run(fails=1.0)
    assert isinstance(made[-1], RollBack)
    assert traffic.exposed - before < 20


def test_a_slower_candidate_is_rolled_back_by_its_percentiles() -> None:
    traffic = Traffic(warm(), 3)
    made = traffic.run(scale=2.0)
    assert isinstance(made[-1], RollBack)
    assert "slower than the stable p50" in made[-1].reason
    assert traffic.exposed < 100


def test_a_bad_second_of_the_candidate_is_one_observation_of_its_latency() -> None:
    traffic = Traffic(warm())
    traffic.send(2000)
    before = traffic.policy.evidence
    for _ in range(500):
        traffic.policy.observe(VersionAnswered(CANDIDATE, 5.0), traffic.now_s)
    traffic.now_s += 2.0
    traffic.send(200)
    assert traffic.policy.evidence < 3 * before + 3


def test_slowness_that_both_versions_have_is_none_of_the_candidate() -> None:
    traffic = Traffic(warm())
    traffic.send(2000)
    for _ in range(100):
        traffic.now_s += 1.0
        for version in (STABLE, CANDIDATE, STABLE):
            traffic.policy.observe(VersionAnswered(version, traffic.latency_s(5.0)), traffic.now_s)
    assert isinstance(traffic.policy.decide(traffic.now_s), Keep | Advance)
    assert traffic.policy.evidence < 10


def test_an_objective_is_watched_as_well_as_the_stable_percentiles() -> None:
    traffic = Traffic(warm(RolloutSettings(shadow=False, slo_s=0.03)))
    traffic.send(5000)
    assert "slower than the SLO" in [figure.name for figure in traffic.policy.figures()]


def test_a_version_that_fails_fast_is_not_taken_for_a_fast_one() -> None:
    traffic = Traffic(warm())
    traffic.send(1000)
    for _ in range(50):
        traffic.policy.observe(VersionAnswered(CANDIDATE, 0.0001, failed=True), traffic.now_s)
    slow = next(figure for figure in traffic.policy.figures() if "p50" in figure.name)
    assert slow.of < 50


def test_little_traffic_is_waited_for_however_long_and_said() -> None:
    policy = warm()
    decision = policy.decide(0.0)
    for hour in range(24 * 7):
        for version in (STABLE, STABLE, CANDIDATE)[: 3 if hour % 24 == 0 else 2]:
            policy.observe(VersionAnswered(version, 0.01), hour * 3600.0)
        decision = policy.decide(hour * 3600.0)
        assert isinstance(decision, Keep)
    assert decision.reason.startswith("missing evidence: failed 0 of 7 (stable 0 of 336), limit 20.00%: about ")
    assert "live requests at a share of 1%" in decision.reason
    assert decision.figures[0].missing


def test_keys_of_which_none_is_in_the_share_are_told() -> None:
    policy = warm()
    for number in range(1000):
        policy.observe(VersionAnswered(STABLE, 0.01), number / 10)
    decision = policy.decide(100.0)
    assert isinstance(decision, Keep)
    assert "none of 1,000 requests fell into its share of 1%" in decision.reason


def test_time_alone_moves_nothing() -> None:
    policy = warm()
    assert isinstance(policy.decide(1e9), Keep)


def test_evidence_alone_does_not_shorten_the_least_time_of_a_step() -> None:
    traffic = Traffic(warm(RolloutSettings(shadow=False, min_step_s=3600.0)))
    decision = traffic.run(20_000)[-1]
    assert isinstance(decision, Keep)
    assert "200 of 3600 s have passed" in decision.reason


def test_a_candidate_within_the_tolerance_at_a_small_share_must_be_better_for_a_larger_one() -> None:
    traffic = Traffic(warm(), 5)
    made = traffic.run(60_000, fails=0.015, stable_fails=0.001)
    assert not any(isinstance(each, Promote) for each in made)


def test_without_a_bound_differences_are_shown_and_decide_nothing() -> None:
    policy = warm(RolloutSettings())
    decision = compare(policy, [Compared(1, 1)] * 100)
    assert isinstance(decision, Advance)
    shown = next(figure for figure in decision.figures if figure.name == "disagreed")
    assert (shown.seen, shown.of, shown.evidence, shown.accepted) == (shown.of, shown.of, 0.0, None)


def test_answers_that_disagree_are_caught_in_the_shadow() -> None:
    policy = warm(SHADOW)
    decision = compare(policy, [Compared(1, int(number % 5 == 0)) for number in range(200)])
    assert isinstance(decision, RollBack)
    assert "disagreed" in decision.reason


def test_evidence_that_was_enough_between_two_looks_stays_enough() -> None:
    policy = warm(SHADOW)
    while not policy.is_urgent:
        policy.observe(Compared(1, 1), 1.0)
    for _ in range(2000):
        policy.observe(Compared(1, 0), 1.0)
    assert policy.evidence < 100
    assert isinstance(RolloutPolicy.restored(SHADOW, policy.state()).decide(2.0), RollBack)
    assert isinstance(policy.decide(2.0), RollBack)


def test_rows_of_one_request_are_one_observation() -> None:
    policy = warm(SHADOW)
    policy.observe(Compared(1000, 1000), 0.0)
    assert not policy.is_urgent


@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_a_slower_candidate_is_caught_in_the_shadow(scale: float) -> None:
    rng, policy = random.Random(2), warm(SHADOW)  # noqa: S311
    copies = [Compared(1, 0, scale * rng.lognormvariate(-4, 0.2), rng.lognormvariate(-4, 0.2)) for _ in range(1000)]
    decision = compare(policy, copies)
    assert isinstance(decision, RollBack)
    assert "slower in the shadow" in decision.reason


def test_a_candidate_that_fails_copies_is_caught_in_the_shadow() -> None:
    policy, number = warm(SHADOW), 0
    while not policy.is_urgent and number < 200:
        number += 1
        policy.observe(VersionAnswered(STABLE, 0.01), number / 10)
        if number % 4 == 0:
            policy.observe(Compared(1, 0, failed=number % 20 == 0), number / 10)
    decision = policy.decide(number / 10)
    assert isinstance(decision, RollBack)
    assert decision.reason.startswith("worse than the stable version: failed")


def test_the_shadow_is_left_when_answers_agree_and_latency_is_the_same() -> None:
    rng, policy = random.Random(2), warm(SHADOW)  # noqa: S311
    copies = [Compared(1, 0, rng.lognormvariate(-4, 0.2), rng.lognormvariate(-4, 0.2)) for _ in range(1000)]
    decision = compare(policy, copies)
    assert isinstance(decision, Advance)
    assert decision.share == 0.01
    assert {"disagreed", "slower in the shadow"} <= {figure.name for figure in decision.figures}


def test_without_copies_the_shadow_waits_and_says_so() -> None:
    policy = warm(SHADOW)
    decision = policy.decide(1e6)
    assert isinstance(decision, Keep)
    assert "copies of live requests" in decision.reason
    assert policy.wants_copies


def test_in_the_shadow_no_live_request_goes_to_the_candidate_and_its_answers_count_for_nothing() -> None:
    policy = warm(SHADOW)
    assert not any(falls_in_share(key, policy.share) for key in range(1000))
    for _ in range(100):
        policy.observe(VersionAnswered(CANDIDATE, 0.01, failed=True), 1.0)
    assert not policy.is_urgent


def test_shadow_alone_stays_there_until_somebody_decides() -> None:
    policy = warm(RolloutSettings(ladder=()))
    decision = compare(policy, [Compared(1, 0, 0.01, 0.01)] * 2000)
    assert isinstance(decision, Keep)
    assert policy.stage is Stage.SHADOW
    policy.observe(PromoteAsked("ana"), 1.0)
    decision = policy.decide(1.0)
    assert isinstance(decision, Promote)
    assert "ana" in decision.reason


def test_a_ladder_of_one_whole_step_promotes_a_warm_candidate() -> None:
    policy = RolloutPolicy(RolloutSettings(ladder=(1.0,), shadow=False), 0.0)
    assert isinstance(policy.decide(1.0), Keep)
    policy.observe(Warmed(), 2.0)
    assert isinstance(policy.decide(2.0), Promote)


def test_a_pause_stops_the_steps_and_not_the_rollback() -> None:
    traffic = Traffic(warm())
    traffic.policy.observe(Paused(), 0.0)
    assert [type(each) for each in traffic.run(20_000)] == [Keep]
    assert traffic.policy.is_paused
    traffic.policy.observe(Resumed(), traffic.now_s)
    assert isinstance(traffic.policy.decide(traffic.now_s), Advance)
    traffic.policy.observe(Paused(), traffic.now_s)
    assert isinstance(traffic.run(fails=0.5)[-1], RollBack)


def test_a_promotion_that_is_asked_for_waits_for_the_candidate_to_be_warm() -> None:
    policy = RolloutPolicy(None, 0.0)
    policy.observe(PromoteAsked("ana"), 0.0)
    decision = policy.decide(0.0)
    assert isinstance(decision, Keep)
    assert "ana" in decision.reason
    policy.observe(Warmed(), 1.0)
    assert isinstance(policy.decide(1.0), Promote)


def test_a_rollback_that_is_asked_for_happens_at_once() -> None:
    policy = warm()
    policy.observe(RollBackAsked("ana", "wrong weights"), 1.0)
    assert policy.is_urgent
    decision = policy.decide(1.0)
    assert isinstance(decision, RollBack)
    assert decision.reason == "requested by ana: wrong weights"


@UNTIMED
@given(st.lists(st.tuples(events, st.floats(0, 5)), max_size=30))
def test_a_crash_of_the_candidate_rolls_back_immediately_from_any_open_stage(
    seen: list[tuple[Evidence, float]],
) -> None:
    policy, now_s = RolloutPolicy(None, 0.0), 0.0
    for event, wait_s in seen:
        now_s += wait_s
        policy.observe(event, now_s)
    was_open = not policy.stage.is_final
    policy.observe(Crashed(CANDIDATE, "CUDA error"), now_s)
    assert was_open
    assert policy.stage is Stage.ROLLED_BACK
    assert not any(falls_in_share(key, policy.share) for key in range(200))
    decision = policy.decide(now_s)
    assert isinstance(decision, RollBack)
    assert "CUDA error" in decision.reason


def test_a_crash_of_the_stable_version_says_nothing_about_the_candidate() -> None:
    policy = warm()
    policy.observe(Crashed(STABLE), 1.0)
    assert isinstance(policy.decide(1.0), Keep)


def test_a_candidate_that_never_warms_is_given_up() -> None:
    policy = RolloutPolicy(None, 100.0)
    assert isinstance(policy.decide(1000.0), Keep)
    assert not falls_in_share(1, policy.share)
    assert isinstance(policy.decide(1000.5), RollBack)


def test_warming_twice_changes_nothing() -> None:
    policy = warm()
    state = policy.state()
    policy.observe(Warmed(), 59.0)
    assert policy.state() == state


@UNTIMED
@given(
    st.lists(st.tuples(events, st.floats(0, 100)), max_size=40),
    st.sampled_from([PromoteAsked(), RollBackAsked(), Crashed(CANDIDATE)]),
    st.lists(events, max_size=10),
)
def test_a_final_decision_never_changes(
    seen: list[tuple[Evidence, float]], last: Evidence, later: list[Evidence]
) -> None:
    policy, now_s = RolloutPolicy(SHADOW, 0.0), 0.0
    for event, wait_s in seen:
        now_s += wait_s
        policy.observe(event, now_s)
        policy.decide(now_s)
    policy.observe(Warmed(), now_s)
    policy.observe(last, now_s)
    final = policy.decide(now_s)
    assert isinstance(final, Promote | RollBack)
    for event in [*later, Warmed(), Crashed(CANDIDATE), RollBackAsked(), PromoteAsked()]:
        policy.observe(event, now_s + 30_000.0)
        assert policy.decide(now_s + 30_000.0) == final


@UNTIMED
@given(st.integers(), st.floats(0, 1), st.floats(0, 1))
def test_a_key_in_a_share_is_in_every_larger_share(key: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert falls_in_share(key, large) or not falls_in_share(key, small)
    assert not falls_in_share(key, 0.0)
    assert falls_in_share(key, 1.0)


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("stride", [1, 1024, 2**40])
def test_the_candidate_takes_its_share_of_keys_and_the_same_ones_each_time(share: float, stride: int) -> None:
    policy, again = (warm(RolloutSettings(ladder=(share, 1.0), shadow=False)) for _ in range(2))
    keys = [n * stride for n in range(20_000)]
    taken = [falls_in_share(key, policy.share) for key in keys]
    assert sum(taken) / len(keys) == pytest.approx(share, rel=0.2)
    assert taken == [falls_in_share(key, again.share) for key in keys]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ladder", (0.5, 0.1)),
        ("ladder", (0.0, 1.0)),
        ("ladder", (0.1, 1.5)),
        ("alpha", 0),
        ("step_alpha", 0.9),
        ("error_tolerance", -1),
        ("disagreement_bound", 0.0),
        ("slow_factor", 0.5),
        ("slo_s", -1),
        ("min_step_s", math.inf),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=name):
        RolloutSettings(**{name: value})  # type: ignore[arg-type]


def test_no_ladder_and_no_shadow_are_refused() -> None:
    with pytest.raises(InvalidInput, match="ladder"):
        RolloutSettings(ladder=(), shadow=False)


def test_more_disagreements_than_rows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="disagreed"):
        Compared(3, 4)
