"""What follows from a language model's curve and its objective."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twoshift.engine.llm import LlmObjective
from twoshift.errors import InvalidInput
from twoshift.generation import TokenUsage
from twoshift.llm_ports import LlmShape
from twoshift.policy.cost import CallCost
from twoshift.serve.llm_derived import derive_llm, objective_for

COST = CallCost.line(0.010, 0.001)  # a step, and each of its tokens
SHAPE = LlmShape(context_tokens=1000, kv_tokens=8000, block_tokens=16, step_tokens=100, max_sequences=64)


def test_as_many_sequences_as_a_step_can_take_within_the_objective() -> None:
    derived = derive_llm(COST, LlmObjective(ttft_s=1.0, tpot_s=0.030), SHAPE)
    assert derived.sequences == 20
    assert derived.one_token_s == pytest.approx(0.011)
    # 100 tokens a step of 110 ms: nine steps, and the 10 ms that are left are no step
    assert derived.prompt_tokens == 900
    assert derived.slo_s == 1.0


def test_the_rate_counts_the_prompts_that_are_read_beside_the_answers() -> None:
    objective = LlmObjective(ttft_s=1.0, tpot_s=0.030)
    guessed = derive_llm(COST, objective, SHAPE)
    assert (guessed.request_prompt_tokens, guessed.request_answer_tokens) == (256, 128)
    assert guessed.output_tokens_per_s < 0.5 * 20 / 0.030  # two prompt tokens for each that is generated
    seen = derive_llm(COST, objective, SHAPE, [TokenUsage(101, 50, cached_tokens=100)] * 16)
    assert (seen.request_prompt_tokens, seen.request_answer_tokens) == (1, 50)
    assert seen.output_tokens_per_s == pytest.approx(20 / 0.030)
    few = derive_llm(COST, objective, replace(SHAPE, kv_tokens=1000), [TokenUsage(101, 99, cached_tokens=100)] * 16)
    assert few.output_tokens_per_s == pytest.approx(5 / 0.015)  # the KV cache has room for five


def test_a_device_that_has_become_too_slow_for_its_objective_still_answers_all_that_are_admitted() -> None:
    slow = derive_llm(COST.scaled(10.0), LlmObjective(ttft_s=1.0, tpot_s=0.030), replace(SHAPE, kv_tokens=10**6))
    assert (slow.sequences, slow.live_streams) == (1, 64)
    quick = derive_llm(COST, LlmObjective(ttft_s=1.0, tpot_s=1.0), replace(SHAPE, kv_tokens=10**6))
    assert slow.output_tokens_per_s == pytest.approx(quick.output_tokens_per_s / 10)


def test_a_loose_objective_is_bounded_by_the_model() -> None:
    derived = derive_llm(COST, LlmObjective(ttft_s=1000.0, tpot_s=1000.0), SHAPE)
    assert (derived.sequences, derived.prompt_tokens) == (64, 999)


def test_an_objective_that_nobody_gave_is_one_that_the_device_can_keep() -> None:
    fast = objective_for(COST, None, None, None)
    assert (fast.ttft_s, fast.tpot_s) == (2.0, 0.1)
    slow = objective_for(CallCost.line(1.0, 0.5), None, None, 7)
    assert (slow.ttft_s, slow.tpot_s, slow.max_waiting) == (6.0, 3.0, 7)


@pytest.mark.parametrize(("ttft_s", "tpot_s", "named"), [(0.01, None, "ttft_ms"), (None, 0.005, "tpot_ms")])
def test_one_that_it_cannot_keep_is_refused(ttft_s: float | None, tpot_s: float | None, named: str) -> None:
    with pytest.raises(InvalidInput, match=f"{named}.* at least 11"):
        objective_for(COST, ttft_s, tpot_s, None)
