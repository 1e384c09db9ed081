"""Anthropic's own client: messages and message batches."""

import time

import anthropic
from checks import FOX, URL, check, expect, version

version("anthropic")
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


@check("messages, whole and streamed, with usage")
def _() -> None:
    asked = {"model": "smollm", "max_tokens": 5, "messages": FOX, "extra_body": {"temperature": 0}}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text, final = "".join(stream.text_stream), stream.get_final_message()
    expect(text == whole.content[0].text, (text, whole))
    expect(final.usage.output_tokens == whole.usage.output_tokens, final)


@check("message batches")
def _() -> None:
    params = {"model": "smollm", "max_tokens": 5, "messages": FOX}
    batch = client.messages.batches.create(requests=[{"custom_id": "one", "params": params}])
    end_s = time.monotonic() + 300
    while batch.processing_status != "ended" and time.monotonic() < end_s:
        time.sleep(1)
        batch = client.messages.batches.retrieve(batch.id)
    [result] = client.messages.batches.results(batch.id)
    expect(result.result.type == "succeeded" and result.result.message.content[0].text, result)


@check("errors have Anthropic's format")
def _() -> None:
    try:
        client.messages.batches.retrieve("msgbatch_nope")
    except anthropic.NotFoundError as error:
        expect(error.body["error"]["type"] == "not_found_error", error.body)
    else:
        raise AssertionError("it was found")
