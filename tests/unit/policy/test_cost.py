from __future__ import annotations

import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost, Ceiling, Sample
from twoshift.policy.fit import fit_call_cost, refit
from twoshift.policy.learn import CostLearner
from twoshift.types import CallSize

# One H200, a BERT-base-sized encoder, packed, bf16: (tokens, milliseconds of a call).
H200 = ((16, 0.58), (480, 0.70), (3900, 2.2), (65500, 34.6))
SIZES = tuple(2**k for k in range(10)) * 6

coefficients = st.floats(0.0, 10.0, allow_subnormal=False)
ceilings = st.lists(
    st.builds(
        Ceiling, st.integers(1, 64), st.integers(1, 4096), st.integers(1, 2**20), st.floats(1e-6, 10.0), st.floats(0, 1)
    ),
    max_size=3,
).map(lambda each: tuple(sorted(each, key=lambda c: -c.tokens)))
costs = st.builds(
    CallCost,
    overhead_s=st.floats(1e-6, 10.0),
    per_token_s=coefficients,
    floor_s=coefficients,
    per_square_s=coefficients,
    soft=st.booleans(),
    ratios=st.lists(st.floats(0.1, 10.0), max_size=5).map(lambda r: tuple(sorted(r))),
    per_row_s=coefficients,
    ceilings=ceilings,
)
lengths = st.lists(st.integers(1, 512), min_size=1, max_size=20)


def noisy(overhead_s: float, per_item_s: float, seed: int) -> list[Sample]:
    """60 samples with 5 % noise, 5 % of them stalled tenfold."""
    rng = np.random.default_rng(seed)
    stalled = set(rng.choice(len(SIZES), 3, replace=False).tolist())
    return [
        Sample(
            b, b, 1, (overhead_s + per_item_s * b) * (1 + 0.05 * rng.standard_normal()) * (10 if i in stalled else 1)
        )
        for i, b in enumerate(SIZES)
    ]


