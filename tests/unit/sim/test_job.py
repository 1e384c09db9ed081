from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.sim.job import JobSpec, JobStudy
from twoshift.sim.job_study import simulate_job

CALM = JobSpec(
    items=40_000,
    workers=20,
    rate_items_per_s=1.0,
    window_s=4000.0,
    shard_s=50.0,
    preemptions_per_hour=0.0,
    straggler_share=0.0,
    noise=0.0,
    runs=1,
)
ROUGH = replace(CALM, preemptions_per_hour=1.0, straggler_share=0.1, straggler_factor=6.0, noise=0.1, runs=12, seed=3)


@pytest.fixture(scope="module")
def rough() -> JobStudy:
    return simulate_job(ROUGH)


def test_when_nothing_goes_wrong_the_job_ends_at_its_ideal_time_and_costs_its_ideal_price() -> None:
    study = simulate_job(CALM)
    assert (study.shards, study.ideal_s) == (800, 2000.0)
    for outcome in (study.with_speculation, study.without_speculation):
        assert outcome.finish_s.max == pytest.approx(2000.0)
        assert outcome.chance == 1.0
        assert (outcome.lost_s, outcome.duplicated_s, outcome.retries, outcome.speculated) == (0, 0, 0, 0)
        assert outcome.usd == pytest.approx(20 * 2000 / 3600 * 2.50 * 0.4)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_study_and_another_seed_another(rough: JobStudy) -> None:
    assert simulate_job(ROUGH) == rough
    other = simulate_job(replace(ROUGH, seed=4))
    assert other.with_speculation.finish_s != rough.with_speculation.finish_s
    # runs have derived seeds: the second study is the first one, a run further
    assert other.with_speculation.runs[:11] == rough.with_speculation.runs[1:]


def test_speculation_brings_the_end_forward_and_duplicates_a_little_work(rough: JobStudy) -> None:
    assert rough.with_speculation.finish_s.p50 < rough.without_speculation.finish_s.p50 - 50.0
    assert 0 < rough.with_speculation.duplicated_share < 0.05
    assert rough.with_speculation.speculated > 0
    assert (rough.without_speculation.speculated, rough.without_speculation.duplicated_s) == (0, 0)


def test_paid_time_is_useful_lost_duplicated_or_idle(rough: JobStudy) -> None:
    for outcome in (rough.with_speculation, rough.without_speculation):
        for run in outcome.runs:
            assert run.finished
            assert run.useful_s > 0.8 * run.paid_s
            assert run.useful_s + run.lost_s + run.duplicated_s <= run.paid_s * (1 + 1e-9)
            assert run.paid_s <= 20 * run.finish_s
            assert run.usd == pytest.approx(run.paid_s / 3600 * 1.00)


def test_a_preemption_costs_about_half_a_shard_and_one_retry(rough: JobStudy) -> None:
    outcome = rough.without_speculation
    assert outcome.preemptions == pytest.approx(20 * outcome.finish_s.mean / 3600, rel=0.25)
    assert outcome.retries <= outcome.preemptions
    assert 0.2 < outcome.lost_s / outcome.retries / 50.0 < 2.5


def test_shorter_shards_lose_less() -> None:
    often = replace(CALM, preemptions_per_hour=5.0, runs=4)
    short, long = (simulate_job(replace(often, shard_s=s)).without_speculation for s in (20.0, 200.0))
    assert short.lost_share < long.lost_share / 3


def test_a_window_in_the_middle_of_the_distribution_is_made_by_some(rough: JobStudy) -> None:
    middle_s = rough.with_speculation.finish_s.p50
    study = simulate_job(replace(ROUGH, window_s=middle_s))
    assert study.with_speculation.chance == 0.5
    assert study.without_speculation.chance < 0.5


def test_the_spread_is_that_of_the_runs(rough: JobStudy) -> None:
    finish_s, ends_s = rough.with_speculation.finish_s, [r.finish_s for r in rough.with_speculation.runs]
    assert finish_s.max == max(ends_s)
    assert min(ends_s) <= finish_s.p10 <= finish_s.p50 <= finish_s.p90 <= finish_s.p99 <= finish_s.max
    assert finish_s.mean == pytest.approx(sum(ends_s) / len(ends_s))


def test_the_timeline_rises_from_nothing_to_everything(rough: JobStudy) -> None:
    run = rough.with_speculation.runs[0]
    assert run.timeline[0] == (0.0, 0.0)
    assert run.timeline[-1] == (run.finish_s, 1.0)
    assert list(run.timeline) == sorted(run.timeline)
    assert 100 <= len(run.timeline) <= 202


