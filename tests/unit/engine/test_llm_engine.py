"""The LLM engine over a model of arithmetic: live first, background as the governor says, nothing twice or lost."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_llm import SHAPE, FakeLlm, prompt_of, words_after

from twoshift.engine.llm import FinishedSequence, LlmEngine, LlmObjective, TokenStream
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import Broken, DeviceLost, InvalidInput, TooLarge, TryLater
from twoshift.generation import FinishReason, GenerationParams, GenerationRequest
from twoshift.llm_ports import LlmShape, Prompts, Step
from twoshift.policy.cost import CallCost
from twoshift.types import CallSize, Lane


class Bench:
    """An engine that is stepped by hand, on a clock that its steps move."""

    def __init__(self, objective: LlmObjective | None = None, shape: LlmShape = SHAPE, serves: bool = True) -> None:
        self.now_s = 100.0
        self.llm = FakeLlm(shape)
        cost: CallCost = self.llm.cost
        self.engine = LlmEngine(self.llm, cost, objective, serves=serves, clock=lambda: self.now_s, start=False)

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            before = len(self.llm.steps)
            self.engine.step(0.0)
            took = sum(step.seconds or 0.0 for step in self.llm.steps[before:])
            self.now_s += took or 0.01

    def until(self, holds: Callable[[], bool], most: int = 2000) -> None:
        for _ in range(most):
            if holds():
                return
            self.turn()
        raise AssertionError("it did not come to that")

    def block(self, *prompts: tuple[int, ...], owner: BlockOwner | None = None, max_tokens: int = 5, **params: object):
        made = Prompts(tuple(prompt_of(*each, max_tokens=max_tokens, **params) for each in prompts))
        return self.engine.submit_block(made, owner=owner)


def expected(llm: FakeLlm, token_ids: tuple[int, ...], count: int = 5) -> str:
    return llm.text_of(words_after(token_ids, count))


def test_a_live_stream_gets_every_token_once_and_then_what_it_took() -> None:
    bench = Bench()
    stream = bench.engine.stream(prompt_of(1, 2, 3))
    bench.until(lambda: stream.is_over)
    deltas = list(stream)
    assert "".join(each.text for each in deltas) == expected(bench.llm, (1, 2, 3))
    assert [each.finish for each in deltas] == [None] * 4 + [FinishReason.LENGTH]
    usage = deltas[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 5)
    assert stream.finished is not None
    first, rest = bench.llm.steps[0].seconds, [step.seconds or 0.0 for step in bench.llm.steps[1:5]]
    assert stream.finished.ttft_s == pytest.approx(0.0)  # the clock is moved after a step
    assert stream.finished.tpot_s == pytest.approx(((first or 0.0) + sum(rest[:3])) / 4)


def test_what_was_generated_is_counted_apart_from_what_was_read() -> None:
    bench = Bench(serves=False)
    owner = BlockOwner(1)
    bench.block((1, 2, 3, 4, 5, 6), (7, 8, 9, 1, 2, 3), owner=owner, max_tokens=4)
    stream = bench.engine.stream(prompt_of(1, 2, 3, max_tokens=3), tenant="red")
    bench.until(lambda: stream.is_over and owner.use.rows == 2)
    red = bench.engine.stats().tenants["red"]
    assert (owner.use.output_tokens, red.output_tokens) == (8, 3)
    assert owner.use.tokens == 12 + 6  # the first token of an answer comes from the step that ends its prompt
    decoding_s = sum(
        (step.seconds or 0.0) * (len(step.emitted) and sum(count == 1 for count in step.tokens.values()))
        / sum(step.tokens.values())
        for step in bench.llm.steps
    )  # fmt: skip
    assert owner.use.output_s + red.output_s == pytest.approx(decoding_s)
    assert 0 < owner.use.output_s < owner.use.device_s


def test_a_client_that_hangs_up_frees_its_sequence_before_the_next_step() -> None:
    bench = Bench()
    stream = bench.engine.stream(prompt_of(1, 2, max_tokens=50))
    bench.turn(3)
    stream.cancel()
    bench.turn()
    assert not bench.llm.inside
    assert bench.llm.steps[-1].tokens == {}
    assert bench.engine.sequences().lanes[Lane.ONLINE].cancelled == 1


def test_one_that_hangs_up_before_it_was_let_in_never_is() -> None:
    bench = Bench()
    stream = bench.engine.stream(prompt_of(1, 2))
    stream.cancel()
    bench.turn()
    assert bench.llm.added == []


def test_a_block_is_answered_in_its_own_order() -> None:
    bench = Bench()
    prompts = [(9, 1), (1, 5), (9, 0), (1, 4)]
    future = bench.block(*prompts)
    bench.until(future.done)
    result = future.result()
    assert result.columns["text"].tolist() == [expected(bench.llm, each) for each in prompts]
    assert result.columns["output_tokens"].tolist() == [5] * 4
    assert result.output_tokens == 20
    assert result.device_s == pytest.approx(bench.engine.sequences().busy_s)


def test_prompts_that_begin_alike_are_let_in_together_and_their_preamble_is_read_once() -> None:
    bench = Bench()
    preamble = tuple(range(40, 52))
    rows = [(*preamble, 1), (7, 7, 7, 7), (*preamble, 2), (8, 8, 8, 8), (*preamble, 3)]
    future = bench.block(*rows)
    bench.until(future.done)
    order = [prompt.token_ids for _, prompt in bench.llm.added]
    places = [at for at, ids in enumerate(order) if ids[:12] == preamble]
    assert places == list(range(places[0], places[0] + 3))
    assert future.result().cached_tokens == 24
    assert bench.engine.sequences().lanes[Lane.BATCH].cached_tokens == 24


def test_prompts_of_one_adapter_are_let_in_together_and_none_shares_what_another_read() -> None:
    bench = Bench()
    names, ids = ("", "b", "a", "b", "", "a"), tuple(range(40, 52))
    prompts = [replace(prompt_of(*ids, each), adapter=name) for each, name in enumerate(names)]
    future = bench.engine.submit_block(Prompts(tuple(prompts)))
    shared = {each.prompt.adapter: each.shared_tokens for each in bench.engine._table.pending}
    firsts = [each.shared_tokens for each in bench.engine._table.pending][::2]
    assert (shared, firsts) == ({"": 12, "a": 12, "b": 12}, [0, 0, 0])
    bench.until(future.done)
    assert [prompt.adapter for _, prompt in bench.llm.added] == ["", "", "a", "a", "b", "b"]
    assert future.result().cached_tokens == 3 * 12
    texts = [bench.llm.text_of(words_after((*map(ord, name), *ids, each), 5)) for each, name in enumerate(names)]
    assert future.result().columns["text"].tolist() == texts


def test_background_is_held_to_what_the_step_can_take_beside_live_streams() -> None:
    # A step takes 10 ms, 2 for each sequence and 1 for each token: 3 ms a decoding sequence
    bench = Bench(LlmObjective(tpot_s=0.045))
    stream = bench.engine.stream(prompt_of(1, max_tokens=200))
    future = bench.block(*[(each,) for each in range(20)], max_tokens=50)
    for _ in range(120):
        bench.turn()
        decoding = [step for step in bench.llm.steps if all(tokens == 1 for tokens in step.tokens.values())]
        assert all((step.seconds or 0.0) <= 0.045 for step in decoding)
    assert bench.engine.sequences().lanes[Lane.BATCH].running > 0
    assert not stream.is_over
    stream.cancel()
    bench.until(future.done)
    assert not future.result().errors


def test_a_live_prompt_is_read_in_one_step_while_a_background_one_waits_outside() -> None:
    bench = Bench(LlmObjective(tpot_s=0.045), replace(SHAPE, step_tokens=64))
    first = bench.engine.stream(prompt_of(1, max_tokens=100))
    bench.turn()
    future = bench.block(tuple(range(100)), max_tokens=5)
    bench.turn(2)
    [background] = [tokens for key, tokens in bench.llm.steps[-1].tokens.items() if not bench.llm.inside[key].live]
    assert 1 < background < 100, "beside a live stream it is read in pieces"
    second = bench.engine.stream(prompt_of(*range(5, 25), max_tokens=5))
    bench.turn()
    assert sorted(bench.llm.steps[-1].tokens.values()) == [1, 20]
    bench.until(lambda: second.is_over and future.done())
    assert second.text() == expected(bench.llm, tuple(range(5, 25)))
    assert future.result().columns["text"].tolist() == [expected(bench.llm, tuple(range(100)))]
    assert not first.is_over


def test_with_nobody_there_a_step_takes_at_most_half_of_the_time_to_the_first_token() -> None:
    objective, shape = LlmObjective(ttft_s=0.1, tpot_s=0.03), replace(SHAPE, step_tokens=64)
    bench = Bench(objective, shape)
    future = bench.block(*[(each, *range(50)) for each in range(6)], max_tokens=5)
    bench.until(future.done)
    assert not future.result().errors
    assert 0.03 < max(step.seconds or 0.0 for step in bench.llm.steps) <= 0.05
    job = Bench(objective, shape, serves=False)
    future = job.block(*[(each, *range(50)) for each in range(6)], max_tokens=5)
    job.until(future.done)
    assert max(step.seconds or 0.0 for step in job.llm.steps) > 0.05, "and where nobody is served what it takes"


def test_when_live_load_rises_background_goes_and_later_goes_on_without_a_token_twice() -> None:
    bench = Bench(LlmObjective(tpot_s=0.025))
    prompts = [(each, each) for each in range(8)]
    future = bench.block(*prompts, max_tokens=60)
    bench.turn(12)  # nobody is there: all of them run
    assert bench.engine.sequences().lanes[Lane.BATCH].running == 8
    stream = bench.engine.stream(prompt_of(1, 2, 3, max_tokens=30))
    bench.turn()
    stats = bench.engine.sequences()
    assert stats.requeued > 0
    assert stats.lanes[Lane.BATCH].running < 8
    bench.until(future.done)
    assert stream.is_over
    result = future.result()
    assert result.columns["text"].tolist() == [expected(bench.llm, each, 60) for each in prompts]
    assert result.columns["output_tokens"].tolist() == [60] * 8
    assert stats.reread_tokens > 0
    generated = sum(len(each.token_ids) for step in bench.llm.steps for each in step.emitted)
    assert generated == 8 * 60 + 30  # none was generated twice


def test_what_cannot_go_on_from_its_tokens_begins_anew() -> None:
    bench = Bench(LlmObjective(tpot_s=0.012))
    future = bench.block((1, 2), max_tokens=20, json_schema="{}")
    bench.turn(6)
    stream = bench.engine.stream(prompt_of(5, max_tokens=4))
    bench.until(future.done)
    assert stream.is_over
    again = [prompt for _, prompt in bench.llm.added if prompt.token_ids == (1, 2)]
    assert len(again) >= 2
    assert all(prompt.begun == () for prompt in again)
    assert future.result().columns["text"].tolist() == [expected(bench.llm, (1, 2), 20)]


def test_a_stop_string_across_the_place_where_a_sequence_was_taken_out_ends_it() -> None:
    bench = Bench(LlmObjective(tpot_s=0.012))
    whole = expected(bench.llm, (1, 2), 40)
    at = 6
    stop = whole[at - 2 : at + 2]
    future = bench.block((1, 2), max_tokens=40, stop=(stop,))
    assert whole.find(stop) == at - 2
    bench.turn(at)  # as many tokens: half of the stop string is there
    bench.engine.stream(prompt_of(5, max_tokens=4))
    bench.until(future.done)
    assert future.result().columns["text"].tolist() == [whole[: at - 2]]
    assert future.result().columns["finish_reason"].tolist() == ["stop"]


def test_a_held_owner_has_nothing_inside_until_it_is_released() -> None:
    bench = Bench()
    owner = BlockOwner(1)
    future = bench.block((1, 2), (3, 4), owner=owner, max_tokens=30)
    bench.turn(5)
    bench.engine.hold(owner)
    bench.turn(5)
    assert not bench.llm.inside
    assert bench.engine.waiting()[Lane.BATCH].rows == 2
    bench.engine.release(owner)
    bench.until(future.done)
    assert future.result().columns["text"].tolist() == [expected(bench.llm, ids, 30) for ids in ((1, 2), (3, 4))]
    assert owner.use.rows == 2


def test_owners_take_turns_by_what_they_have_had_for_their_weight() -> None:
    bench = Bench(shape=LlmShape(256, 1024, 4, 16, 2))
    light, heavy = BlockOwner(1, 1.0), BlockOwner(2, 3.0)
    first = bench.block(*[(each,) for each in range(40)], owner=light)
    second = bench.block(*[(each, 1) for each in range(40)], owner=heavy)
    bench.until(second.done)
    assert not first.done()
    assert 2.0 < heavy.use.device_s / light.use.device_s < 4.5


def test_a_prompt_that_can_never_fit_is_refused_and_the_others_are_answered() -> None:
    bench = Bench(shape=LlmShape(4096, 100, 4, 16, 8))
    future = bench.block((1,) * 90, (2, 3), max_tokens=40)
    bench.until(future.done)
    result = future.result()
    assert isinstance(result.errors[0], TooLarge)
    assert result.columns["text"][1] == expected(bench.llm, (2, 3), 40)
    assert bench.engine.sequences().lanes[Lane.BATCH].failed == 1


def test_a_block_that_is_cancelled_leaves_the_line_and_the_device() -> None:
    bench = Bench()
    future = bench.block(*[(each,) for each in range(30)], max_tokens=50)
    bench.turn(3)
    future.cancel()
    bench.turn()
    assert not bench.llm.inside
    assert bench.engine.waiting()[Lane.BATCH].rows == 0


def test_too_many_that_wait_for_a_first_token_are_told_to_come_back() -> None:
    bench = Bench(LlmObjective(max_waiting=2))
    for _ in range(2):
        bench.engine.stream(prompt_of(1))
    with pytest.raises(TryLater):
        bench.engine.stream(prompt_of(1))
    bench.turn()
    bench.engine.stream(prompt_of(1))


def test_where_every_place_is_taken_a_first_token_comes_after_another_one_s_last() -> None:
    bench = Bench()
    for number in range(SHAPE.max_sequences):
        bench.engine.stream(prompt_of(number, max_tokens=20 + 10 * number))
    bench.until(lambda: not bench.engine.sequences().lanes[Lane.ONLINE].waiting)
    step_s = bench.llm.cost.seconds(CallSize.uniform(SHAPE.max_sequences))
    prompt, soon_s = prompt_of(1, 2, 3, 4), 21 * step_s  # the first one ends in fewer steps, the second one in more
    with pytest.raises(TryLater):
        bench.engine.streams([prompt], within_s=10 * step_s)
    with pytest.raises(TryLater):
        bench.engine.streams([prompt, prompt], within_s=soon_s)
    assert len(bench.engine.streams([prompt], within_s=soon_s)) == 1


def test_who_is_refused_for_the_pace_of_others_is_told_by_the_length_of_answers_before() -> None:
    bench = Bench(LlmObjective(tpot_s=FakeLlm().cost.seconds(CallSize.uniform(2))))

    def told() -> float:
        with pytest.raises(TryLater, match="at most 2 can run") as caught:
            bench.engine.streams([prompt_of(1)])
        return caught.value.retry_after_s

    running = [bench.engine.stream(prompt_of(number, max_tokens=200)) for number in range(2)]
    bench.turn(2)
    step_s = bench.llm.cost.seconds(CallSize.uniform(2))
    assert told() == pytest.approx(198 * step_s), "they may have as much"
    running[0].cancel()
    bench.turn()
    short = bench.engine.stream(prompt_of(9, max_tokens=20))
    bench.until(lambda: short.is_over)
    bench.engine.stream(prompt_of(8, max_tokens=200))
    bench.turn()
    assert told() == pytest.approx(19 * step_s, rel=0.1)


def test_under_overload_every_stream_that_was_admitted_keeps_its_pace_and_the_device_is_full() -> None:
    tpot_s = FakeLlm().cost.seconds(CallSize.uniform(4))
    bench, streams, refused = Bench(LlmObjective(tpot_s=tpot_s)), list[TokenStream](), 0
    for number in range(300):
        try:
            streams += bench.engine.streams([prompt_of(number, max_tokens=5 + number % 30)], within_s=3600.0)
        except TryLater:
            refused += 1
        bench.turn()
    bench.until(lambda: all(each.is_over for each in streams))
    paces = [each.finished.tpot_s or 0.0 for each in streams if each.finished is not None]
    assert len(paces) == len(streams) == 300 - refused
    assert max(paces) <= tpot_s + 1e-9
    assert sum(len(step.tokens) == 4 for step in bench.llm.steps) > 250


def test_whole_answers_come_as_rows() -> None:
    bench = Bench()
    rows = bench.llm.prepare([GenerationRequest("hello", GenerationParams(max_tokens=3))])
    [future] = bench.engine.submit(rows)
    bench.until(future.done)
    assert future.result()["text"] == expected(bench.llm, tuple(map(ord, "hello")), 3)


def test_a_lost_device_fails_whoever_waits_and_whoever_comes() -> None:
    llm = FakeLlm()
    llm.broken = DeviceLost("it is gone")
    engine = LlmEngine(llm, llm.cost)
    stream = engine.stream(prompt_of(1))
    with pytest.raises(DeviceLost):
        list(stream)
    assert not engine.health().healthy
    with pytest.raises(Broken):
        engine.stream(prompt_of(1))
    engine.close()
    assert llm.closed


def test_after_a_fork_the_child_of_a_language_model_s_process_is_told_so() -> None:
    llm = FakeLlm()
    engine = LlmEngine(llm, llm.cost)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: there are threads
        child = os.fork()
    if child == 0:
        try:
            engine.stream(prompt_of(1))
        except Broken as error:
            os.write(write, f"{error} {engine.health().reason}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read().count("forked") == 2
    os.waitpid(child, 0)
    engine.close()


def test_draining_finishes_live_streams_and_hands_blocks_back() -> None:
    llm = FakeLlm()
    engine = LlmEngine(llm, llm.cost)
    engine.hold(owner := BlockOwner(1))
    block = engine.submit_block(Prompts((prompt_of(1, 2),)), owner=owner)
    stream = engine.stream(prompt_of(3, max_tokens=20))
    assert engine.drain(60.0)
    assert stream.text() == expected(llm, (3,), 20)
    with pytest.raises(TryLater):
        block.result()
    with pytest.raises(TryLater):
        engine.stream(prompt_of(1))
    engine.close()


def test_a_loop_reads_a_stream_and_hangs_up_by_leaving_it() -> None:
    llm = FakeLlm()
    told: list[FinishedSequence] = []
    with LlmEngine(llm, llm.cost) as engine:
        engine.on_finished = told.append

        async def read() -> str:
            stream = engine.stream(prompt_of(4, 5, max_tokens=9))
            return "".join([delta.text async for delta in stream])

        assert asyncio.run(read()) == expected(llm, (4, 5), 9)
    assert [each.usage.completion_tokens for each in told] == [9]


def test_many_threads_get_their_own_answers() -> None:
    llm = FakeLlm()
    got: dict[int, str] = {}
    with LlmEngine(llm, llm.cost) as engine:
        block = engine.submit_block(Prompts(tuple(prompt_of(9, each) for each in range(20))))

        def read(number: int) -> None:
            got[number] = engine.stream(prompt_of(number, number + 1)).text()

        threads = [threading.Thread(target=read, args=(number,)) for number in range(12)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        texts = block.result(60.0).columns["text"].tolist()
    assert got == {number: expected(llm, (number, number + 1)) for number in range(12)}
    assert texts == [expected(llm, (9, each)) for each in range(20)]


def test_a_block_of_live_rows_or_of_none_is_refused() -> None:
    bench = Bench()
    with pytest.raises(InvalidInput):
        bench.engine.submit_block(Prompts(()))
    with pytest.raises(InvalidInput):
        bench.engine.submit_block(Prompts((prompt_of(1),)), Lane.ONLINE)


def test_a_long_background_prompt_is_read_in_rations_beside_a_live_stream() -> None:
    bench = Bench(LlmObjective(tpot_s=0.045), shape=LlmShape(1024, 4096, 4, 256, 8))
    stream = bench.engine.stream(prompt_of(1, max_tokens=100))
    bench.turn(2)
    future = bench.block(tuple(range(1, 200)), max_tokens=3)
    bench.until(future.done)
    assert not stream.is_over
    assert all((step.seconds or 0.0) <= 0.045 for step in bench.llm.steps[2:])
    assert future.result().columns["text"].tolist() == [expected(bench.llm, tuple(range(1, 200)), 3)]


def test_device_time_is_its_tenants_by_the_tokens_of_their_sequences() -> None:
    bench = Bench()
    red, blue = bench.engine.stream(prompt_of(1, 2, 3), "red"), bench.engine.stream(prompt_of(4), "blue")
    future = bench.block((5, 6), (7, 8), owner=(owner := BlockOwner(1)))
    bench.until(lambda: red.is_over and blue.is_over and future.done())
    stats = bench.engine.stats()
    had = stats.tenants
    assert {name: (use.rows, use.tokens) for name, use in had.items()} == {"red": (1, 7), "blue": (1, 5)}
    for key, name in enumerate(("red", "blue")):
        parts = [
            (step.seconds or 0.0) * step.tokens.get(key, 0) / sum(step.tokens.values()) for step in bench.llm.steps
        ]
        assert had[name].device_s == pytest.approx(sum(parts))
    assert had["red"].device_s + had["blue"].device_s == pytest.approx(stats.lanes[Lane.ONLINE].device_s)
    assert stats.lanes[Lane.ONLINE].device_s + owner.use.device_s == pytest.approx(stats.busy_s)
    assert (owner.use.rows, owner.use.tokens) == (2, 12)


def test_who_hangs_up_in_mid_step_has_had_its_part_of_it() -> None:
    bench = Bench()
    gone, stays = bench.engine.stream(prompt_of(1, 2), "gone"), bench.engine.stream(prompt_of(3, 4), "stays")
    stepped = bench.llm.step

    def step(prefill_tokens: int | None = None) -> Step:
        gone.cancel()
        return stepped(prefill_tokens)

    bench.llm.step = step
    bench.until(lambda: stays.is_over)
    stats = bench.engine.stats()
    had = stats.tenants
    assert (had["gone"].rows, had["gone"].tokens) == (1, 2)
    assert had["gone"].device_s == pytest.approx((bench.llm.steps[0].seconds or 0.0) / 2)
    assert had["gone"].device_s + had["stays"].device_s == pytest.approx(stats.busy_s)


def test_sequences_of_an_owner_that_has_left_never_run_and_those_inside_leave() -> None:
    bench = Bench()
    gone, here = BlockOwner(1), BlockOwner(2)
    inside = bench.block((1, 2), owner=gone, max_tokens=50)
    bench.turn(3)
    bench.engine.hold(gone)
    waits, stays = bench.block((3, 4), owner=gone), bench.block((5, 6), owner=here)
    bench.engine.retire(gone)
    bench.until(stays.done)
    assert stays.result().columns["text"].tolist() == [expected(bench.llm, (5, 6))]
    assert [prompt.token_ids for _, prompt in bench.llm.added] == [(1, 2), (5, 6)]
    assert not bench.llm.inside
    for each in (inside, waits):
        with pytest.raises(TryLater, match="has left"):
            each.result(0)
