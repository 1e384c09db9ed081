from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan import RowSize, cap, cost_table, knee, largest_batch, sweep
from twoshift.types import CallSize

REFERENCE = CallCost.line(0.006, 0.00018)
SWEPT = [2**k for k in range(10)]


class Stairs:
    """A curve that is no line: a call is paid in blocks of 100 rows."""

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        return 0.010 * -(-size.rows // 100)


def test_the_reference_case_gives_the_figures_of_r1_1() -> None:
    table = cost_table(REFERENCE, [1, 512], [3.00, 0.90], slo_s=0.050)
    online, offline = table.rows
    assert online.item_s == pytest.approx(0.00618)
    assert round(online.items_per_hour) == 582_524
    assert online.usd_per_million == pytest.approx(5.15)
    assert offline.item_s == pytest.approx(0.0001917, abs=5e-8)
    assert round(offline.items_per_hour) == 18_777_506
    assert offline.usd_per_million == pytest.approx(0.0479, abs=5e-5)
    assert offline.call_s == pytest.approx(0.09816)
    assert (online.within_slo, offline.within_slo) == (True, False)
    assert round(table.throughput_gain, 1) == 32.2
    assert round(table.cost_gain, 1) == 107.4


def test_prices_are_one_for_all_or_one_a_batch() -> None:
    assert [r.price_usd_per_hour for r in cost_table(REFERENCE, [1, 2, 4], [2.0]).rows] == [2.0, 2.0, 2.0]
    with pytest.raises(InvalidInput, match="price"):
        cost_table(REFERENCE, [1, 2, 4], [2.0, 1.0])


def test_the_reference_sweep_has_its_knee_at_512_outside_the_slo() -> None:
    made = sweep(REFERENCE, slo_s=0.050)
    assert [r.batch for r in made.rows] == SWEPT
    assert made.knee == 512
    assert made.knee_within_slo is False


def test_no_knee_is_named_where_every_doubling_still_pays() -> None:
    made = sweep(REFERENCE, [1, 2, 4], slo_s=0.050)
    assert made.knee is None
    assert made.knee_within_slo is None


def test_the_reference_cap_is_exactly_170_items() -> None:
    made = cap(CallCost.line(0.006, 0.0002), slo_s=0.100, share=0.4)
    assert made.batch == 170
    assert made.call_s == pytest.approx(0.040)
    assert made.efficiency == pytest.approx(0.85)


def test_the_cap_works_on_a_curve_that_is_no_line() -> None:
    assert largest_batch(Stairs(), 0.035) == 300


def test_the_cap_of_a_hinge_counts_tokens() -> None:
    hinge = CallCost(overhead_s=0.0, per_token_s=1e-6, floor_s=0.001)
    assert largest_batch(hinge, 0.002, RowSize.uniform(100)) == 20
    assert largest_batch(hinge, 0.0009, RowSize.uniform(100)) == 0


def test_a_cap_too_tight_for_one_item_is_zero() -> None:
    made = cap(CallCost.line(0.006, 0.0002), slo_s=0.010, share=0.4)
    assert (made.batch, made.efficiency) == (0, 0.0)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match="share"):
        cap(REFERENCE, 0.1, share)


curves = st.builds(
    CallCost,
    overhead_s=st.floats(0, 1e-1),
    per_token_s=st.floats(1e-7, 1e-2),
    floor_s=st.sampled_from([0.0, 1e-3, 1e-1]),
    soft=st.booleans(),
)


@given(curves, st.floats(1e-4, 10.0), st.floats(1, 500))
def test_the_cap_fits_and_one_more_does_not(curve: CallCost, budget_s: float, tokens: float) -> None:
    row = RowSize.uniform(tokens)
    batch = largest_batch(curve, budget_s, row)
    if batch:
        assert curve.seconds(row.call(batch)) <= budget_s * (1 + 1e-9)
    assert curve.seconds(row.call(batch + 1)) > budget_s


@given(st.integers(1, 10_000), st.integers(0, 1000), st.integers(1, 1000))
def test_float_fuzz_never_moves_an_exact_cap(batch: int, overhead_us: int, item_us: int) -> None:
    budget_s = (overhead_us + item_us * batch) / 1e6
    assert largest_batch(CallCost.line(overhead_us / 1e6, item_us / 1e6), budget_s) == batch


@given(curves)
def test_doubling_the_knee_saves_less_than_five_percent_and_doubling_below_it_more(curve: CallCost) -> None:
    def item_s(batch: int) -> float:
        return curve.seconds(CallSize.uniform(batch)) / batch

    at = knee(curve, SWEPT)
    if at is not None:
        assert item_s(2 * at) > 0.95 * item_s(at)
    below = [b for b in SWEPT if at is None or b < at]
    assert all(item_s(2 * b) <= 0.95 * item_s(b) for b in below)


@given(curves, st.integers(1, 4096), st.floats(0.01, 100))
def test_an_item_never_gets_dearer_in_a_larger_call(curve: CallCost, batch: int, price: float) -> None:
    small, large = cost_table(curve, [batch, 2 * batch], [price]).rows
    assert large.usd_per_million <= small.usd_per_million * (1 + 1e-9)
    assert small.items_per_hour * small.item_s == pytest.approx(3600)
