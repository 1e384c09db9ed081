from __future__ import annotations

from twoshift.policy.background_queue import Block
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.types import Item

COST = CallCost.line(0.001, 0.0001)


def lanes(**limits: float) -> LanePolicy:
    return LanePolicy(COST, LaneLimits(slo_s=0.1, lanes=2, **limits))  # pyright: ignore[reportArgumentType]


def launched(policy: LanePolicy, now_s: float = 0.0) -> Call:
    decision = policy.decide(now_s)
    assert isinstance(decision, Run)
    return decision.call


def test_rows_are_shared_out_among_the_lanes_that_are_free() -> None:
    policy = lanes()
    for key in range(5):
        policy.submit(Item(key, 0.1), 0.0)
    assert [launched(policy).size.rows, launched(policy).size.rows] == [3, 2]
    policy.submit(Item(9, 0.1), 0.0)
    assert policy.decide(0.0) == Idle()


def test_where_one_lane_works_the_other_takes_all_that_waits() -> None:
    policy = lanes()
    policy.submit_block(Block(-1, [1]), 0.0)
    launched(policy)
    for key in range(5):
        policy.submit(Item(key, 0.1), 0.0)
    assert launched(policy).size.rows == 5


def test_a_call_in_a_lane_is_no_longer_than_makes_it_cheap() -> None:
    policy = lanes()
    for key in range(500):
        policy.submit(Item(key, 10.0), 0.0)
    call = launched(policy)
    assert call.slot is Slot.SHARED
    assert policy.curves.predict_s(call.size) <= 8 * policy.curves.predict_s(
        call.size._replace(rows=1, tokens=1, squares=1)
    )


def test_a_row_alone_has_the_device_and_others_wait_for_it() -> None:
    policy = lanes()
    policy.submit(Item(1, 0.1), 0.0)
    first = launched(policy)
    assert (first.slot, first.predicted_s) == (Slot.WHOLE, COST.seconds(first.size))
    policy.submit(Item(2, 0.1), 0.0)
    assert policy.decide(0.0) == Idle()
    assert policy.running.free_s(0.0) == [first.predicted_s] * 2
    policy.finished(first, 0.001)
    assert launched(policy, 0.001).live[0].key == 2


def test_a_row_too_long_for_a_lane_waits_until_all_are_free() -> None:
    policy = lanes()
    policy.submit_block(Block(-1, [1] * 10_000), 0.0)
    beside = [launched(policy), launched(policy)]
    policy.submit(Item(1, 0.1, tokens=400), 0.0)  # 41 ms; 82 in a lane, and calls are at most 50
    policy.finished(beside[0], 0.01)
    assert policy.decide(0.01) == Idle()
    policy.finished(beside[1], 0.011)
    call = launched(policy, 0.011)
    assert (call.slot, [item.key for item in call.live]) == (Slot.WHOLE, [1])


def test_background_rows_that_are_too_long_for_a_lane_have_the_device() -> None:
    policy = lanes()
    policy.submit_block(Block(-1, [400, 400]), 0.0)
    call = launched(policy)
    assert (call.slot, call.size.rows) == (Slot.WHOLE, 1)


def test_what_a_lane_takes_is_learned_apart_from_the_whole() -> None:
    policy = lanes()
    for turn in range(40):
        for key in range(2):
            policy.submit(Item(2 * turn + key, turn + 0.1), float(turn))
        for call in (launched(policy, float(turn)), launched(policy, float(turn))):
            policy.finished(call, 1.5 * COST.seconds(call.size))  # where twice the time was expected
    size = policy.live.cut([Item(-1, 100.0)], 41.0)[0].size
    assert policy.curves.predict_s(size) < 1.6 * COST.seconds(size)
    assert policy.curves.predict_s(size, Slot.WHOLE) == COST.seconds(size)
