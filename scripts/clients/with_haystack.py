"""Haystack: OpenAI's embedders and chat generator."""

from checks import TEXTS, URL, check, expect, version
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

version("haystack-ai")
KEY = Secret.from_token("none")


@check("OpenAITextEmbedder, OpenAIDocumentEmbedder")
def _() -> None:
    text = OpenAITextEmbedder(api_key=KEY, model="minilm", api_base_url=f"{URL}/v1").run(TEXTS[0])["embedding"]
    many = OpenAIDocumentEmbedder(api_key=KEY, model="minilm", api_base_url=f"{URL}/v1", progress_bar=False)
    found = many.run([Document(content=each) for each in TEXTS])["documents"]
    expect(len(text) == 384 and len(found[1].embedding) == 384, found)


@check("OpenAIChatGenerator")
def _() -> None:
    options = {"max_tokens": 5, "temperature": 0}
    made = OpenAIChatGenerator(api_key=KEY, model="smollm", api_base_url=f"{URL}/v1", generation_kwargs=options,
                               timeout=300, max_retries=0)  # fmt: skip
    expect(made.run([ChatMessage.from_user("Name a colour.")])["replies"][0].text, "no text")


@check("OpenAIChatGenerator, streamed")
def _() -> None:
    pieces = []
    made = OpenAIChatGenerator(api_key=KEY, model="smollm", api_base_url=f"{URL}/v1", timeout=300, max_retries=0,
                               generation_kwargs={"max_tokens": 5}, streaming_callback=pieces.append)  # fmt: skip
    made.run([ChatMessage.from_user("Name a colour.")])
    expect(len(pieces) > 1, pieces)
