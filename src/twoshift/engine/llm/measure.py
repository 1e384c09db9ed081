"""What a step takes, measured by hand before anybody is served."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twoshift.generation import GenerationParams, GenerationRequest
from twoshift.llm_ports import LlmRuntime
from twoshift.policy.cost import Sample

__all__ = ["measure_steps"]

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHARES = (0.125, 0.25, 0.5, 0.9)  # of the tokens that a step may have, in one prompt
_OUTPUT_TOKENS, _ROW_WORDS = 4, 12


def measure_steps(runtime: LlmRuntime, budget_s: float) -> list[Sample]:
    """Steps that read and steps that generate, of one sequence to many; the first ones only warm it."""
    shape = runtime.shape
    longest = min(shape.step_tokens, shape.context_tokens - _OUTPUT_TOKENS - 1)
    plans = [[max(1, int(share * longest))] for share in _SHARES]
    plans += [[_ROW_WORDS] * rows for rows in _ROWS if rows <= shape.max_sequences]
    _run(runtime, [longest // 2], 0)
    samples, until_s = list[Sample](), time.monotonic() + budget_s
    # The ends of the curve first, in case that time runs out
    for number, plan in enumerate(plans[-1:] + plans[:-1], start=1):
        samples += _run(runtime, plan, number)
        if time.monotonic() > until_s and len(samples) > 2 * _OUTPUT_TOKENS:
            break
    return samples


def _run(runtime: LlmRuntime, words: Sequence[int], number: int) -> list[Sample]:
    """Prompts of about so many tokens each, no two of them alike, to their last token."""
    params = GenerationParams(max_tokens=_OUTPUT_TOKENS, temperature=0.0, ignore_eos=True)
    texts = [f"{number} {place}" + " a" * max(1, count - 4) for place, count in enumerate(words)]
    keys = [-(1 + place) for place in range(len(texts))]  # none of an engine's
    prompts = runtime.prepare([GenerationRequest(each, params) for each in texts]).prompts
    for key, prompt in zip(keys, prompts, strict=True):
        runtime.add(key, prompt, live=True)
    found, left = list[Sample](), set(keys)
    while left:
        step = runtime.step()
        left -= {each.key for each in step.emitted if each.finish is not None or each.error is not None}
        if step.seconds is not None and step.tokens:
            size = step.size
            found.append(Sample(size.rows, size.tokens, size.longest, step.seconds, size.squares))
    return found
