"""LiteLLM: embeddings, chat and reranking, and the errors that it knows."""

import litellm
from checks import FOX, TEXTS, URL, check, expect, version

version("litellm")
litellm.suppress_debug_info = True
HERE = {"api_base": f"{URL}/v1", "api_key": "none"}


@check("embedding")
def _() -> None:
    found = litellm.embedding(model="openai/minilm", input=TEXTS, encoding_format="float", **HERE).data
    expect(len(found[0]["embedding"]) == 384, found)


@check("completion, whole and streamed")
def _() -> None:
    asked = {"model": "openai/smollm", "messages": FOX, "max_tokens": 5, "temperature": 0, **HERE}
    whole = litellm.completion(**asked).choices[0].message.content
    streamed = "".join(each.choices[0].delta.content or "" for each in litellm.completion(**asked, stream=True))
    expect(streamed == whole, (streamed, whole))


@check("a prompt that is too long raises ContextWindowExceededError")
def _() -> None:
    try:
        litellm.completion(model="openai/smollm", messages=FOX, max_tokens=10**6, **HERE)
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("it was taken")


@check("rerank with the provider hosted_vllm (/rerank)")
def _() -> None:
    found = litellm.rerank(model="hosted_vllm/ranker", query="old road", documents=TEXTS, top_n=1,
                           api_base=URL, api_key="none").results  # fmt: skip
    expect(found[0]["index"] == 1, found)


@check("rerank with the provider cohere (/v2/rerank)")
def _() -> None:
    found = litellm.rerank(model="cohere/ranker", query="old road", documents=TEXTS, top_n=1,
                           api_base=URL, api_key="none").results  # fmt: skip
    expect(found[0]["index"] == 1, found)
