from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.decode import decode_rate
from twoshift.policy.plan.generation import Conversation, fitting_sequences, generation_rate, together_s

LINE = CallCost(0.010, 0.0001)  # a step, and each of its tokens

costs = st.builds(
    CallCost,
    overhead_s=st.floats(1e-4, 0.1),
    per_token_s=st.floats(1e-7, 1e-3),
    floor_s=st.sampled_from([0.0, 0.005, 0.05]),
    per_row_s=st.floats(0, 1e-3),
    soft=st.booleans(),
)
tokens = st.integers(1, 5000)
slots = st.integers(1, 512)
steps = st.integers(16, 16_384)


@given(costs, tokens, tokens, slots, steps)
@example(CallCost(0.0625, 0.001), 12, 2, 2, 16)  # a step of 16.25 tokens
def test_reading_prompts_never_makes_answers_quicker_than_decoding_alone(
    cost: CallCost, prompt: int, answer: int, sequences: int, step_tokens: int
) -> None:
    rate = generation_rate(cost, Conversation(prompt, answer), sequences, step_tokens)
    assert 0 < rate.output_tokens_per_s <= decode_rate(cost, sequences).tokens_per_s * (1 + 1e-9)
    assert 0 <= rate.output_share <= 1
    assert rate.prompt_tokens_per_s / rate.output_tokens_per_s == pytest.approx(prompt / answer)
    assert rate.answers_per_s * answer == pytest.approx(rate.output_tokens_per_s)


@given(costs, tokens, slots, steps)
def test_prompts_of_one_token_are_decoding_alone(cost: CallCost, answer: int, sequences: int, step_tokens: int) -> None:
    rate = generation_rate(cost, Conversation(1, answer), sequences, step_tokens)
    assert rate.output_tokens_per_s == pytest.approx(decode_rate(cost, sequences).tokens_per_s)
    assert rate.tpot_s == pytest.approx(decode_rate(cost, sequences).step_s)
    assert rate.output_share == pytest.approx((answer - 1) / answer)  # the first is of the step that reads


@given(st.floats(0.001, 0.1), st.floats(1e-6, 1e-3), tokens, tokens, slots, steps)
@example(0.0625, 0.00075, 12, 2, 2, 16)  # fewer full steps than a sequence needs
def test_every_token_is_paid_for_once_where_a_step_is_a_line(
    overhead_s: float, per_token_s: float, prompt: int, answer: int, sequences: int, step_tokens: int
) -> None:
    """Whatever is read beside what: a cycle takes its tokens and its steps, and never fewer steps than they need."""
    rate = generation_rate(CallCost(overhead_s, per_token_s), Conversation(prompt, answer), sequences, step_tokens)
    cycle_s, tokens_in_all = sequences / rate.answers_per_s, sequences * (prompt + answer - 1)
    cycle_steps = cycle_s / rate.tpot_s
    assert cycle_steps >= tokens_in_all / max(sequences, step_tokens) - 1e-6
    paid_s = cycle_steps * overhead_s + tokens_in_all * per_token_s
    assert cycle_s == pytest.approx(paid_s, rel=0.02, abs=cycle_steps * per_token_s)  # tokens of a step are whole


@given(costs, tokens, st.integers(1, 400), slots)
def test_longer_prompts_cost_output(cost: CallCost, prompt: int, answer: int, sequences: int) -> None:
    shorter, longer = (
        generation_rate(cost, Conversation(each, answer), sequences, 8192).output_tokens_per_s
        for each in (prompt, 2 * prompt + answer + 16)
    )
    assert longer <= shorter * 1.02


def test_a_step_that_is_full_of_prompts_bounds_the_rate() -> None:
    """64 slots, prompts of 1,000 tokens, one token each: reading alone keeps steps of 512 tokens full."""
    rate = generation_rate(LINE, Conversation(1000, 1), 64, 512)
    assert rate.prompt_tokens_per_s == pytest.approx(512 / (0.010 + 512 * 0.0001), rel=0.01)


def test_a_figure_by_hand() -> None:
    """4 slots, prompts of 9 and answers of 4 tokens: each slot reads in one of 4 steps, so 175 of 256 steps read."""
    rate = generation_rate(LINE, Conversation(9, 4), 4, 100)
    assert rate.tpot_s == pytest.approx(0.010 + 12 * 0.0001, rel=0.003)
    assert rate.output_tokens_per_s == pytest.approx(4 / rate.tpot_s)
    fixed = CallCost(0.010, 1e-9, reading_s=0.020)
    assert generation_rate(fixed, Conversation(9, 4), 4, 100).tpot_s == pytest.approx(0.010 + 175 / 256 * 0.020)


def test_the_kv_cache_bounds_sequences_by_their_whole_answers() -> None:
    asked = Conversation(200, 50, cached_tokens=150)
    assert fitting_sequences(4000, asked, 256) == 10
    assert fitting_sequences(4000, asked, 256, kv_mark=0.8) == 8
    assert fitting_sequences(4000, asked, 6) == 6
    assert fitting_sequences(10, asked, 6) == 1


@pytest.mark.parametrize("given_tokens", [(0, 1), (1, 0), (float("nan"), 1), (1, float("inf"))])
def test_no_tokens_are_no_conversation(given_tokens: tuple[float, float]) -> None:
    with pytest.raises(InvalidInput):
        Conversation(*given_tokens)


def test_sequences_that_begin_together_are_read_in_full_steps_and_then_decoded() -> None:
    """8 prompts of 100 tokens in two steps of 400, then 9 more tokens each."""
    cost = CallCost(0.010, 0.0001, reading_s=0.005)
    said_s = together_s(cost, Conversation(100, 10), 8, 400)
    assert said_s == pytest.approx(2 * (0.015 + 400 * 0.0001) + 9 * (0.010 + 8 * 0.0001))
    assert said_s < 8 / generation_rate(cost, Conversation(100, 10), 8, 400).answers_per_s, "fewer steps read"


@given(costs, tokens, tokens, slots, steps)
def test_those_that_begin_together_take_no_longer_than_if_each_were_alone(
    cost: CallCost, prompt: int, answer: int, sequences: int, step_tokens: int
) -> None:
    asked = Conversation(prompt, answer)
    one_s, all_s = (together_s(cost, asked, each, step_tokens) for each in (1, sequences))
    assert one_s <= all_s * (1 + 1e-9)
    assert all_s <= sequences * one_s * (1 + 1e-6) + cost.per_token_s * answer
