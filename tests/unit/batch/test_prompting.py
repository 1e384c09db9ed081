"""Prompts from columns, and answers in JSON as columns."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from fake_llm import FakeLlm

from twoshift.batch.json_answers import AnswerSchema
from twoshift.batch.llm_device import LlmDevice
from twoshift.batch.parity_report import RECEIPT_PROMPTS
from twoshift.batch.prompting import Template
from twoshift.batch.result_columns import result_array
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.batch.table_rows import model_rows
from twoshift.engine.llm import LlmEngine
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams, GenerationRequest, Message
from twoshift.llm_ports import LlmShape
from twoshift.policy.cost import CallCost

SCHEMA = """{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
    "share": {"type": "number"}, "sure": {"type": "boolean"}, "tags": {"type": "array"}}}"""


def job(**given: object) -> JobSettings:
    return make_settings({"inputs": ["a.parquet"], "output": "out", "model": "smollm", **given})


def test_a_lone_name_is_a_column_and_braces_make_a_template() -> None:
    row = {"title": "A", "n": 3}
    assert Template.parse("title", "prompt", is_column=True).filled(row) == "A"
    assert Template.parse("{title} is {n}, {{so}}", "prompt").filled(row) == "A is 3, {so}"
    assert Template.parse("title", "system").filled(row) == "title"
    assert Template.parse("{title}{n}{title}", "prompt").columns == ("title", "n")


@pytest.mark.parametrize("given", ["{", "{}", "{a!r}", "{a:>3}", "a } b"])
def test_a_template_that_cannot_be_read_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="prompt"):
        job(prompt=given)


def test_rows_become_requests_and_a_null_becomes_none() -> None:
    settings = job(prompt="{q}?", system="Be {how}.", max_tokens=7, temperature=0.5, seed=3, stop=["\n"])
    batch = pa.record_batch({"q": ["a", None], "how": ["nice", "good"], "other": [1, 2]})
    params = GenerationParams(max_tokens=7, may_shorten=True, temperature=0.5, seed=3, stop=("\n",))
    wanted = GenerationRequest((Message("system", "Be nice."), Message("user", "a?")), params)
    assert model_rows(batch, settings) == [wanted, None]
    assert settings.model_columns == ("q", "how")


@pytest.mark.parametrize(
    ("given", "said"),
    [({}, "template: smollm is"), ({"text": "q"}, "instead of --text"), ({"columns": ["q"]}, "instead of --columns")],
)
def test_a_language_model_wants_a_prompt_and_says_so(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^prompt is missing; expected --prompt with.*{said}"):
        job(**given).check_model(is_llm=True)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompt": "q", "text": "t"}, "prompt"),
        ({"system": "x"}, "system"),
        ({"prompt": "q", "temperature": 9.0}, "temperature"),
        ({"prompt": "q", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "no column {{}}"}, "prompt"),
        ({"prompt": "q", "json_schema": "[]"}, "json_schema"),
        ({"prompt": "q", "json_schema": '{"properties": {"error": {}}}'}, "json_schema"),
    ],
)
def test_what_does_not_go_together_is_named(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job(**given)
    assert caught.value.field == field


def test_answers_become_typed_columns_with_nulls_where_there_is_nothing() -> None:
    texts = np.array(
        ['{"name": "A", "age": 3, "share": 1, "sure": true, "tags": [1]}', "{}", '{"age": "x"}', '{"na', "[]", None],
        object,
    )
    columns, errors = AnswerSchema(SCHEMA).columns(texts, failed={5})
    failed = np.array([False, False, True, True, True, True])
    got = {name: result_array(values, failed) for name, values in columns.items()}
    kinds = {name: str(array.type) for name, array in got.items()}
    assert kinds == {"name": "string", "age": "int64", "share": "double", "sure": "bool", "tags": "string"}
    assert {name: array[0].as_py() for name, array in got.items()} == {
        "name": "A", "age": 3, "share": 1.0, "sure": True, "tags": "[1]",
    }  # fmt: skip
    assert all(array[1].as_py() is None for array in got.values())
    assert sorted(errors) == [2, 3, 4]
    assert "property age of the answer is not of the type integer" in errors[2]
    assert "--max-tokens" in errors[3]


def test_what_rows_take_can_be_written_down_where_some_answers_are_cut() -> None:
    llm = FakeLlm()
    with LlmEngine(llm, llm.cost, serves=False) as engine:
        stops: list[tuple[str, ...]] = [(), tuple("abcdefghijklm")]
        rows = [GenerationRequest("hello", GenerationParams(max_tokens=100, stop=stop)) for stop in stops]
        measured = LlmDevice(engine).calibrate([rows[k % 2] for k in range(8)])
        answers = engine.submit_block(llm.prepare(rows)).result().columns["finish_reason"].tolist()
        assert answers == ["length", "stop"]
        assert msgspec.json.decode(msgspec.json.encode(measured.seconds_per_row)) == measured.seconds_per_row


def test_the_first_guess_of_a_job_is_what_its_rows_then_take() -> None:
    """Prompts that are read and answers that are decoded on a full device, by the same function as plans use."""
    shape = LlmShape(context_tokens=256, kv_tokens=4096, block_tokens=4, step_tokens=128, max_sequences=16)
    llm = FakeLlm(shape, CallCost(0.01, 0.001, per_row_s=0.002))
    with LlmEngine(llm, llm.cost, serves=False) as engine:
        asked = [GenerationRequest(f"{k:03}{'hello' * 10}", GenerationParams(max_tokens=64)) for k in range(128)]
        guessed = LlmDevice(engine, BlockOwner(1)).calibrate(asked)
        took_s = engine.submit_block(llm.prepare(asked)).result().device_s / len(asked)
        before_s = engine.stats().busy_s
        others = [replace(each, prompt=f"again {each.prompt}") for each in asked[:RECEIPT_PROMPTS]]
        for each in engine.submit(llm.prepare(others)):
            each.result()
        again_s = engine.stats().busy_s - before_s
    assert guessed.seconds_per_row == pytest.approx(took_s, rel=0.15)
    assert guessed.recheck_s == pytest.approx(again_s, rel=0.15)


def test_a_job_says_what_rows_take_from_the_first_of_them() -> None:
    llm = FakeLlm()
    with LlmEngine(llm, llm.cost, serves=False) as engine:
        device = LlmDevice(engine, owner := BlockOwner(1))
        rows = [GenerationRequest("hello", GenerationParams(max_tokens=100)) for _ in range(20)]
        measured = device.calibrate(rows)
        assert measured.seconds_per_row > 0
        assert measured.schema is not None
        schema = pa.ipc.read_schema(pa.py_buffer(measured.schema))
        assert schema.names == ["text", "finish_reason", "output_tokens"]
        assert sum(len(each.emitted) for each in llm.steps) == 8 * 32  # of eight rows, the beginnings
        assert owner.use.device_s == pytest.approx(engine.stats().busy_s)  # who asked pays for them, too
        none = device.calibrate([GenerationRequest("x" * 300)])
        assert none.schema is None
        assert "tokens" in (none.error or "")
        asked = GenerationParams(max_tokens=4, json_schema=SCHEMA)
        typed = device.calibrate([GenerationRequest("hello", asked)]).schema
        assert typed is not None
        assert pa.ipc.read_schema(pa.py_buffer(typed)).names[3:] == ["name", "age", "share", "sure", "tags"]
