"""A language model whose steps end one turn later, as on a GPU: nothing is lost, told twice or counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_llm import SHAPE, PipelinedLlm, prompt_of, words_after

from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.engine.llm.measure import measure_steps
from twoshift.engine.waiting import BlockOwner
from twoshift.llm_ports import Prompts
from twoshift.types import CallSize, Lane

PROMPTS = [tuple(range(at, at + 3 + at % 9)) for at in range(12)]


def text(llm: PipelinedLlm, prompt: tuple[int, ...], count: int) -> str:
    return llm.text_of(words_after(prompt, count))


def engine_of(llm: PipelinedLlm, objective: LlmObjective | None = None, serves: bool = False) -> LlmEngine:
    return LlmEngine(llm, llm.cost, objective, serves=serves, start=False)


@pytest.mark.parametrize("stop", [(), ("qqqq",)])
def test_a_block_has_its_answers_in_order(stop: tuple[str, ...]) -> None:
    llm = PipelinedLlm()
    engine = engine_of(llm)
    block = engine.submit_block(Prompts(tuple(prompt_of(*each, max_tokens=7, stop=stop) for each in PROMPTS)))
    while not block.done():
        engine.step(0.0)
    answers = block.result()
    assert list(answers.columns["text"]) == [text(llm, each, 7) for each in PROMPTS]
    assert answers.output_tokens == 7 * len(PROMPTS)
    assert engine.sequences().lanes[Lane.BATCH].output_tokens == 7 * len(PROMPTS)
    read = sum(len(prompt.token_ids) for _, prompt in llm.added)
    ran = sum(sum(step.tokens.values()) for step in llm.steps)
    counted = engine.stats().lanes[Lane.BATCH].tokens
    assert read <= counted <= ran  # but for the last step, which is on its way


@pytest.mark.slow
def test_sequences_that_are_taken_out_for_live_ones_go_on_from_their_tokens() -> None:
    llm = PipelinedLlm(replace(SHAPE, step_tokens=64))
    engine = engine_of(llm, LlmObjective(tpot_s=0.02), serves=True)
    block = engine.submit_block(Prompts(tuple(prompt_of(*each, max_tokens=20) for each in PROMPTS)))
    for _ in range(12):
        engine.step(0.0)
    streams = [engine.stream(prompt_of(*each, max_tokens=9)) for each in PROMPTS[:3]]
    while not (block.done() and all(each.is_over for each in streams)):
        engine.step(0.0)
    assert engine.sequences().requeued
    assert list(block.result().columns["text"]) == [text(llm, each, 20) for each in PROMPTS]
    for stream, prompt in zip(streams, PROMPTS, strict=False):
        assert "".join(each.text for each in stream) == text(llm, prompt, 9)


def test_who_hangs_up_while_a_step_is_on_its_way_is_not_heard_of_again() -> None:
    llm = PipelinedLlm()
    engine = engine_of(llm, serves=True)
    gone, kept = (engine.stream(prompt_of(*each, max_tokens=9)) for each in PROMPTS[:2])
    for _ in range(3):
        engine.step(0.0)
    gone.cancel()
    while not kept.is_over:
        engine.step(0.0)
    assert "".join(each.text for each in kept) == text(llm, PROMPTS[1], 9)
    assert engine.sequences().lanes[Lane.ONLINE].cancelled == 1


def test_its_steps_are_measured() -> None:
    llm = PipelinedLlm()
    samples = measure_steps(llm, seconds=1e-6)
    assert {each.decoded for each in samples if not each.read} >= {1, 2, 4, 8}
    assert {each.read for each in samples if not each.decoded} >= {16}
    assert not llm.inside


def test_a_job_runs_on_an_idle_engine_whatever_it_may_cost_live_streams() -> None:
    llm, now_s = PipelinedLlm(), [0.0]
    objective = LlmObjective(ttft_s=2.0, tpot_s=1.01 * llm.cost.seconds(CallSize.uniform(1), 0.9), live_slowdown=1.0)
    engine = LlmEngine(llm, llm.cost, objective, clock=lambda: now_s[0], start=False)
    stream = engine.stream(prompt_of(*PROMPTS[0]))
    block = engine.submit_block(Prompts(tuple(prompt_of(*each) for each in PROMPTS)))
    for _ in range(2000):
        engine.step(0.0)
        now_s[0] += 0.02
        if block.done():
            break
    assert stream.is_over
    assert block.done()


def test_a_live_answer_that_nobody_reads_as_it_comes_has_its_first_token_and_then_all_of_it() -> None:
    llm = PipelinedLlm()
    engine = engine_of(llm, serves=True)
    stream = engine.stream(replace(prompt_of(*PROMPTS[0], max_tokens=9), whole=True))
    while not stream.is_over:
        engine.step(0.0)
    first, last = stream
    assert (first.text, len(first.token_ids)) == ("", 1)
    assert last.text == text(llm, PROMPTS[0], 9)
    assert last.usage is not None
    assert last.usage.completion_tokens == 9
    assert engine.sequences().lanes[Lane.ONLINE].output_tokens == 9


def test_a_prompt_that_a_step_on_its_way_reads_is_not_counted_as_unread() -> None:
    llm = PipelinedLlm(replace(SHAPE, step_tokens=64))
    engine = engine_of(llm, LlmObjective(tpot_s=1.0), serves=True)
    engine.stream(prompt_of(*range(20), max_tokens=9))
    engine.step(0.0)  # it has begun, and nothing has ended
    load = engine._table.live_load()
    assert (load.waiting, load.prefill_tokens) == (1, 0)


def test_a_prompt_that_was_taken_out_of_a_step_on_its_way_is_unread_again() -> None:
    engine, owner = engine_of(PipelinedLlm()), BlockOwner(1)
    engine.submit_block(Prompts((prompt_of(*range(20), max_tokens=9),)), owner=owner)
    engine.step(0.0)  # a step that reads the prompt has begun
    engine.hold(owner)
    engine.step(0.0)
    owner_s = owner.use.device_s
    [waiting] = engine._table.pending
    assert owner_s > 0
    assert waiting.governed().prefill_left_tokens == 20
