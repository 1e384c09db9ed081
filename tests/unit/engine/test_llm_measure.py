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
    assert len({prompt[:2] for prompt in prompts}) == len(prompts)
    assert not llm.inside
