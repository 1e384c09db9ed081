"""However rows come in, the plan is the one that row after row would make."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.call_cutter import CallCutter
from twoshift.policy.cost import CallCost, Ceiling
from twoshift.policy.live_queue import LiveQueue
from twoshift.policy.planned_calls import CallRoom, PlannedCall, ends
from twoshift.types import CallSize, Item

seconds = st.floats(0.0, 0.01)
lengths = st.lists(st.integers(1, 60), max_size=40)


@st.composite
def costs(draw: st.DrawFn) -> CallCost:
    """Lines and hinges of every kind, some with a call that was measured to be cheaper."""
    cost = CallCost(
        overhead_s=draw(st.floats(1e-6, 0.01)),
        per_token_s=draw(seconds) / 10,
        floor_s=draw(seconds),
        per_square_s=draw(seconds) / 1000,
        soft=draw(st.booleans()),
        per_row_s=draw(seconds),
    )
    size = CallSize.uniform(draw(st.integers(1, 8)), draw(st.integers(1, 60)))
    low_s = cost.seconds(size) * draw(st.floats(0.2, 1.0))
    ceiling = Ceiling(size.rows, size.tokens, size.squares, low_s)
    return CallCost(**{**_plain(cost), "ceilings": (ceiling,) if draw(st.booleans()) else ()})


def _plain(cost: CallCost) -> dict[str, float]:
    return {name: getattr(cost, name) for name in CallCost.__slots__ if name not in ("ratios", "ceilings")}


@st.composite
def queues(draw: st.DrawFn) -> tuple[LiveQueue, CallCost]:
    cost = draw(costs())
    room = CallRoom(draw(st.integers(1, 12)), draw(st.integers(10, 300)), draw(st.floats(0.001, 0.2)))
    lanes = draw(st.integers(1, 2))
    whole_s = cost.scaled(0.5).seconds if lanes > 1 else None
    return LiveQueue(CallCutter(room, cost.seconds, lanes, whole_s, draw(st.floats(0.001, 0.2)))), cost


@given(queues(), st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_a_row_that_is_due_first_is_not_thought_to_wait_for_those_that_have_time(
    made: tuple[LiveQueue, CallCost], tokens: list[int]
) -> None:
    queue, cost = made
    for key, n in enumerate(tokens):
        queue.add(Item(key, 60.0 + key, n, 0), 0.0)
    one = CallSize.uniform(1, 8)
    first_s, due_s = queue.planned_s(one, 1.0)
    assert (first_s, due_s) == (pytest.approx(cost.seconds(one)), float("inf"))
    middle_s, _ = queue.planned_s(one, 60.0 + len(tokens) / 2 - 1.5)
    behind_s, _ = queue.planned_s(one, 1_000.0)
    assert first_s <= middle_s <= behind_s + cost.seconds(one) + 1e-9


@given(
    queues(),
    lengths,
    st.lists(st.floats(0.0, 1.0), min_size=40, max_size=40),
    st.integers(0, 40),
    st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_the_plan_is_what_row_after_row_makes(
    made: tuple[LiveQueue, CallCost], tokens: list[int], deadlines_s: list[float], asked: int, signatures: list[int]
) -> None:
    queue, _ = made
    items = [Item(key, deadlines_s[key], n, signatures[key]) for key, n in enumerate(tokens)]
    for item in items:
        if item.key >= asked:
            queue.joined(item, 0.0)  # as admission does: the plan is kept up to date from here on
        queue.add(item, 0.0)
    one_by_one = queue.cut(sorted(items, key=lambda item: (item.deadline_s, item.key)), 0.0)
    assert [*queue.plan()] == [*one_by_one]


@given(
    queues(),
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 1), st.lists(st.integers(1, 60), min_size=1, max_size=6)),
        max_size=12,
    ),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_requests_of_many_rows_make_the_plan_that_their_rows_would_make(
    made: tuple[LiveQueue, CallCost], requests: list[tuple[int, int, list[int]]], asked: list[bool]
) -> None:
    queue, _ = made
    items, keys = list[Item](), itertools.count()
    for is_asked, (deadline_s, signature, tokens) in zip(asked, requests, strict=False):
        rows = [Item(next(keys), deadline_s / 4, n, signature) for n in tokens]
        items += rows
        planned = [*queue.plan_with(rows, 0.0)] if is_asked else None
        queue.add_together(rows, 0.0)
        assert planned is None or planned == [*queue.plan()]
    one_by_one = queue.cut(sorted(items, key=lambda item: (item.deadline_s, item.key)), 0.0)
    assert [*queue.plan()] == [*one_by_one]
    size = CallSize.of(item.tokens for item in items)
    assert (len(queue), queue.tokens, queue.squares) == (size.rows, size.tokens, size.squares)


@given(queues(), lengths, st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 3)), min_size=40, max_size=40))
def test_every_call_takes_the_earliest_rows_of_one_signature_and_the_earliest_row_goes_first(
    made: tuple[LiveQueue, CallCost], tokens: list[int], drawn: list[tuple[float, int]]
) -> None:
    queue, _ = made
    items = [Item(key, *drawn[key][:1], n, drawn[key][1]) for key, n in enumerate(tokens)]
    for item in items:
        queue.add(item, 0.0)
    left = sorted(items, key=lambda item: (item.deadline_s, item.key))
    while planned := queue.plan():
        size, signature = planned[0].size, planned[0].signature
        alike = [item for item in left if item.signature == signature]
        taken = queue.take(size.rows)
        assert left[0] in taken
        assert taken == alike[: size.rows]
        assert CallSize.of(item.tokens for item in taken) == size
        left = [item for item in left if item not in taken]
    assert left == []


@given(queues(), lengths)
def test_rows_never_take_longer_than_is_said_without_a_look_at_them(
    made: tuple[LiveQueue, CallCost], tokens: list[int]
) -> None:
    queue, cost = made
    slowest = cost.at_least(cost.scaled(0.5))
    for key, n in enumerate(tokens):
        queue.add(Item(key, 1.0, n), 0.0)
    size = CallSize.of(tokens)
    assert (len(queue), queue.tokens, queue.squares) == (size.rows, size.tokens, size.squares)
    most_s = slowest.at_most_s(size.rows, size.tokens, size.squares)
    assert sum(call.predicted_s for call in queue.plan()) <= most_s * (1 + 1e-9)
    queue.take(len(tokens) // 2)
    for key in range(len(tokens) // 2, len(tokens)):
        assert queue.remove(key)
    assert (len(queue), queue.tokens, queue.squares) == (0, 0, 0)


@given(
    st.lists(st.tuples(st.floats(0.001, 1.0), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 3),
    st.floats(0.0, 0.9),
)
def test_calls_in_a_row_are_not_all_slow_and_one_alone_may_be(
    calls: list[tuple[float, bool]], lanes: int, margin: float
) -> None:
    plan = [PlannedCall(CallSize.uniform(1), each_s, 9.0, 0.0, each_s if whole else 0.0) for each_s, whole in calls]
    free_s = [0.0] * lanes
    cautious, planned, middle = (
        list(ends(plan, free_s)),
        list(ends(plan, free_s, margin=margin)),
        list(ends(plan, free_s, pace=1.0 - margin)),
    )
    assert planned[0] == pytest.approx(cautious[0])
    for low_s, end_s in zip(middle, planned, strict=True):
        assert low_s <= end_s + 1e-9
    assert max(planned) <= sum(each_s for each_s, _ in calls) + 1e-9
