"""smollm in vLLM, with a chat template that knows tools, behind the real program: OpenAI's and Anthropic's clients."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from real_smollm import MARKS, smollm_home
from servers import Server, until

pytestmark = MARKS
FRANCE = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
# The machine may be busy: nothing here is about time
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000", "--grace", "10m")
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
    folder = home / "smollm"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    words = (str(folder), *PATIENT, "--tool-parser", "hermes")
    made = Server(home, *words, more={"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}, wait_s=600)
    yield made
    made.end()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_it_says_what_follows_from_its_objective(server: Server) -> None:
    assert "600,000 ms to the first token" in server.said
    derived = server.ask("GET", "/v1/derived/smollm").json()
    assert (derived["kind"], derived["ttft_s"], derived["runtime"]) == ("sequences", 600.0, "vllm")
    assert server.ask("GET", "/readyz").status == 200


def test_an_answer_is_the_same_whole_and_streamed(client: Any) -> None:
    asked = {"model": "smollm", "messages": FRANCE, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    assert "Paris" in whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_long_prompt_is_read_once(client: Any) -> None:
    long = [{"role": "user", "content": "Count: " + ", ".join(map(str, range(100)))}]
    asked = {"model": "smollm", "messages": long, "max_tokens": 1}
    first, again = (client.chat.completions.create(**asked).usage for _ in range(2))
    assert first.prompt_tokens_details.cached_tokens < again.prompt_tokens_details.cached_tokens


def test_a_seed_a_stop_and_several_answers(client: Any) -> None:
    asked = {"model": "smollm", "messages": FRANCE, "max_tokens": 8, "seed": 4, "n": 2, "temperature": 1.0}
    first, again = (client.chat.completions.create(**asked) for _ in range(2))
    assert [each.message.content for each in first.choices] == [each.message.content for each in again.choices]
    stopped = client.chat.completions.create(
        model="smollm", messages=FRANCE, max_tokens=12, temperature=0, stop="Paris"
    )
    assert "Paris" not in stopped.choices[0].message.content
    assert stopped.choices[0].finish_reason == "stop"


def test_json_keeps_to_its_schema_and_one_that_is_none_is_refused(client: Any) -> None:
    import openai

    def asked(schema: dict[str, Any]) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        return client.chat.completions.create(
            model="smollm", messages=FRANCE, max_tokens=60, temperature=0, response_format=form
        )

    city = {"type": "string", "maxLength": 12}
    reply = asked({"type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": False})
    assert json.loads(reply.choices[0].message.content).keys() == {"city"}
    with pytest.raises(openai.BadRequestError) as refused:
        asked({"type": "nonsense"})
    assert refused.value.param == "response_format"


def test_how_likely_each_token_was_by_vllm(client: Any) -> None:
    reply = client.chat.completions.create(
        model="smollm", messages=FRANCE, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    told = reply.choices[0].logprobs.content
    assert "".join(each.token for each in told) == reply.choices[0].message.content
    for each in told:
        assert each.top_logprobs[0].token == each.token
        assert 0 >= each.top_logprobs[0].logprob >= each.top_logprobs[1].logprob


def test_what_never_fits_is_refused(client: Any) -> None:
    import openai

    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="smollm", messages=FRANCE, max_tokens=100_000)
    assert (caught.value.status_code, caught.value.code) == (400, "context_length_exceeded")


def test_a_conversation_is_tokenized_as_it_is_read(server: Server, client: Any) -> None:
    told = server.ask("POST", "/tokenize", {"messages": FRANCE}).json()
    reply = client.chat.completions.create(model="smollm", messages=FRANCE, max_tokens=1)
    assert told["count"] == len(told["tokens"]) == reply.usage.prompt_tokens
    assert told["max_model_len"] == client.models.list().data[0].max_model_len
    text = server.ask("POST", "/detokenize", {"model": "smollm", "tokens": told["tokens"]}).json()["prompt"]
    assert FRANCE[-1]["content"] in text


def test_a_client_that_hangs_up_frees_vllms_cache(server: Server) -> None:
    data = json.dumps({"model": "smollm", "messages": FRANCE, "max_tokens": 1500, "ignore_eos": True, "stream": True})
    with socket.create_connection((server.host, server.port), timeout=300) as made:
        made.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n%b"
            % (len(data), data.encode())
        )
        while b'"content":"' not in made.recv(65536).replace(b'"content":""', b""):
            pass
    until(lambda: server.counted("cancelled_sequences_total", lane="online") == 1)
    until(lambda: server.counted("running_sequences") == 0)
    # Its last step says how full the cache is: the next request's
    assert server.ask("POST", "/v1/completions", {"model": "smollm", "prompt": "a", "max_tokens": 2}).status == 200
    assert server.counted("kv_use_ratio") < 0.05


def test_batches_answer_as_live(server: Server, client: Any) -> None:
    pytest.importorskip("sqlalchemy")
    body = {"model": "smollm", "messages": FRANCE, "max_tokens": 12, "temperature": 0}
    lines = [
        json.dumps({"custom_id": f"r{k}", "method": "POST", "url": "/v1/chat/completions", "body": body})
        for k in range(3)
    ]
    file = client.files.create(file=("mine.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status in ("completed", "failed"))
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3)
    live = client.chat.completions.create(**body).choices[0].message.content
    for line in client.files.content(done.output_file_id).text.splitlines():
        assert json.loads(line)["response"]["body"]["choices"][0]["message"]["content"] == live

    def used() -> dict[str, dict[str, Any]]:
        return {each["lane"]: each for each in server.ask("GET", "/v1/usage?group_by=lane").json()["data"]}

    until(lambda: used().get("batch", {}).get("rows") == 3 and used().get("live", {}).get("rows", 0) > 0)
    assert all(each["device_s"] > 0 and each["tokens"] > each["rows"] for each in used().values())


def test_message_batches_by_anthropics_client(server: Server) -> None:
    pytest.importorskip("sqlalchemy")
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as client:
        params = {"model": "smollm", "max_tokens": 12, "messages": FRANCE, "temperature": 0.0}
        batch = client.messages.batches.create(requests=[{"custom_id": "one", "params": params}])
        until(lambda: client.messages.batches.retrieve(batch.id).processing_status == "ended")
        [result] = client.messages.batches.results(batch.id)
        assert "Paris" in result.result.message.content[0].text
        assert result.result.message.stop_reason == "end_turn"


def test_messages_by_anthropics_client(server: Server) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as client:
        asked: Any = {"model": "smollm", "max_tokens": 12, "messages": FRANCE, "extra_body": {"temperature": 0}}
        whole = client.messages.create(**asked)
        assert "Paris" in whole.content[0].text
        assert whole.stop_reason == "end_turn"
        with client.messages.stream(**asked) as stream:
            assert "".join(stream.text_stream) == whole.content[0].text
            assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens
        stopped = client.messages.create(**asked, stop_sequences=["Paris"])
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")


def test_responses_by_openais_client(client: Any) -> None:
    asked: Any = {"model": "smollm", "input": FRANCE, "max_output_tokens": 12, "temperature": 0}
    whole = client.responses.create(**asked)
    assert "Paris" in whole.output_text
    assert whole.status == "completed"
    with client.responses.stream(**asked) as stream:
        last = list(stream)[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == whole.output_text
    assert last.response.usage.output_tokens == whole.usage.output_tokens


def chat(client: Any, messages: Any, **more: Any) -> Any:
    tools = [{"type": "function", "function": {**WEATHER, "parameters": CITY}}]
    asked = {"model": "smollm", "messages": messages, "tools": tools, "temperature": 0, "max_tokens": 60}
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
        asked: Any = {"model": "smollm", "max_tokens": 60, "tools": tools, "extra_body": {"temperature": 0}}
        reply = claude.messages.create(messages=ASK, tool_choice={"type": "tool", "name": "weather"}, **asked)
        [block] = reply.content
        assert (block.type, reply.stop_reason) == ("tool_use", "tool_use")
        with claude.messages.stream(messages=ECHO, **asked) as stream:
            assert stream.get_final_message().content[0].input == {"city": "Rome"}
    flat: Any = [{"type": "function", **WEATHER, "parameters": CITY, "strict": True}]
    told = client.responses.create(model="smollm", input=ECHO, tools=flat, temperature=0, max_output_tokens=60)
    assert told.output[0].name == "weather"


def test_a_batch_calls_as_live(client: Any) -> None:
    pytest.importorskip("sqlalchemy")
    tools = [{"type": "function", "function": {**WEATHER, "parameters": CITY}}]
    body = {"model": "smollm", "messages": ECHO, "tools": tools, "temperature": 0, "max_tokens": 60}
    line = json.dumps({"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body})
    file = client.files.create(file=("mine.jsonl", line.encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status in ("completed", "failed"))
    found = json.loads(client.files.content(client.batches.retrieve(batch.id).output_file_id).text)
    [call] = found["response"]["body"]["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}


def test_a_stream_is_finished_when_the_server_is_told_to_end(server: Server) -> None:
    data = json.dumps({"model": "smollm", "messages": FRANCE, "max_tokens": 60, "ignore_eos": True, "stream": True})
    with socket.create_connection((server.host, server.port), timeout=300) as made:
        made.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n%b"
            % (len(data), data.encode())
        )
        found = made.recv(65536)
        server.process.send_signal(signal.SIGTERM)
        while piece := made.recv(65536):
            found += piece
    assert found.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert server.process.wait(300) == 0
