"""From a goal to devices: one fleet against two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.data_sheet import ENCODERS, estimated_curve
from twoshift.policy.plan.goal import GoalAsk, plan_goal
from twoshift.policy.plan.roofline import DEVICES
from twoshift.policy.plan.row import RowSize

COST, ROW = CallCost.line(0.010, 0.001), RowSize()  # 10 ms a call, 1 ms a row


def ask(items: float = 0, window_s: float = 1000.0, live: float = 0, p99_s: float = 0.1, **more: float) -> GoalAsk:
    return GoalAsk(items, window_s, live, p99_s, 3.6, **more)  # type: ignore[arg-type]


def test_live_requests_alone_have_headroom_and_a_spare() -> None:
    made = plan_goal(ask(live=2000.0), COST, ROW)
    assert made.live_per_device == pytest.approx(40 / 0.050)  # two calls of 50 ms are the objective
    assert (made.live.devices, made.live.spares) == (5, 1)  # 2000 / (800 * 0.7) is 3.6
    assert (made.batch.devices, made.batch.usd) == (0, 0.0)
    assert made.one == plan_goal(ask(live=2000.0, items=0), COST, ROW).one


def test_batch_rows_alone_run_in_the_largest_calls() -> None:
    made = plan_goal(ask(items=3_000_000), COST, ROW)
    assert made.batch_per_device == pytest.approx(4096 / 4.106)
    assert (made.batch.devices, made.batch.spares) == (4, 0)  # 3,300 rows/s with the margin
    assert made.batch.finish_s is not None
    assert made.batch.usd == pytest.approx(4 * 3.6 * made.batch.finish_s / 3600)  # given back when it is done
    assert made.batch.finish_s <= 1000 / 1.1


def test_one_fleet_uses_what_live_requests_leave() -> None:
    made = plan_goal(ask(items=1_000_000, live=2000.0), COST, ROW)
    assert made.beside_per_device == pytest.approx(79 / 0.089)  # calls that leave room for a row within the objective
    assert made.one.devices < made.two_devices
    assert made.one.finish_s is not None
    assert made.one.finish_s <= 1000


def test_an_objective_that_no_call_can_keep_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"p99_ms.*at least 22"):
        plan_goal(ask(live=1.0, p99_s=0.015), COST, ROW)


@given(
    st.floats(0, 1e9), st.floats(60, 1e6), st.floats(0, 1e5), st.floats(0.03, 10), st.floats(0, 0.9), st.integers(0, 3)
)
def test_every_plan_makes_the_window_and_more_never_needs_fewer(
    items: float, window_s: float, live: float, p99_s: float, headroom: float, spares: int
) -> None:
    made = plan_goal(ask(items, window_s, live, p99_s, headroom=headroom, spares=spares), COST, ROW)
    for fleet in (made.one, made.batch):
        assert fleet.finish_s is None or fleet.finish_s <= window_s
        assert 0 <= fleet.busy <= 1
    assert made.one.devices >= made.live.devices
    more = plan_goal(ask(2 * items, window_s, live, p99_s, headroom=headroom, spares=spares), COST, ROW)
    assert more.one.devices >= made.one.devices


def test_an_estimate_is_larger_for_a_larger_model_and_smaller_on_a_faster_device() -> None:
    def row_s(model: str, device: str) -> float:
        cost, row = estimated_curve(model, DEVICES[device], 128)
        return cost.seconds(row.call(100))

    assert row_s("minilm", "l4") < row_s("bge-base", "l4") < row_s("bge-large", "l4")
    assert row_s("bge-base", "h100") < row_s("bge-base", "l4")
    with pytest.raises(InvalidInput, match="minilm"):
        estimated_curve("gpt", DEVICES["l4"], 128)
    assert all(size > 0 for size in ENCODERS.values())


@pytest.mark.parametrize("wrong", [{"window_s": 0.0}, {"items": -1.0}, {"headroom": 1.0}, {"spares": -1}])
def test_goals_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        ask(**wrong)
