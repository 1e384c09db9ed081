"""The real thing: smollm in vLLM behind the engine, loaded once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_smollm import MARKS, smollm_home

from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput, TooLarge
from twoshift.generation import FinishReason, GenerationParams, GenerationRequest, Message
from twoshift.llm_ports import LlmRuntime, Prompts
from twoshift.policy.cost import CallCost
from twoshift.types import Lane

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore")]
PREAMBLE = "You answer questions about arithmetic, in one short sentence, and never explain yourself. " * 8
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmRuntime]:
    from twoshift.runtime.llm import LlmOptions, load_llm

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSHIFT_HOME", str(smollm_home(tmp_path_factory)))
        loaded = load_llm("smollm", LlmOptions(device="cpu", context_tokens=1024, kv_bytes=256 << 20))
        yield loaded
        loaded.close()


@pytest.fixture
def engine(runtime: LlmRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmEngine]:
    """Its runtime outlives it."""
    made = LlmEngine(runtime, CallCost(0.02, 0.001, per_row_s=0.001), LlmObjective(tpot_s=10.0))
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "close", lambda: None)
        yield made
        made.close()
        while runtime.step().tokens:
            pass


def asked(text: str, system: str | None = None, **params: Any) -> GenerationRequest:
    told = () if system is None else (Message("system", system),)
    return GenerationRequest((*told, Message("user", text)), GenerationParams(**{"temperature": 0.0, **params}))


def test_the_converted_folder_answers_as_transformers_does_with_the_same_weights(
    runtime: Any, engine: LlmEngine
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    [prompt] = runtime.prepare([asked("What is the capital of France?", max_tokens=12)]).prompts
    stream = engine.stream(prompt)
    model: Any = AutoModelForCausalLM.from_pretrained(runtime.folder.path, dtype=torch.float32)
    given = torch.tensor([prompt.token_ids])
    made = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=12, do_sample=False)
    expected = runtime.text_of(made[0, len(prompt.token_ids) :].tolist())
    assert stream.text() == expected
    assert "Paris" in expected


def test_a_stream_ends_with_its_reason_and_its_usage(runtime: LlmRuntime, engine: LlmEngine) -> None:
    [prompt] = runtime.prepare([asked("Count from one to fifty in words.", max_tokens=9)]).prompts
    stream = engine.stream(prompt)
    deltas = list(stream)
    assert [each.finish for each in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish is FinishReason.LENGTH
    assert sum(len(each.token_ids) for each in deltas) == 9
    finished = stream.finished
    assert finished is not None
    assert finished.usage.prompt_tokens == len(prompt.token_ids)
    assert 0 < finished.ttft_s < finished.seconds


def test_tokens_are_kept_out_called_for_and_given_as_a_prompt(runtime: Any, engine: LlmEngine) -> None:
    [prompt] = runtime.prepare([asked("What is the capital of France?", max_tokens=1)]).prompts
    [first] = next(iter(engine.stream(prompt))).token_ids

    def told(**params: Any) -> list[int]:
        made = GenerationParams(temperature=0.0, max_tokens=1, **params)
        [again] = runtime.prepare([GenerationRequest(prompt.token_ids, made)]).prompts
        assert again.token_ids == prompt.token_ids
        return [token for delta in engine.stream(again) for token in delta.token_ids]

    assert told() == [first]
    assert told(logit_bias=((first, -100.0),)) != [first]
    assert told(logit_bias=((7, 100.0),)) == [7]
    hot = GenerationParams(temperature=2.0, max_tokens=1, min_p=1.0)
    [sampled] = runtime.prepare([GenerationRequest(prompt.token_ids, hot)]).prompts
    assert [token for delta in engine.stream(sampled) for token in delta.token_ids] == [first]
    with pytest.raises(InvalidInput, match="logit_bias"):
        runtime.prepare([asked("x", logit_bias=((10**6, 1.0),))])


def test_a_client_that_hangs_up_frees_the_cache(runtime: LlmRuntime, engine: LlmEngine) -> None:
    stream = engine.stream(runtime.prepare([asked("Write a long story.", ignore_eos=True, max_tokens=800)]).prompts[0])
    next(iter(stream))
    assert engine.sequences().lanes[Lane.ONLINE].running == 1
    stream.cancel()
    other = engine.stream(runtime.prepare([asked("Say hello.", max_tokens=2)]).prompts[0])
    other.text()
    stats = engine.sequences()
    assert stats.kv_use == 0.0
    assert stats.lanes[Lane.ONLINE].cancelled == 1


def test_a_preamble_that_a_corpus_shares_is_read_once(runtime: LlmRuntime, engine: LlmEngine) -> None:
    rows = runtime.prepare([asked(f"What is {k} plus {k}?", PREAMBLE, max_tokens=4) for k in range(12)])
    result = engine.submit_block(rows).result()
    assert not result.errors
    shared = min(rows.lengths) // runtime.shape.block_tokens * runtime.shape.block_tokens
    assert result.cached_tokens >= 11 * (shared - runtime.shape.block_tokens)
    assert result.output_tokens == result.columns["output_tokens"].sum()


def test_a_sequence_that_was_taken_out_goes_on_with_the_same_text(runtime: LlmRuntime, engine: LlmEngine) -> None:
    rows = runtime.prepare([asked(f"Write a sentence about the number {k}.", max_tokens=40) for k in range(3)])
    alone = engine.submit_block(rows).result().columns["text"].tolist()
    owner = BlockOwner(7)
    future = engine.submit_block(rows, owner=owner)
    for _ in range(3):  # taken out again and again, whenever there is something new
        before = engine.sequences().lanes[Lane.BATCH].output_tokens
        while not future.done() and engine.sequences().lanes[Lane.BATCH].output_tokens < before + 9:
            pass
        engine.hold(owner)
        while engine.sequences().lanes[Lane.BATCH].running:
            pass
        engine.release(owner)
    assert future.result().columns["text"].tolist() == alone
    assert engine.sequences().requeued > 0


def test_answers_keep_to_a_schema(runtime: LlmRuntime, engine: LlmEngine) -> None:
    rows = runtime.prepare([asked("Describe a person.", max_tokens=60, json_schema=json.dumps(PERSON))])
    [future] = engine.submit(rows)
    answer = json.loads(future.result()["text"])
    assert isinstance(answer["name"], str)
    assert isinstance(answer["age"], int)


def test_a_stop_string_ends_an_answer_and_is_no_part_of_it(runtime: LlmRuntime, engine: LlmEngine) -> None:
    rows = runtime.prepare([asked("What is the capital of France?", max_tokens=20, stop=(" of",))])
    result = engine.submit_block(rows).result()
    assert result.columns["text"].tolist() == ["The capital"]
    assert result.columns["finish_reason"].tolist() == ["stop"]


def test_a_seed_holds_where_a_prompt_is_read_in_pieces(runtime: LlmRuntime, engine: LlmEngine) -> None:
    prompt = "word " * (runtime.shape.step_tokens + 100)
    rows = runtime.prepare([asked(prompt, temperature=1.0, seed=-1, max_tokens=8)])
    first, second = (engine.submit_block(rows).result().columns["text"][0] for _ in range(2))
    assert first == second


def test_a_seed_gives_the_same_text_again(runtime: LlmRuntime, engine: LlmEngine) -> None:
    def texts(seed: int) -> list[str]:
        rows = runtime.prepare([asked("Tell me something.", temperature=1.5, seed=seed, max_tokens=12)])
        return engine.submit_block(rows).result().columns["text"].tolist()

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


@pytest.mark.parametrize("schema", [{"type": "integer", "minimum": 5, "maximum": 1}, {"type": "string", "not": {}}])
def test_a_schema_that_no_answer_can_keep_to_is_refused_before_it_is_let_in(
    runtime: LlmRuntime, schema: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        runtime.prepare([asked("x", json_schema=json.dumps(schema))])
    assert refused.value.field == "json_schema"


def test_the_prompt_of_several_answers_is_read_once(runtime: LlmRuntime) -> None:
    row = asked("Say hello.")
    first, second, other = runtime.prepare([row, replace(row), asked("Say goodbye.")]).prompts
    assert first.token_ids is second.token_ids
    assert first.token_ids != other.token_ids


def test_what_vllm_refuses_fails_alone(runtime: LlmRuntime, engine: LlmEngine) -> None:
    good = runtime.prepare([asked("Say hello.", max_tokens=3)]).prompts
    bad = [replace(good[0], params=GenerationParams(json_schema='{"type": 17}'))]  # as no prompt is prepared
    result = engine.submit_block(Prompts((*bad, *good))).result()
    assert isinstance(result.errors[0], InvalidInput)
    assert result.errors[0].field == "json_schema"
    assert result.columns["output_tokens"][1] == 3
    assert engine.health().healthy


def test_a_prompt_that_leaves_no_room_is_refused(runtime: LlmRuntime) -> None:
    with pytest.raises(TooLarge):
        runtime.prepare([asked("word " * 2000)])
    with pytest.raises(InvalidInput):
        runtime.prepare([GenerationRequest((10**9,))])


def test_steps_are_measured_and_decoding_together_is_cheaper(runtime: LlmRuntime) -> None:
    from twoshift.engine.llm.measure import measure_steps
    from twoshift.policy.fit import fit_call_cost
    from twoshift.types import CallSize

    samples = measure_steps(runtime, seconds=1.0)
    assert {each.decoded for each in samples if not each.read} >= {1, 2, 4, 8, 16, 32, 64}
    cost = fit_call_cost([each.sample for each in samples]).cost
    assert cost.seconds(CallSize.uniform(16)) < 16 * cost.seconds(CallSize.uniform(1))


def test_the_folder_is_made_once_and_says_its_shape(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from twoshift.runtime.llm import smollm

    home: Path = runtime.folder.path.parent.parent.parent
    monkeypatch.setenv("TWOSHIFT_HOME", str(home))
    monkeypatch.setattr("twoshift.runtime.llm.gguf_folder.write_folder", lambda *_: pytest.fail("made twice"))
    assert smollm.smollm_folder() == runtime.folder.path
    assert (runtime.folder.layers, runtime.folder.kv_heads, runtime.folder.head_dim) == (30, 3, 64)
    assert runtime.folder.params == 134_515_008
    assert runtime.shape.vocabulary == 49_152
