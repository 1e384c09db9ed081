from __future__ import annotations

import pytest

from twoshift.policy.cost import CallCost
from twoshift.policy.step_curves import StepCurves
from twoshift.types import CallSize

DECODE, READ = CallSize.uniform(8), CallSize.of([1] * 8 + [250])


def test_a_kind_of_step_learns_only_from_its_own() -> None:
    curves = StepCurves(CallCost.line(0.005, 0.00002))
    decode_s, read_s = curves.seconds(DECODE), curves.seconds(READ)
    for at in range(20):
        curves.observed(READ, 2 * read_s, 0.01 * at)
    assert curves.seconds(READ) == pytest.approx(2 * read_s, rel=0.05)
    assert curves.seconds(DECODE) == decode_s


def test_a_step_that_reads_is_never_predicted_to_be_shorter_than_one_that_decodes_as_much() -> None:
    curves = StepCurves(CallCost.line(0.005, 0.00002))
    for at in range(20):
        curves.observed(DECODE, 4 * curves.seconds(DECODE), 0.01 * at)
    assert curves.seconds(READ) >= curves.seconds(DECODE)
