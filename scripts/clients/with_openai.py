"""OpenAI's own client: every path that it has here."""

import json
import time

import openai
from checks import FOX, TEXTS, URL, check, expect, version

version("openai")
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0, timeout=300)


@check("models")
def _() -> None:
    found = {model.id: model for model in client.models.list()}
    expect({"minilm", "smollm"} <= set(found), found)
    expect(client.models.retrieve("minilm").max_model_len == 256, found["minilm"])


@check("embeddings")
def _() -> None:
    found = client.embeddings.create(model="minilm", input=TEXTS).data
    expect(len(found[0].embedding) == 384 and found[0].embedding == found[2].embedding, len(found))


@check("embeddings: token ids of another tokenizer are refused")
def _() -> None:
    try:
        client.embeddings.create(model="minilm", input=[[64, 2579, 39935]])
    except openai.BadRequestError as error:
        expect("check_embedding_ctx_length" in error.message, error.message)
    else:
        raise AssertionError("they were taken")


@check("chat, whole and streamed, with usage")
def _() -> None:
    whole = client.chat.completions.create(model="smollm", messages=FOX, max_tokens=5, temperature=0)
    options = {"include_usage": True}
    stream = list(client.chat.completions.create(
        model="smollm", messages=FOX, max_tokens=5, temperature=0, stream=True, stream_options=options
    ))  # fmt: skip
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    expect(text == whole.choices[0].message.content, (text, whole))
    expect(stream[-1].usage.completion_tokens == whole.usage.completion_tokens, stream[-1])


@check("completions")
def _() -> None:
    expect(client.completions.create(model="smollm", prompt="One, two,", max_tokens=3).choices[0].text, "no text")


@check("responses, whole and streamed, with usage")
def _() -> None:
    asked = {"model": "smollm", "input": FOX, "max_output_tokens": 5, "temperature": 0}
    whole = client.responses.create(**asked)
    *_, last = client.responses.create(**asked, stream=True)
    expect(last.response.output_text == whole.output_text, (last, whole))
    expect(last.response.usage.output_tokens == whole.usage.output_tokens, last)


@check("structured output by a JSON schema")
def _() -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    form = {"type": "json_schema", "json_schema": {"name": "fox", "schema": schema, "strict": True}}
    reply = client.chat.completions.create(model="smollm", messages=FOX, max_tokens=30, response_format=form)
    expect("colour" in json.loads(reply.choices[0].message.content), reply)


@check("a prompt that is too long: 400, context_length_exceeded")
def _() -> None:
    try:
        client.chat.completions.create(model="smollm", messages=FOX, max_tokens=10**6)
    except openai.BadRequestError as error:
        expect(error.code == "context_length_exceeded", error)
    else:
        raise AssertionError("it was taken")


@check("files and batches")
def _() -> None:
    asked = {"method": "POST", "url": "/v1/embeddings"}
    bodies = [{"model": "minilm", "input": each} for each in TEXTS]
    lines = [{"custom_id": str(k), **asked, "body": body} for k, body in enumerate(bodies)]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("requests.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    end_s = time.monotonic() + 120
    while batch.status not in ("completed", "failed", "expired", "cancelled") and time.monotonic() < end_s:
        time.sleep(0.5)
        batch = client.batches.retrieve(batch.id)
    expect(batch.status == "completed" and batch.request_counts.completed == 3, batch)
    expect(len(client.files.content(batch.output_file_id).text.splitlines()) == 3, batch)
