"""Calls in what a model writes, by vLLM's own parsers and a real tokenizer; no model is run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from real_smollm import MARKS, smollm_home

from twoshift.errors import InvalidInput
from twoshift.generation import (
    GenerationParams,
    GenerationRequest,
    Message,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    ToolUse,
    joined_calls,
)
from twoshift.llm_ports import Prompt

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore")]
CITY = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
TOOLS = (Tool("weather", "Of a city.", CITY), Tool("clock", None, "{}"))
ROME = '{"city": "Rome"}'


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from twoshift.runtime.llm.prompts import PromptMaker
    from twoshift.runtime.llm.smollm import smollm_folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSHIFT_HOME", str(smollm_home(tmp_path_factory)))
        yield PromptMaker(smollm_folder(), 2048)


def read(maker: Any, parser: str | None, use: ToolUse, text: str) -> tuple[str, Sequence[ToolCall]]:
    """All that a text says, as it comes token by token."""
    from twoshift.runtime.llm.tool_calls import ToolCalls

    request = GenerationRequest((Message("user", "x"),), tools=use)
    reader = ToolCalls(parser, maker.tokenizer).reader(Prompt((1,), GenerationParams(), 9, request))
    assert reader is not None
    ids = maker.tokenizer.encode(text, add_special_tokens=False)
    said, deltas = "", list[ToolCallDelta]()
    for place, each in enumerate(ids):
        more, calls = reader.more(maker.tokenizer.decode([each]), [each], finished=place == len(ids) - 1)
        said += more
        deltas += calls
    return said, joined_calls(deltas)


def test_hermes_calls_are_found_and_are_no_part_of_the_text(maker: Any) -> None:
    one = f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>'
    two = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    said, calls = read(maker, "hermes", ToolUse(TOOLS), f"Let me see. {one}\n{two}")
    assert said.strip() == "Let me see."
    assert [(each.name, json.loads(each.arguments)) for each in calls] == [("weather", {"city": "Rome"}), ("clock", {})]
    assert len({each.id for each in calls} - {""}) == 2
    _, alone = read(maker, "hermes", ToolUse(TOOLS, parallel=False), f"{one}\n{two}")
    assert [each.name for each in alone] == ["weather"]
    assert read(maker, "hermes", ToolUse(TOOLS), "Nothing to call here.") == ("Nothing to call here.", ())


def test_another_family_has_another_parser(maker: Any) -> None:
    _, calls = read(maker, "pythonic", ToolUse(TOOLS), '[weather(city="Rome")]')
    assert [(each.name, json.loads(each.arguments)) for each in calls] == [("weather", {"city": "Rome"})]
    with pytest.raises(InvalidInput, match=r"tool_parser: 'llama3_json'.*python_tag"):
        read(maker, "llama3_json", ToolUse(TOOLS), "x")  # its mark is no token of this model


def test_forced_calls_are_all_of_the_text(maker: Any) -> None:
    said, calls = read(maker, None, ToolUse(TOOLS, ToolChoice.NAMED, "weather"), ROME)
    assert (said, [(each.name, each.arguments) for each in calls]) == ("", [("weather", ROME)])
    listed = f'[{{"name": "weather", "parameters": {ROME}}}, {{"name": "clock", "parameters": {{}}}}]'
    said, calls = read(maker, None, ToolUse(TOOLS, ToolChoice.REQUIRED), listed)
    assert (said, [(each.name, each.arguments) for each in calls]) == ("", [("weather", ROME), ("clock", "{}")])


def test_what_a_forced_call_keeps_to_is_checked_and_told_as_tools(maker: Any) -> None:
    from twoshift.runtime.llm.grammars import check_grammar
    from twoshift.runtime.llm.tool_calls import ToolCalls

    calls = ToolCalls(None, maker.tokenizer)
    made = json.loads(calls.schema(ToolUse(TOOLS, ToolChoice.REQUIRED, parallel=False), check_grammar) or "")
    assert (made["type"], made["minItems"], made["maxItems"]) == ("array", 1, 1)
    assert calls.schema(ToolUse(TOOLS, ToolChoice.NAMED, "weather"), check_grammar) == CITY
    assert calls.schema(ToolUse(TOOLS, ToolChoice.NONE), check_grammar) is None
    odd = (Tool("odd", None, json.dumps({"type": "object", "patternProperties": {"a": {}}})),)
    with pytest.raises(InvalidInput, match="tools"):
        calls.schema(ToolUse(odd, ToolChoice.NAMED, "odd"), check_grammar)
    with pytest.raises(InvalidInput, match=r"tool_choice: 'auto'.*--tool-parser"):
        calls.schema(ToolUse(TOOLS), check_grammar)


def test_a_parser_that_is_not_there_is_answered_with_those_that_are() -> None:
    from twoshift.runtime.llm.tool_calls import check_parser

    with pytest.raises(InvalidInput, match=r"tool_parser: 'nonsense'.*hermes.*llama3_json"):
        check_parser("nonsense")


def test_a_template_that_knows_no_tools_refuses_them(maker: Any) -> None:
    with pytest.raises(InvalidInput, match=r"tools.*chat template"):
        maker.prepare([GenerationRequest((Message("user", "x"),), tools=ToolUse(TOOLS))])


def test_a_template_is_told_of_tools_calls_and_results(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    template = (
        "{% for tool in tools %}{{ tool.function.name }}:{{ tool.function.parameters.type }};{% endfor %}"
        "{% for message in messages %}{{ message.role }}={{ message.content }}"
        "{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments.city }})"
        "{% endfor %}{{ message.tool_call_id }}|{% endfor %}"
    )
    monkeypatch.setattr(maker.tokenizer, "chat_template", template)
    monkeypatch.setattr(maker, "_takes_tools", True)

    def told(arguments: str) -> str:
        called = Message("assistant", "", (ToolCall("c1", "weather", arguments),))
        turns = (Message("user", "x"), called, Message("tool", "7", tool_call_id="c1"))
        [prompt] = maker.prepare([GenerationRequest(turns, tools=ToolUse(TOOLS[:1]))]).prompts
        assert prompt.request is not None
        return maker.text_of(prompt.token_ids)

    assert told(ROME) == "weather:object;user=x|assistant=weather(Rome)|tool=7c1|"
    with pytest.raises(
        InvalidInput, match=r"messages: 'no JSON'.*valid JSON as the arguments of the tool call weather"
    ):
        told("no JSON")


@pytest.mark.parametrize("parameters", ['{"$defs": [1]}', '{"a":' * 600 + "1" + "}" * 600, '{"type": "nothing"}'])
@pytest.mark.parametrize("choice", [ToolChoice.REQUIRED, ToolChoice.NAMED])
def test_parameters_that_are_no_schema_are_refused(maker: Any, parameters: str, choice: ToolChoice) -> None:
    from twoshift.runtime.llm.grammars import check_grammar
    from twoshift.runtime.llm.tool_calls import ToolCalls

    use = ToolUse((Tool("weather", None, parameters),), choice, "weather")
    with pytest.raises(InvalidInput, match="tools"):
        ToolCalls(None, maker.tokenizer).schema(use, check_grammar)


def test_arguments_that_no_text_can_hold_are_refused(maker: Any) -> None:
    for arguments in ("[" * 3000 + "]" * 3000, "{"):
        turn = Message("assistant", "", tool_calls=(ToolCall("1", "weather", arguments),))
        with pytest.raises(InvalidInput, match="messages"):
            maker.prepare([GenerationRequest((Message("user", "x"), turn))])


def test_a_long_list_of_calls_is_whole_though_it_is_not_read_at_each_token(maker: Any) -> None:
    cities = [f"city {place} " * 20 for place in range(12)]
    text = json.dumps([{"name": "weather", "parameters": {"city": each}} for each in cities])
    _, calls = read(maker, None, ToolUse(TOOLS, ToolChoice.REQUIRED), text)
    assert [json.loads(each.arguments)["city"] for each in calls] == cities


def test_a_token_that_the_weights_do_not_have_is_refused_before_it_ends_the_device(maker: Any) -> None:
    from twoshift.runtime.llm.prompts import PromptMaker
    from twoshift.runtime.llm.smollm import smollm_folder

    few, many = (PromptMaker(smollm_folder(), 2048, vocabulary) for vocabulary in (512, 60_000))
    for prompt, told in [
        ((40_000,), "token ids from 0 to 511"),
        ("Rome, the eternal city", "the tokenizer in the folder has more tokens than the model"),
        ((Message("user", "Rome"),), "more tokens than the model"),
    ]:
        with pytest.raises(InvalidInput, match=told):
            few.prepare([GenerationRequest(prompt)])
        assert many.prepare([GenerationRequest(prompt)]).prompts[0].token_ids
    assert few.prepare([GenerationRequest((511,))]).prompts[0].token_ids == (511,)
    assert many.prepare([GenerationRequest((59_999,))]).prompts[0].token_ids == (59_999,)