def test_the_deadline_policy_foresees_the_end_at_a_tenth_and_at_half(rough: JobStudy) -> None:
    for run in rough.with_speculation.runs:
        early, half = run.forecasts
        assert (early.share, half.share) == (0.1, 0.5)
        assert early.finish_s == half.finish_s == run.finish_s
        for forecast, error in ((early, 0.35), (half, 0.2)):
            assert forecast.outlook.eta_s == pytest.approx(run.finish_s, rel=error)


def test_a_hopeless_window_is_called_so_at_a_tenth() -> None:
    study = simulate_job(replace(ROUGH, window_s=1200.0, runs=3))
    assert study.with_speculation.chance == 0.0
    assert {run.forecasts[0].outlook.verdict for run in study.with_speculation.runs} == {"will_miss"}


def test_shards_that_preemptions_never_let_finish_are_given_up() -> None:
    hopeless = replace(CALM, items=400, workers=2, shard_s=200.0, preemptions_per_hour=360.0, window_s=100.0)
    (run,) = simulate_job(hopeless).with_speculation.runs
    assert not run.finished
    assert simulate_job(hopeless).with_speculation.chance == 0.0


def test_more_workers_than_shards_leaves_some_idle_and_still_ends() -> None:
    study = simulate_job(replace(ROUGH, workers=2000, runs=2))
    assert study.with_speculation.finish_s.max <= study.without_speculation.finish_s.max
    assert study.without_speculation.finish_s.max > 250.0


def test_an_idle_worker_takes_over_a_preempted_shard_at_once() -> None:
    spare = JobSpec(
        items=1000,
        workers=50,
        rate_items_per_s=1.0,
        window_s=1e6,
        shard_s=1000.0,
        preemptions_per_hour=2.0,
        restart_s=1e5,
        straggler_share=0.0,
        runs=10,
    )
    outcome = simulate_job(spare).without_speculation
    assert outcome.retries > 0
    assert 1000.0 < outcome.finish_s.max < 1e4


def test_progress_is_told_of_every_run_and_reaches_the_end() -> None:
    seen: list[tuple[int, int]] = []
    simulate_job(replace(CALM, runs=3), lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (2400, 2400)
    assert len(seen) >= 300


def test_a_billion_items_over_ten_thousand_workers_are_cut_into_twenty_shards_each() -> None:
    spec = JobSpec(items=1e9, workers=10_000, rate_items_per_s=2000.0, window_s=120.0)
    assert (spec.shards, spec.healthy_shard_s) == (200_000, pytest.approx(2.5))
    assert spec.planned_runs == 3
    long = replace(spec, workers=100)
    assert (long.shards, long.healthy_shard_s) == (math.ceil(500_000 / 60), pytest.approx(60.0, rel=1e-3))


@settings(max_examples=examples(25))
@given(
    items=st.integers(1, 3000),
    workers=st.integers(1, 30),
    preemptions=st.floats(0, 20),
    share=st.floats(0, 0.5),
    noise=st.floats(0, 1),
    restart_s=st.floats(0, 100),
    seed=st.integers(0, 10),
)
def test_any_job_ends_with_every_shard_done_and_its_accounts_in_order(
    items: int, workers: int, preemptions: float, share: float, noise: float, restart_s: float, seed: int
) -> None:
    spec = JobSpec(
        items=items,
        workers=workers,
        rate_items_per_s=1.0,
        window_s=5000.0,
        shard_s=20.0,
        preemptions_per_hour=preemptions,
        restart_s=restart_s,
        straggler_share=share,
        noise=noise,
        runs=1,
        seed=seed,
    )
    study = simulate_job(spec)
    for outcome in (study.with_speculation, study.without_speculation):
        (run,) = outcome.runs
        assert run.finished
        assert run.timeline[-1] == (run.finish_s, 1.0)
        assert 0 <= run.useful_s + run.lost_s + run.duplicated_s <= run.paid_s * (1 + 1e-9)
        assert run.retries <= run.preemptions


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("items", 0),
        ("workers", 0),
        ("rate_items_per_s", math.inf),
        ("window_s", math.nan),
        ("shard_s", 0.0),
        ("shard_s", 1e-6),
        ("preemptions_per_hour", -1.0),
        ("straggler_share", 1.0),
        ("straggler_factor", 0.5),
        ("spot_discount", 1.5),
        ("runs", 0),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(CALM, **{field: value})
    assert caught.value.field == field
