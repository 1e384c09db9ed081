"""Tools in chat, messages and responses, whole and streamed, by OpenAI's and Anthropic's own clients."""

from __future__ import annotations

from typing import Any

import pytest
from llm_service import LlmServer

from twoshift.generation import ToolCall, ToolChoice

pytest.importorskip("httptools")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": CITY}},
    {"type": "function", "function": {"name": "clock"}},
]
OTHER = {"type": "function", "function": {"name": "other"}}
NAMELESS = {"type": "function", "function": {"name": ""}}
CALL = {"type": "tool_use", "id": "a", "name": "b", "input": {}}
ASK: Any = [{"role": "user", "content": "what is it like?"}]


def asked_of(server: LlmServer) -> Any:
    """What the model was asked last."""
    return server.llm.added[-1][1].request


def test_chat_tells_calls_and_takes_their_results(server: LlmServer, client: Any) -> None:
    asked: Any = {"model": "m", "tools": TOOLS, "max_tokens": 4}
    reply = client.chat.completions.create(messages=ASK, **asked)
    [choice] = reply.choices
    assert choice.finish_reason == "tool_calls"
    assert [(each.id, each.function.name, each.function.arguments) for each in choice.message.tool_calls] == [
        ("call_1", "weather", '{"city": "Rome"}'),
        ("call_2", "clock", "{}"),
    ]
    results = [{"role": "tool", "tool_call_id": each.id, "content": "7"} for each in choice.message.tool_calls]
    client.chat.completions.create(messages=[*ASK, choice.message, *results], **asked)
    _, called, first, _ = asked_of(server).prompt
    assert called.tool_calls[0] == ToolCall("call_1", "weather", '{"city": "Rome"}')
    assert (first.role, first.content, first.tool_call_id) == ("tool", "7", "call_1")
    assert [each.name for each in asked_of(server).tools.tools] == ["weather", "clock"]


def test_chat_streams_calls_in_pieces(client: Any) -> None:
    stream = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS, max_tokens=4, stream=True)
    choices = [each.choices[0] for each in stream]
    pieces = [call for each in choices for call in each.delta.tool_calls or ()]
    assert [(each.index, each.id, each.function.name) for each in pieces] == [
        (0, "call_1", "weather"),
        (0, None, None),
        (1, "call_2", "clock"),
    ]
    assert "".join(each.function.arguments for each in pieces[:2]) == '{"city": "Rome"}'
    assert choices[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("choice", "wanted", "finish"),
    [
        ("auto", (ToolChoice.AUTO, ""), "tool_calls"),
        ("none", (ToolChoice.NONE, ""), "length"),
        ("required", (ToolChoice.REQUIRED, ""), "tool_calls"),
        ({"type": "function", "function": {"name": "clock"}}, (ToolChoice.NAMED, "clock"), "stop"),
    ],
)
def test_the_choice_reaches_the_model(server: LlmServer, choice: Any, wanted: Any, finish: str) -> None:
    reply = server.chat(tools=TOOLS, tool_choice=choice, max_tokens=4, parallel_tool_calls=False)
    assert reply.json()["choices"][0]["finish_reason"] == finish
    use = asked_of(server).tools
    assert ((use.choice, use.name), use.parallel) == (wanted, False)


def test_messages_tell_calls_and_take_their_results(server: LlmServer, claude: Any) -> None:
    tools = [{"name": "weather", "description": "Of a city.", "input_schema": CITY}]
    asked: Any = {"model": "m", "max_tokens": 4, "tools": tools, "tool_choice": {"type": "any"}}
    reply = claude.messages.create(messages=ASK, **asked)
    said, first, second = reply.content
    assert (said.type, reply.stop_reason) == ("text", "tool_use")
    assert (first.type, first.id, first.name, first.input) == ("tool_use", "call_1", "weather", {"city": "Rome"})
    assert asked_of(server).tools.choice is ToolChoice.REQUIRED
    results = [{"type": "tool_result", "tool_use_id": each.id, "content": "7"} for each in (first, second)]
    turns = [*ASK, {"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
    claude.messages.create(messages=turns, **asked)
    assert [each.role for each in asked_of(server).prompt] == ["user", "assistant", "tool", "tool"]
    assert asked_of(server).prompt[1].tool_calls[0].name == "weather"


def test_messages_stream_a_block_for_each_call(claude: Any) -> None:
    tools = [{"name": "weather", "input_schema": CITY}]
    with claude.messages.stream(model="m", max_tokens=4, tools=tools, messages=ASK) as stream:
        kinds = [event.type for event in stream if event.type.startswith("content_block_")]
        whole = stream.get_final_message()
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    assert [each.type for each in whole.content] == ["text", "tool_use", "tool_use"]
    assert whole.content[1].input == {"city": "Rome"}
    assert whole.stop_reason == "tool_use"


def test_responses_tell_calls_and_take_their_results(server: LlmServer, client: Any) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": CITY, "strict": True}]
    asked: Any = {"model": "m", "tools": tools, "max_output_tokens": 4}
    reply = client.responses.create(input="what is it like?", tool_choice="required", **asked)
    message, first, second = reply.output
    assert (message.type, first.type, first.call_id, first.name) == ("message", "function_call", "call_1", "weather")
    assert (first.arguments, reply.status) == ('{"city": "Rome"}', "completed")
    results = [{"type": "function_call_output", "call_id": each.call_id, "output": "7"} for each in (first, second)]
    client.responses.create(input=[*ASK, *reply.output, *results], **asked)
    turns = asked_of(server).prompt
    assert [each.role for each in turns] == ["user", "assistant", "tool", "tool"]
    assert [each.id for each in turns[1].tool_calls] == ["call_1", "call_2"]


def test_responses_stream_an_item_for_each_call(client: Any) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": CITY, "strict": True}]
    with client.responses.stream(model="m", input="x", tools=tools, max_output_tokens=4) as stream:
        events = list(stream)
    done = [each.item.type for each in events if each.type == "response.output_item.done"]
    assert done == ["message", "function_call", "function_call"]
    arguments = [each.arguments for each in events if each.type == "response.function_call_arguments.done"]
    assert arguments == ['{"city": "Rome"}', "{}"]
    assert [each.type for each in events[-1].response.output] == done
    assert [each.output_index for each in events if each.type == "response.output_item.added"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("path", "given", "field"),
    [
        ("chat/completions", {"tool_choice": "required"}, "tool_choice"),
        ("chat/completions", {"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ("chat/completions", {"tools": TOOLS, "tool_choice": OTHER}, "tool_choice"),
        ("chat/completions", {"tools": TOOLS, "tool_choice": NAMELESS}, "tool_choice"),
        ("chat/completions", {"messages": [{"role": "tool", "content": "7"}]}, "messages[0].tool_call_id"),
        ("chat/completions", {"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ("messages", {"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ("messages", {"messages": [{"role": "user", "content": [CALL]}]}, "messages[0].content"),
        ("responses", {"tools": [{"type": "web_search"}]}, "tools[0]"),
        ("responses", {"input": [{"type": "function_call", "call_id": "c"}]}, "input[0]"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_its_name(server: LlmServer, path: str, given: Any, field: str) -> None:
    said = {"input": "x"} if path == "responses" else {"messages": ASK, "max_tokens": 4}
    reply = server.ask("POST", f"/v1/{path}", {"model": "m", **said, **given})
    assert reply.status == 400, reply.body
    assert field in reply.json()["error"]["message"]