def h200_samples() -> list[Sample]:
    return [Sample(max(1, tokens // 16), tokens, 16, ms / 1e3) for tokens, ms in H200]


@pytest.mark.parametrize("per_item_s", [1e-6, 1e-3])
@pytest.mark.parametrize("ratio", [10, 33, 100])
@pytest.mark.slow
def test_overhead_and_item_cost_are_recovered_within_five_per_cent(per_item_s: float, ratio: float) -> None:
    overhead_s = per_item_s * ratio
    fit = fit_call_cost(noisy(overhead_s, per_item_s, seed=round(ratio)))
    assert fit.cost.shape == "line"
    assert fit.cost.overhead_s == pytest.approx(overhead_s, rel=0.05)
    assert fit.cost.per_token_s == pytest.approx(per_item_s, rel=0.05)
    assert fit.outliers == 3


@pytest.mark.slow
def test_a_stalled_sample_does_not_move_the_curve() -> None:
    samples = [Sample(b, b, 1, 0.006 + 0.00018 * b) for b in SIZES]
    clean = fit_call_cost(samples).cost
    samples[7] = Sample(samples[7].rows, samples[7].tokens, 1, samples[7].seconds * 1000)
    stalled = fit_call_cost(samples).cost
    assert stalled.overhead_s == pytest.approx(clean.overhead_s, rel=1e-3)
    assert stalled.per_token_s == pytest.approx(clean.per_token_s, rel=1e-3)


def test_a_cautious_prediction_is_not_that_of_the_stalled_calls() -> None:
    samples = [Sample(b, b, 1, (0.006 + 0.00018 * b) * (8 if i % 6 == 0 else 1)) for i, b in enumerate(SIZES)]
    fit = fit_call_cost(samples)
    assert fit.outliers == 10
    assert fit.cost.seconds(CallSize.uniform(64), 0.95) == pytest.approx(0.006 + 0.00018 * 64, rel=0.01)


def test_the_hinge_is_picked_on_the_figures_of_an_h200() -> None:
    assert fit_call_cost(h200_samples()).cost.shape == "hinge"


@pytest.mark.parametrize("left_out", range(4))
def test_each_left_out_h200_figure_is_predicted_within_fifteen_per_cent(left_out: int) -> None:
    samples = h200_samples()
    unseen = samples.pop(left_out)
    assert fit_call_cost(samples).cost.seconds(unseen.size) == pytest.approx(unseen.seconds, rel=0.15)


@pytest.mark.parametrize("soft", [False, True])
def test_a_flat_start_is_recognised_whether_its_corner_is_sharp_or_round(soft: bool) -> None:
    true = CallCost(1e-4, 5e-7, floor_s=6e-4, soft=soft)
    rng = np.random.default_rng(3)
    samples = [
        Sample(b, 16 * b, 16, true.seconds(CallSize.uniform(b, 16)) * (1 + 0.02 * rng.standard_normal()))
        for b in (8 * s for s in SIZES)
    ]
    found = fit_call_cost(samples).cost
    assert (found.shape, found.soft) == ("hinge", soft)
    assert found.floor_s == pytest.approx(true.floor_s, rel=0.05)
    assert found.per_token_s == pytest.approx(true.per_token_s, rel=0.05)


@pytest.mark.slow
def test_length_squared_is_picked_where_long_rows_cost_more_than_their_tokens() -> None:
    true = CallCost(1e-3, 1e-6, per_square_s=4e-9)
    rng = np.random.default_rng(5)
    sizes = [CallSize.uniform(rows, length) for rows in (1, 4, 16, 64) for length in (8, 64, 256, 1024)] * 4
    samples = [Sample(s.rows, s.tokens, s.longest, true.seconds(s) * (1 + 0.02 * rng.standard_normal())) for s in sizes]
    found = fit_call_cost(samples).cost
    assert found.shape == "line+squares"
    assert found.per_square_s == pytest.approx(true.per_square_s, rel=0.1)


@pytest.mark.slow
def test_what_a_row_costs_by_itself_is_picked_where_short_rows_cost_more_than_their_tokens() -> None:
    true = CallCost(6e-4, 5e-7, per_row_s=4e-6)
    rng = np.random.default_rng(6)
    sizes = [CallSize.uniform(4**k, length) for k in range(6) for length in (8, 64, 512)] * 4
    samples = [Sample(s.rows, s.tokens, s.longest, true.seconds(s) * (1 + 0.02 * rng.standard_normal())) for s in sizes]
    found = fit_call_cost(samples).cost
    assert found.shape == "line+rows"
    assert found.per_row_s == pytest.approx(true.per_row_s, rel=0.1)
    assert found.row_s(8, 8) == pytest.approx(8e-6, rel=0.1)


def test_rows_of_one_length_cannot_tell_a_row_from_its_tokens() -> None:
    samples = [Sample(b, 16 * b, 16, 1e-3 + 1e-5 * b) for b in SIZES]
    assert fit_call_cost(samples).cost.per_row_s == 0


def test_a_small_call_that_was_measured_is_not_said_to_take_longer() -> None:
    """A curve bent the wrong way for every shape: one row is cheaper than the line through the others."""
    rng = np.random.default_rng(7)
    took = {1: 8e-3, 2: 20e-3, 4: 24e-3, 8: 30e-3, 16: 44e-3, 32: 70e-3, 64: 120e-3}
    samples = [Sample(b, b, 1, s * math.exp(0.1 * rng.standard_normal())) for b, s in took.items() for _ in range(10)]
    cost = fit_call_cost(samples).cost
    one = [s.seconds for s in samples if s.rows == 1]
    assert cost.seconds(CallSize.uniform(1)) == pytest.approx(statistics.median(one))
    assert cost.seconds(CallSize.uniform(1), 0.9) <= float(np.quantile(one, 0.9)) * (1 + 1e-9)
    assert cost.seconds(CallSize.uniform(2)) > 1.5 * cost.seconds(CallSize.uniform(1))


def test_a_record_from_before_rows_had_a_cost_is_read() -> None:
    record = CallCost.line(0.006, 0.0002).to_dict()
    del record["per_row_s"], record["ceilings"]
    assert CallCost.from_dict(record) == CallCost.line(0.006, 0.0002)


def test_nine_in_ten_calls_meet_the_ninth_decile() -> None:
    cost = fit_call_cost(noisy(6e-3, 1.8e-4, seed=2)).cost
    fresh = [sample for seed in range(20, 40) for sample in noisy(6e-3, 1.8e-4, seed)]
    usual = [s for s in fresh if s.seconds < 3 * cost.seconds(s.size)]
    met = sum(s.seconds <= cost.seconds(s.size, 0.9) for s in usual) / len(usual)
    assert 0.8 < met < 0.97


def test_the_held_out_error_is_about_the_noise() -> None:
    assert 0.02 < fit_call_cost(noisy(6e-3, 1.8e-4, seed=1)).error < 0.08


@given(costs, lengths, lengths, st.floats(0.0, 1.0))
def test_a_cost_is_positive_and_never_falls_as_a_call_grows(
    cost: CallCost, some: list[int], more: list[int], quantile: float
) -> None:
    small = cost.seconds(CallSize.of(some), quantile)
    assert 0 < small <= cost.seconds(CallSize.of(some + more), quantile) * (1 + 1e-12)


@given(costs, lengths, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_higher_quantile_is_never_a_smaller_prediction(cost: CallCost, some: list[int], a: float, b: float) -> None:
    low, high = sorted((a, b))
    size = CallSize.of(some)
    assert cost.seconds(size, low) <= cost.seconds(size, high) * (1 + 1e-12)
    assert cost.at(high).seconds(size) == pytest.approx(cost.seconds(size, high))


@given(costs)
def test_a_cost_survives_json(cost: CallCost) -> None:
    assert CallCost.from_dict(json.loads(json.dumps(cost.to_dict()))) == cost


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-6, 1e3)), min_size=2, max_size=40))
def test_any_samples_give_a_curve_that_rises(pairs: list[tuple[int, float]]) -> None:
    samples = [Sample(b, b, 1, s) for b, s in pairs]
    if len({b for b, _ in pairs}) < 2:
        with pytest.raises(InvalidInput):
            fit_call_cost(samples)
        return
    cost = fit_call_cost(samples).cost
    predictions = [cost.seconds(CallSize.uniform(b), 0.9) for b in (1, 10, 1000, 10**6)]
    assert predictions == sorted(predictions)
    assert predictions[0] > 0


