"""LLM admission: refuses what would be late or slow others down, never when nobody is there; says when to come back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.admission import Admit, Refuse
from twoshift.policy.cost import CallCost
from twoshift.policy.llm_admission import LiveSequence, LlmAdmissionPolicy, LlmBounds, LlmLoad, likely_left
from twoshift.types import CallSize

COST = CallCost(0.01, 0.001, per_row_s=0.002)
BOUNDS = LlmBounds(kv_tokens=1000, step_tokens=16, max_sequences=8, tpot_s=1.0, max_waiting=4)
POLICY = LlmAdmissionPolicy(BOUNDS)

sequences = st.builds(LiveSequence, st.integers(0, 200), st.integers(0, 500), st.integers(0, 500))
loads = st.builds(
    LlmLoad,
    st.lists(sequences, max_size=12),
    st.integers(0, 3),
    st.integers(0, 8),
    st.floats(0, 1000),
    st.floats(0, 1.0),
)
policies = st.builds(lambda tpot_s: LlmAdmissionPolicy(replace(BOUNDS, tpot_s=tpot_s)), st.floats(0.01, 1.0))
costs = st.builds(CallCost, st.floats(1e-4, 0.1), st.floats(0, 0.01), per_row_s=st.floats(0, 0.05))
asked = {"prompt": st.integers(1, 500), "count": st.integers(1, 3), "within_s": st.floats(0.01, 60.0)}


def running(*left: int, kv_tokens: int = 10, likely: int | None = None) -> LlmLoad:
    return LlmLoad([LiveSequence(0, each, kv_tokens, likely) for each in left])


def paced(sequences: int) -> LlmAdmissionPolicy:
    """Keeps the objective with so many and no more."""
    return LlmAdmissionPolicy(replace(BOUNDS, tpot_s=COST.seconds(CallSize.uniform(sequences))))


@given(policy=policies, cost=costs, load=loads, **asked)
def test_what_is_admitted_beside_others_has_its_first_token_in_time_and_slows_nobody_too_much(
    policy: LlmAdmissionPolicy, cost: CallCost, load: LlmLoad, prompt: int, count: int, within_s: float
) -> None:
    answer = policy.decide(cost, load, prompt, count, within_s)
    predicted_s = policy.first_token_s(cost, load, prompt, count)
    most = policy.live_streams(cost)
    is_too_many = len(load.live) + count > most < BOUNDS.max_sequences
    match answer:
        case Admit(finish_s):
            assert finish_s == predicted_s
            assert not load.live or (finish_s <= within_s and not is_too_many)
        case Refuse(retry_after_s, reason):
            assert retry_after_s >= 0.1
            assert reason
            assert predicted_s > within_s or is_too_many or load.waiting + count > BOUNDS.max_waiting


@given(policy=policies, cost=costs)
def test_as_many_streams_fit_as_a_step_takes_within_the_objective(policy: LlmAdmissionPolicy, cost: CallCost) -> None:
    most, tpot_s = policy.live_streams(cost), policy.bounds.tpot_s
    step_s = [cost.seconds(CallSize.uniform(n), 0.9) for n in range(1, BOUNDS.max_sequences + 1)]
    if step_s[0] > tpot_s:
        assert most == BOUNDS.max_sequences, "to refuse would help nobody"
    else:
        assert most == sum(each <= tpot_s for each in step_s)


@given(policy=policies, cost=costs, load=loads, other=sequences, more_s=st.floats(0, 10), **asked)
def test_more_time_never_turns_a_yes_into_a_no_and_more_load_never_a_no_into_a_yes(
    policy: LlmAdmissionPolicy,
    cost: CallCost,
    load: LlmLoad,
    other: LiveSequence,
    more_s: float,
    prompt: int,
    count: int,
    within_s: float,
) -> None:
    answer = policy.decide(cost, load, prompt, count, within_s)
    if isinstance(answer, Admit):
        assert isinstance(policy.decide(cost, load, prompt, count, within_s + more_s), Admit)
    elif load.live:
        held = load.kv_used_tokens + other.kv_tokens
        fuller = replace(load, live=[*load.live, other], kv_used_tokens=held)
        assert isinstance(policy.decide(cost, fuller, prompt, count, within_s), Refuse)


@given(policy=policies, cost=costs, background=st.integers(0, 8), step_s=st.floats(0, 9), **asked)
def test_where_no_live_sequence_is_there_every_prompt_is_admitted(
    policy: LlmAdmissionPolicy,
    cost: CallCost,
    background: int,
    step_s: float,
    prompt: int,
    count: int,
    within_s: float,
) -> None:
    load = LlmLoad(background=background, step_s=step_s)
    assert isinstance(policy.decide(cost, load, prompt, count, within_s), Admit)


@given(left=st.lists(st.integers(1, 300), min_size=3, max_size=7), most=st.integers(1, 7), count=st.integers(1, 3))
def test_who_would_slow_others_down_and_comes_back_when_it_was_told_to_is_admitted(
    left: list[int], most: int, count: int
) -> None:
    policy, load = paced(most), running(*left)
    answer = policy.decide(COST, load, 8, count, math.inf)
    assert isinstance(answer, Refuse) is (len(left) + count > most)
    if isinstance(answer, Refuse):
        steps = round(answer.retry_after_s / COST.seconds(CallSize.uniform(len(left))))  # or 0.1 s, which is more
        later = running(*(each - steps for each in left if each > steps))
        assert isinstance(policy.decide(COST, later, 8, count, math.inf), Admit)


@given(left=st.lists(st.integers(1, 300), min_size=8, max_size=8), within_s=st.floats(0.2, 1.0))
def test_who_comes_back_when_it_was_told_to_is_admitted(left: list[int], within_s: float) -> None:
    load = running(*left)
    answer = POLICY.decide(COST, load, 8, 1, within_s)
    if isinstance(answer, Refuse):
        steps = -(-answer.retry_after_s // COST.seconds(CallSize.uniform(8)))  # whole steps of a full device
        later = running(*(each - int(steps) for each in left if each > steps))
        assert isinstance(POLICY.decide(COST, later, 8, 1, within_s), Admit)


def test_a_full_step_a_full_cache_and_a_broken_pace_are_told_apart() -> None:
    def refused(policy: LlmAdmissionPolicy, load: LlmLoad, prompt: int = 8) -> str:
        answer = policy.decide(COST, load, prompt, 1, 0.5)
        assert isinstance(answer, Refuse)
        return answer.reason

    assert "8 sequences are running, and at most 8 can run" in refused(POLICY, running(*[400] * 8))
    assert "KV cache" in refused(POLICY, running(400, kv_tokens=995))
    assert "at most 3 can run without missing their objective of 0.019 s" in refused(paced(3), running(400, 400, 400))
    assert isinstance(paced(3).decide(COST, running(400, 400), 8, 1, 0.5), Admit)


def test_however_long_a_request_can_wait_it_does_not_slow_others_down() -> None:
    assert isinstance(paced(3).decide(COST, running(4, 4, 4), 8, 1, 3600.0), Refuse)
    assert isinstance(paced(8).decide(COST, running(*[4] * 8), 8, 1, 3600.0), Admit), "it waits for a place instead"


def test_when_to_come_back_follows_from_how_long_answers_usually_are() -> None:
    def told(likely: int | None) -> float:
        answer = paced(3).decide(COST, running(400, 400, 400, likely=likely), 8, 1, 3600.0)
        assert isinstance(answer, Refuse)
        return answer.retry_after_s

    step_s = COST.seconds(CallSize.uniform(3))
    assert (told(None), told(20), told(900)) == pytest.approx((400 * step_s, 20 * step_s, 400 * step_s))


def test_an_answer_that_is_longer_than_usual_may_be_so_by_as_much_again() -> None:
    assert likely_left(5, None) is None
    assert [likely_left(generated, 20.5) for generated in (0, 5, 20, 21, 400)] == [21, 16, 1, 21, 21]


def test_a_pace_that_one_sequence_alone_does_not_keep_refuses_nobody() -> None:
    hopeless = LlmAdmissionPolicy(replace(BOUNDS, tpot_s=1e-6))
    assert isinstance(hopeless.decide(COST, running(400, 400), 8, 1, 0.5), Admit)


def test_a_prefix_that_sequences_share_is_counted_once() -> None:
    shared = running(400, 400, kv_tokens=600)
    assert isinstance(POLICY.decide(COST, shared, 300, 1, 0.8), Refuse)
    assert isinstance(POLICY.decide(COST, replace(shared, kv_used_tokens=650), 300, 1, 0.8), Admit)


def test_only_so_many_wait_for_their_first_token() -> None:
    load = replace(running(400), waiting=4)
    answer = POLICY.decide(COST, load, 8, 1, 60.0)
    assert isinstance(answer, Refuse)
    assert answer.reason == "4 sequences are already waiting for their first token"
    assert POLICY.first_token_s(COST, load, 8) == pytest.approx(COST.seconds(CallSize(2, 10, 8, 8)))
