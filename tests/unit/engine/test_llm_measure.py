"""Measuring a language model: with prompts that its vocabulary has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_llm import SHAPE, FakeLlm

from twoshift.engine.llm.measure import measure_steps


@pytest.mark.parametrize("vocabulary", [32, 512, 4096, 49_152, None])
def test_every_prompt_is_of_the_vocabulary_and_begins_like_no_other(vocabulary: int | None) -> None:
    llm = FakeLlm(replace(SHAPE, vocabulary=vocabulary))
    samples = measure_steps(llm, seconds=1e-6)  # one round
    prompts = [prompt.token_ids for _, prompt in llm.added]
    assert {each.decoded for each in samples if not each.read} >= {1, 2, 4, 8}
    assert all(0 <= token < (vocabulary or 1 << 31) for prompt in prompts for token in prompt)
    decoded = [prompt for prompt in prompts if len(prompt) > 128]
    assert len({prompt[:128] for prompt in decoded}) == 1, "what they attend to is read once"
    read = [*{prompt[128:] for prompt in decoded}, *(prompt for prompt in prompts if len(prompt) <= 128)]
    assert len({prompt[:2] for prompt in read}) == len(prompts)
    assert not llm.inside


def test_sequences_are_decoded_with_a_typical_context() -> None:
    """A device attends to all of it in every step: with short prompts a step would seem too quick."""
    llm = FakeLlm(replace(SHAPE, context_tokens=2048, kv_tokens=8192, step_tokens=512))
    measure_steps(llm, seconds=1e-6)
    held = [len(prompt.token_ids) for _, prompt in llm.added if prompt.max_tokens > 1]
    assert min(held) == max(held) == 328