@pytest.mark.parametrize(
    "damage",
    [
        {"overhead_s": "6"},
        {"overhead_s": True},
        {"per_token_s": -1.0},
        {"floor_s": float("nan")},
        {"ratios": "ab"},
        {"ratios": [2.0, 1.0]},
        {"ratios": [None]},
        {"soft": 1},
        {"per_square_s": None},
        {"per_row_s": -1.0},
        {"ceilings": [[1, 8, 64, 0.01]]},
        {"ceilings": [[1, 8, 64, 0.01, 2.0]]},
        {"ceilings": [[1, 8, 64, 0.01, 0.5], [2, 16, 128, 0.01, 0.5]]},
        {"ceilings": "ab"},
    ],
)
def test_a_damaged_record_is_refused_by_name(damage: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(damage))):
        CallCost.from_dict({**CallCost.line(0.006, 0.0002).to_dict(), **damage})


@given(costs, st.integers(1, 512), st.floats(0.5, 2.0))
def test_a_curve_is_moved_at_the_size_that_was_seen_and_less_so_at_others(
    cost: CallCost, rows: int, factor: float
) -> None:
    size, moved = CallSize.uniform(rows), cost.moved(CallSize.uniform(rows), factor)
    if not cost.floor_s and not cost.ceilings:
        assert moved.seconds(size) == pytest.approx(factor * cost.seconds(size))
    for other in (1, 64, 4096):
        change = moved.seconds(CallSize.uniform(other)) / cost.seconds(CallSize.uniform(other))
        assert min(0.1, factor) <= change <= max(4.0, factor)


def test_short_calls_that_got_quicker_say_little_of_long_ones() -> None:
    cost = CallCost.line(0.004, 0.0001)
    moved = cost.moved(CallSize.uniform(1), 0.5)
    assert moved.seconds(CallSize.uniform(1)) == pytest.approx(0.5 * cost.seconds(CallSize.uniform(1)))
    assert moved.seconds(CallSize.uniform(1000)) > 0.85 * cost.seconds(CallSize.uniform(1000))
    long = cost.moved(CallSize.uniform(1000), 0.5)
    assert long.seconds(CallSize.uniform(1)) > 0.85 * cost.seconds(CallSize.uniform(1))


def test_samples_of_one_size_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two different sizes"):
        fit_call_cost([Sample(4, 4, 1, 0.1)] * 5)


