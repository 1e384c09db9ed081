from __future__ import annotations

import pytest

from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.step_fit import fit_step_cost
from twoshift.types import CallSize


def sample(size: CallSize, seconds: float) -> Sample:
    return Sample(size.rows, size.tokens, size.longest, seconds, size.squares)


def truth_s(size: CallSize) -> float:
    """As on a GPU: a sequence that is decoded costs more than a token that is read, and reading costs by itself."""
    reads = size.tokens - size.rows if size.longest > 1 else 0
    return 0.004 + 50e-6 * size.rows + 20e-6 * reads + (0.012 if reads else 0.0)


def samples() -> list[Sample]:
    decoding = [CallSize.uniform(2**n) for n in range(9) for _ in range(6)]
    reading = [CallSize.of([2**n]) for n in range(4, 14)]
    both = [CallSize.of([1] * rows + [length]) for rows in (2, 16, 64, 255) for length in (64, 512)]
    return [sample(each, truth_s(each)) for each in (*decoding, *reading, *both)]


@pytest.mark.parametrize(
    "size",
    [
        CallSize.uniform(1),
        CallSize.uniform(200),
        CallSize.of([1] * 254 + [249, 249]),
        CallSize.of([8192]),
        CallSize.of([1] * 20 + [30]),
    ],
)
def test_steps_of_both_kinds_are_predicted(size: CallSize) -> None:
    cost = fit_step_cost(samples()).cost
    assert cost.seconds(size) == pytest.approx(truth_s(size), rel=0.1)


def test_what_reading_costs_by_itself_is_found_and_survives_being_stored() -> None:
    cost = fit_step_cost(samples()).cost
    assert cost.reading_s == pytest.approx(0.012, rel=0.15)
    assert CallCost.from_dict(cost.to_dict()) == cost
    older = {name: value for name, value in cost.to_dict().items() if name != "reading_s"}
    assert CallCost.from_dict(older).reading_s == 0.0


def test_a_stall_moves_no_prediction() -> None:
    stalled = [*samples(), sample(CallSize.uniform(8), 3.0)]
    cost = fit_step_cost(stalled).cost
    assert cost.seconds(CallSize.uniform(8), 0.9) == pytest.approx(truth_s(CallSize.uniform(8)), rel=0.15)


def test_samples_of_one_kind_alone_are_fitted_as_calls_are() -> None:
    decoding = [sample(CallSize.uniform(2**n), truth_s(CallSize.uniform(2**n))) for n in range(9)]
    cost = fit_step_cost(decoding).cost
    assert cost.seconds(CallSize.uniform(100)) == pytest.approx(truth_s(CallSize.uniform(100)), rel=0.1)
