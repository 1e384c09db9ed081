"""Answers of a language model that nothing else uses yet, and how far another one agrees with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from twoshift.generation import GenerationParams
from twoshift.llm_ports import LlmRuntime, Prompt

__all__ = ["Answer", "answers_of", "token_agreement"]


@dataclass(slots=True)
class Answer:
    """As far as it is generated."""

    text: str = ""
    token_ids: tuple[int, ...] = ()


def answers_of(runtime: LlmRuntime, prompts: Sequence[Prompt]) -> list[Answer]:
    """To each, in order; whoever calls this owns the runtime. Raises what a sequence ended with."""
    found, left = [Answer() for _ in prompts], set(range(len(prompts)))
    for key, prompt in enumerate(prompts):
        runtime.add(key, prompt, live=False)
    while left:
        step = runtime.step()
        for key, token_ids in step.more:
            found[key].token_ids += tuple(token_ids)
        for each in step.emitted:
            if each.error is not None:
                runtime.abort(sorted(left))
                raise each.error
            answer = found[each.key]
            answer.text, answer.token_ids = answer.text + each.text, (*answer.token_ids, *each.token_ids)
            if each.finish is not None:
                left.discard(each.key)
    return found


def token_agreement(runtime: LlmRuntime, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> float:
    """The share of the answers' tokens that this model would have chosen, too, after the same tokens before them.

    Each token is asked for by itself: after the first difference two answers would have nothing in common.
    """
    asked, expected = list[Prompt](), list[int]()
    for at in count():
        longer = [each for each in zip(prompts, answers, strict=True) if len(each[1].token_ids) > at]
        if not longer:
            break
        asked += [_next_token(prompt, answer.token_ids[:at]) for prompt, answer in longer]
        expected += [answer.token_ids[at] for _, answer in longer]
    chosen = [answer.token_ids[:1] for answer in answers_of(runtime, asked)]
    agreed = sum(own == (wanted,) for own, wanted in zip(chosen, expected, strict=True))
    return agreed / len(expected) if expected else 1.0


def _next_token(prompt: Prompt, begun: tuple[int, ...]) -> Prompt:
    return replace(prompt, params=GenerationParams(temperature=0.0), begun=begun, max_tokens=len(begun) + 1)
