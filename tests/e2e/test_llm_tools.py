"""Tools with a real model: smollm with a chat template that knows them, by OpenAI's and Anthropic's own clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from real_smollm import MARKS, smollm_home
from servers import Server

pytestmark = MARKS
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000")  # the machine may be busy: nothing here is about time
TEMPLATE = """{% if tools %}<|im_start|>system
You have these tools: {{ tools | tojson }}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Paris"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"name": "weather", "description": "The weather in a city."}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
ASK: Any = [{"role": "user", "content": "What is the weather in Rome?"}]
ECHO: Any = [  # a small model does again what it has done
    message
    for _ in range(3)
    for message in ({"role": "user", "content": "Weather in Rome?"}, {"role": "assistant", "content": CALL})
] + [{"role": "user", "content": "Weather in Rome?"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from twoshift.runtime.llm.smollm import smollm_folder

    for name in ("httptools", "openai"):
        pytest.importorskip(name)
    home = smollm_home(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSHIFT_HOME", str(home))
        source = smollm_folder()
    folder = home / "tooled"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    words = (str(folder), *PATIENT, "--tool-parser", "hermes")
    made = Server(home, *words, more={"VLLM_CPU_KVCACHE_SPACE": "1"}, wait_s=600)
    yield made
    made.end()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as made:
        yield made


def chat(client: Any, messages: Any, **more: Any) -> Any:
    tools = [{"type": "function", "function": {**WEATHER, "parameters": CITY}}]
    asked = {"model": "tooled", "messages": messages, "tools": tools, "temperature": 0, "max_tokens": 60}
    return client.chat.completions.create(**asked, **more)


def test_forced_calls_keep_to_their_schema(client: Any) -> None:
    for choice, finish in (
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "weather"}}, "stop"),
    ):
        [reply] = chat(client, ASK, tool_choice=choice, parallel_tool_calls=False).choices
        [call] = reply.message.tool_calls
        assert (call.function.name, reply.finish_reason) == ("weather", finish)
        assert json.loads(call.function.arguments)["city"] in ("Rome", "Paris")


def test_a_call_of_the_models_own_is_found_whole_and_streamed(client: Any) -> None:
    [reply] = chat(client, ECHO).choices
    [call] = reply.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"})
    assert reply.finish_reason == "tool_calls"
    pieces = [piece for each in chat(client, ECHO, stream=True) for piece in each.choices[0].delta.tool_calls or ()]
    assert pieces[0].function.name == "weather"
    assert json.loads("".join(each.function.arguments or "" for each in pieces)) == {"city": "Rome"}
    assert "<tool_call>" in chat(client, ECHO, tool_choice="none").choices[0].message.content


def test_messages_and_responses_call_it_too(server: Server, client: Any) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as claude:
        tools = [{**WEATHER, "input_schema": CITY}]
        asked: Any = {"model": "tooled", "max_tokens": 60, "tools": tools, "extra_body": {"temperature": 0}}
        reply = claude.messages.create(messages=ASK, tool_choice={"type": "tool", "name": "weather"}, **asked)
        [block] = reply.content
        assert (block.type, reply.stop_reason) == ("tool_use", "tool_use")
        with claude.messages.stream(messages=ECHO, **asked) as stream:
            assert stream.get_final_message().content[0].input == {"city": "Rome"}
    flat: Any = [{"type": "function", **WEATHER, "parameters": CITY, "strict": True}]
    told = client.responses.create(model="tooled", input=ECHO, tools=flat, temperature=0, max_output_tokens=60)
    assert told.output[0].name == "weather"


def test_a_batch_calls_as_live(client: Any) -> None:
    pytest.importorskip("sqlalchemy")
    from servers import until

    tools = [{"type": "function", "function": {**WEATHER, "parameters": CITY}}]
    body = {"model": "tooled", "messages": ECHO, "tools": tools, "temperature": 0, "max_tokens": 60}
    line = json.dumps({"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body})
    file = client.files.create(file=("mine.jsonl", line.encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status in ("completed", "failed"))
    found = json.loads(client.files.content(client.batches.retrieve(batch.id).output_file_id).text)
    [call] = found["response"]["body"]["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