class TestLearner:
    cost = CallCost.line(0.004, 0.00025)

    def run(self, learner: CostLearner, true: CallCost, calls: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        for rows in rng.integers(1, 64, calls).tolist():
            size = CallSize.uniform(rows)
            learner.observed(size, true.seconds(size) * (1 + 0.03 * rng.standard_normal()))

    def test_a_device_that_slows_down_is_followed_within_ten_calls(self) -> None:
        learner = CostLearner(self.cost)
        self.run(learner, self.cost, 100)
        self.run(learner, self.cost.scaled(2.0), 10)
        size = CallSize.uniform(32)
        assert learner.cost.seconds(size) == pytest.approx(2 * self.cost.seconds(size), rel=0.1)

    def test_one_stalled_call_changes_nothing(self) -> None:
        learner = CostLearner(self.cost)
        self.run(learner, self.cost, 50)
        before = learner.cost
        assert not learner.observed(CallSize.uniform(8), 1.0)
        assert learner.cost == before

    def test_a_wrong_shape_is_corrected_by_refitting(self) -> None:
        true = CallCost.line(0.001, 0.0005)
        learner = CostLearner(self.cost)
        self.run(learner, true, 2000)
        for rows in (1, 16, 63):
            size = CallSize.uniform(rows)
            assert learner.cost.seconds(size) == pytest.approx(true.seconds(size), rel=0.1)

    def test_memory_is_bounded_by_size_classes_not_calls(self) -> None:
        learner = CostLearner(self.cost)
        self.run(learner, self.cost, 3000)
        assert sum(len(bucket) for bucket in learner._buckets.values()) <= 8 * 14

    def test_a_refit_keeps_the_curve_where_nothing_was_measured(self) -> None:
        true = CallCost(1e-4, 5e-7, floor_s=6e-4)
        learner = CostLearner(true)
        rng = np.random.default_rng(1)
        for tokens in rng.integers(16, 128, 600).tolist():
            size = CallSize.uniform(1, tokens)
            learner.observed(size, true.seconds(size) * (1 + 0.03 * rng.standard_normal()))
        large = CallSize.uniform(512, 128)
        assert learner.cost.seconds(large) == pytest.approx(true.seconds(large), rel=0.3)

    def test_a_refit_on_rows_of_one_length_keeps_what_a_row_costs(self) -> None:
        true = CallCost(1e-3, 5e-7, per_row_s=4e-6)
        learner = CostLearner(true)
        rng = np.random.default_rng(4)
        for rows in rng.integers(1, 512, 600).tolist():
            size = CallSize.uniform(rows, 64)
            learner.observed(size, true.seconds(size) * (1 + 0.03 * rng.standard_normal()))
        short = CallSize.uniform(2048, 8)
        assert learner.cost.seconds(short) == pytest.approx(true.seconds(short), rel=0.2)

    def test_an_overhead_that_was_lost_is_found_again(self) -> None:
        learner = CostLearner(CallCost(0.0, 0.00025))
        self.run(learner, self.cost, 3000)
        assert learner.cost.seconds(CallSize.uniform(1)) == pytest.approx(0.00425, rel=0.2)

    def test_noise_alone_does_not_move_the_curve_far(self) -> None:
        learner = CostLearner(self.cost)
        rng = np.random.default_rng(2)
        scales: list[float] = []
        for rows in rng.integers(1, 64, 3000).tolist():
            size = CallSize.uniform(rows)
            learner.observed(size, self.cost.seconds(size) * math.exp(0.3 * rng.standard_normal()))
            scales.append(learner.cost.seconds(CallSize.uniform(32)) / self.cost.seconds(CallSize.uniform(32)))
        assert 0.6 < min(scales) <= max(scales) < 1.6
        assert 0.85 < statistics.median(scales) < 1.15

    def test_the_scatter_of_calls_is_learned_even_at_one_size(self) -> None:
        learner = CostLearner(self.cost)
        rng = np.random.default_rng(3)
        size = CallSize.uniform(32)
        for _ in range(600):
            learner.observed(size, self.cost.seconds(size) * math.exp(0.05 * rng.standard_normal()))
        assert learner.cost.ratios == () or learner.cost.seconds(size, 0.9) > learner.cost.seconds(size)

    def test_nothing_is_learned_from_a_clock_that_did_not_move(self) -> None:
        learner = CostLearner(self.cost)
        assert not learner.observed(CallSize.uniform(4), 0.0)
        assert learner.cost == self.cost

    def test_recent_samples_outweigh_old_ones(self) -> None:
        old = [Sample(b, b, 1, 0.004 + 0.00025 * b) for b in SIZES]
        new = [Sample(b, b, 1, 1.5 * (0.004 + 0.00025 * b)) for b in SIZES]
        found = refit(self.cost, old + new, [0.01] * len(old) + [1.0] * len(new))
        assert found.per_token_s == pytest.approx(1.5 * 0.00025, rel=0.05)
