"""Routing of sequences: the first token first, and prompts that begin alike to the replica that has read them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.cost import CallCost
from twoshift.policy.llm_admission import LlmBounds
from twoshift.policy.llm_routing import LlmRoutingPolicy, Prefix, SequencesAsked

COST = CallCost(0.01, 0.001, per_row_s=0.002)
BOUNDS = LlmBounds(kv_tokens=10_000, step_tokens=64, max_sequences=8, tpot_s=1.0, max_waiting=64)


def routing(replicas: int = 2) -> LlmRoutingPolicy:
    made = LlmRoutingPolicy()
    for number in range(replicas):
        made.joined(number, COST, BOUNDS)
    return made


def asked(tokens: int = 256, *prefixes: Prefix, max_tokens: int = 100) -> SequencesAsked:
    return SequencesAsked(tokens, 1, max_tokens, prefixes)


def test_prompts_that_begin_alike_go_where_their_beginning_was_read() -> None:
    policy = routing()
    shared = Prefix("system", 200)
    homes = set[int | None]()
    for request in range(8):
        found = policy.choose(asked(256, shared))
        assert found is not None
        homes.add(found)
        policy.sent(found, request, asked(256, shared))
        policy.generated(found, request, 100)
        policy.ended(found, request)
        other = policy.choose(asked(8))
        assert other is not None
        policy.sent(other, 100 + request, asked(8))
        policy.ended(other, 100 + request)
    assert len(homes) == 1


def test_a_prefix_is_worth_no_more_than_the_time_to_read_it() -> None:
    policy = routing()
    shared = Prefix("system", 200)
    policy.sent(0, 0, asked(256, shared))
    policy.ended(0, 0)
    assert policy.choose(asked(256, shared)) == 0
    for request in range(1, 4):
        policy.sent(0, request, asked(256))  # unread prompts ahead of it: longer than its own prefix
    assert policy.choose(asked(256, shared)) == 1


def test_the_longest_prefix_that_is_known_decides() -> None:
    policy = routing()
    short, long = Prefix("s", 64), Prefix("l", 1024)
    policy.sent(0, 0, asked(2000, long, short))
    policy.sent(1, 1, asked(100, short))
    for replica in (0, 1):
        policy.ended(replica, replica)
    assert policy.choose(asked(2000, long, short)) == 0
    assert policy.choose(asked(100, short)) == 1


def test_without_a_prefix_the_one_with_less_to_do_has_it() -> None:
    policy = routing()
    policy.sent(0, 0, asked(500))
    assert policy.choose(asked()) == 1
    policy.sent(1, 1, asked(500))
    policy.generated(0, 0, 1)
    assert policy.choose(asked()) == 0


def test_a_replica_that_left_keeps_nothing() -> None:
    policy = routing()
    shared = Prefix("system", 200)
    policy.sent(0, 0, asked(256, shared))
    policy.left(0)
    assert policy.choose(asked(256, shared)) == 1
    policy.joined(0, COST, BOUNDS)
    assert policy.outstanding(0) == 0
    assert policy.seconds(0, asked(256, shared)) == policy.seconds(1, asked(256, shared))


def test_one_that_was_slow_is_asked_again_now_and_then() -> None:
    policy = routing()
    policy.learned(0, CallCost(10.0, 1.0), 0, 0.0)
    chosen = list[int]()
    for request in range(80):
        found = policy.choose(asked())
        assert found is not None
        chosen.append(found)
        policy.sent(found, request, asked())
        policy.ended(found, request)
    assert 1 <= chosen.count(0) <= 4


@given(
    st.lists(
        st.tuples(st.sampled_from(["sent", "generated", "ended", "left", "joined"]), st.integers(0, 3)), max_size=60
    ),
    st.lists(st.sampled_from("abc"), max_size=2),
)
def test_whatever_has_happened_the_choice_is_one_that_is_there_and_not_excluded(
    events: list[tuple[str, int]], keys: list[str]
) -> None:
    policy, there = routing(3), {0, 1, 2}
    request = asked(300, *(Prefix(key, 100) for key in keys))
    for number, (event, replica) in enumerate(events):
        match event:
            case "joined":
                policy.joined(replica, COST, BOUNDS)
                there.add(replica)
            case "left":
                policy.left(replica)
                there.discard(replica)
            case "sent" if replica in there:
                policy.sent(replica, number, request)
            case "generated":
                policy.generated(replica, number - 1, 3)
            case _:
                policy.ended(replica, number - 1)
        for without in ((), (0,), (0, 1)):
            found = policy.choose(request, without)
            left = there - set(without)
            assert found in left if left else found is None
