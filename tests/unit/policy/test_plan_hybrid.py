"""The share to precompute costs the least of all shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.plan.hybrid import HybridAsk, plan_hybrid

COUNTS = st.lists(st.integers(1, 10_000), min_size=1, max_size=40)
USD = st.floats(0, 10, allow_nan=False)
DAY_S = 86_400.0


def brute_usd(ask: HybridAsk, counts: list[int], chosen: set[int]) -> float:
    """A day's dollars where exactly these keys are precomputed."""
    days = DAY_S / ask.refresh_s
    live = [count * ask.refresh_s / ask.trace_s * ask.live_row_usd for count in counts]
    return days * sum(ask.batch_row_usd if at in chosen else usd for at, usd in enumerate(live))


@given(COUNTS, USD, USD, st.sampled_from([3600.0, DAY_S]), st.data())
def test_no_other_choice_of_keys_costs_less(
    counts: list[int], batch_usd: float, live_usd: float, refresh_s: float, data: st.DataObject
) -> None:
    ask = HybridAsk(batch_usd, live_usd, DAY_S, refresh_s)
    made = plan_hybrid(ask, counts)
    chosen = data.draw(st.sets(st.integers(0, len(counts) - 1)))
    assert made.best.usd_per_day <= brute_usd(ask, counts, chosen) * (1 + 1e-9) + 1e-9


@given(COUNTS, USD, USD, st.integers(0, 1000))
def test_the_best_is_among_the_points_and_hits_grow_with_the_share(
    counts: list[int], batch_usd: float, live_usd: float, more: int
) -> None:
    made = plan_hybrid(HybridAsk(batch_usd, live_usd, DAY_S, DAY_S, len(counts) + more), counts)
    assert made.best in made.points
    assert made.best.usd_per_day <= min(each.usd_per_day for each in made.points) * (1 + 1e-9) + 1e-9
    assert [each.hit_share for each in made.points] == sorted(each.hit_share for each in made.points)
    assert (made.points[0].hit_share, made.points[-1].hit_share) == (0.0, 1.0)
    assert made.best.keys <= len(counts)  # nobody pays for what is never asked for


def test_a_key_is_worth_its_row_from_as_many_requests_as_a_live_row_costs_less() -> None:
    made = plan_hybrid(HybridAsk(1.0, 0.25, DAY_S, DAY_S), [10, 5, 4, 3, 1])
    assert (made.best.keys, made.least_requests) == (2, 4.0)
    assert made.best.hit_share == pytest.approx(15 / 23)
    assert made.best.usd_per_day == pytest.approx(2 * 1.0 + 8 * 0.25)


@pytest.mark.parametrize(("counts", "keys"), [([], None), ([1, 0], None), ([1, 2], 1)])
def test_counts_that_cannot_be_are_refused(counts: list[int], keys: int | None) -> None:
    with pytest.raises(InvalidInput):
        plan_hybrid(HybridAsk(1.0, 1.0, DAY_S, DAY_S, keys), counts)
