"""One workload from every side: each figure is that of the policy which the command line asks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan import DEVICES, KvShape, cap, cost_table, knee, plan_tokens
from twoshift.policy.plan.data_sheet import DataSheetCurve
from twoshift.policy.plan.overview import LARGEST_BATCH, Hardware, OverviewAsk, plan_overview
from twoshift.policy.plan.row import RowSize
from twoshift.policy.plan.table import doublings

COST, ROW = CallCost.line(0.006, 0.00018), RowSize()
ASK = OverviewAsk(batch=8, price_usd_per_hour=3.0, slo_s=0.1)


def test_it_says_what_the_single_questions_say() -> None:
    made = plan_overview(ASK, COST, ROW)
    assert made.chosen == cost_table(COST, [8], [3.0], 0.1, ROW).rows[0]
    assert made.sweep.knee == knee(COST, doublings(LARGEST_BATCH), ROW)
    assert made.cap == cap(COST, 0.1, 0.5, ROW)
    assert made.tokens.usd_per_million_tokens == plan_tokens(made.tokens_per_s, 3.0).usd_per_million_tokens
    assert (made.memory, made.roofline) == (None, None)
    assert [lever.lever for lever in made.tokens.levers] == ["batch", "quantisation"]


def test_idle_time_and_padding_are_paid_and_a_discount_is_not() -> None:
    plain = plan_overview(ASK, COST, ROW)
    assert plan_overview(replace(ASK, utilisation=0.5), COST, ROW).chosen.usd_per_million == pytest.approx(
        2 * plain.chosen.usd_per_million
    )
    assert plan_overview(replace(ASK, spot_discount=0.6), COST, ROW).chosen.usd_per_million == pytest.approx(
        0.4 * plain.chosen.usd_per_million
    )
    line = CallCost.line(0.0, 0.001)
    padded = plan_overview(replace(ASK, padding=0.5), line, RowSize.uniform(100))
    assert padded.chosen.item_s == pytest.approx(2 * plan_overview(ASK, line, RowSize.uniform(100)).chosen.item_s)
    assert padded.tokens.levers[0].saving == 0.5


def test_a_million_rows_cost_as_much_as_their_tokens() -> None:
    made = plan_overview(replace(ASK, row_tokens=128.0, utilisation=0.7, spot_discount=0.3), COST, ROW)
    assert made.usd_per_million_tokens * 128 == pytest.approx(made.chosen.usd_per_million)


def test_a_model_on_a_device_has_its_memory_and_roofline() -> None:
    on = Hardware(DEVICES["h100"], 7e9, "bf16", KvShape(32, 8, 128))
    curve = DataSheetCurve(on.device, on.params, on.precision)
    made = plan_overview(replace(ASK, row_tokens=128.0), curve, RowSize.uniform(128), on)
    assert made.memory is not None
    assert made.roofline is not None
    assert made.memory.weights_bytes == 14e9
    assert made.memory.largest_batch == int((72e9 - 14e9) // (2048 * 32 * 8 * 128 * 2 * 2))
    assert made.roofline.bound == "compute"
    assert plan_overview(replace(ASK, batch=1), curve, RowSize(), on).roofline.bound == "memory"  # type: ignore[union-attr]
    # an estimate is never quicker than the roof
    assert made.chosen.call_s > made.roofline.seconds
    quantised = Hardware(DEVICES["h100"], 7e9, "fp8")
    levers = plan_overview(ASK, curve, ROW, quantised).tokens.levers
    assert "quantisation" not in [lever.lever for lever in levers]


@given(
    batch=st.integers(1, LARGEST_BATCH),
    padding=st.floats(0, 0.95),
    utilisation=st.floats(0.01, 1),
    params=st.floats(1e6, 1e12),
    device=st.sampled_from(sorted(DEVICES)),
)
def test_dollars_never_rise_with_the_batch_and_all_figures_are_finite(
    batch: int, padding: float, utilisation: float, params: float, device: str
) -> None:
    ask = replace(ASK, batch=batch, padding=padding, utilisation=utilisation)
    made = plan_overview(ask, DataSheetCurve(DEVICES[device], params), RowSize.uniform(128))
    dollars = [row.usd_per_million for row in made.sweep.rows]
    # tokens of a call are whole: a hundredth of one row's
    assert all(0 < after <= 1.01 * before for before, after in pairwise(dollars))
    assert 0 <= made.cap.efficiency <= 1 + 1e-9


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"batch": LARGEST_BATCH + 1}, {"padding": 1.0}, {"utilisation": 0.0}, {"row_tokens": 0.0},
              {"spot_discount": 1.0}, {"slo_s": 0.0}]
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        plan_overview(replace(ASK, **wrong), COST, ROW)  # type: ignore[arg-type]
