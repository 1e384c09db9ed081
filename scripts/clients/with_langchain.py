"""LangChain: OpenAI's embeddings and chat, Cohere's reranking."""

import cohere
from checks import TEXTS, URL, check, expect, version
from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from langchain_core.exceptions import ContextOverflowError
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

version("langchain-openai")
HERE = {"base_url": f"{URL}/v1", "api_key": "none", "max_retries": 0}
chat = ChatOpenAI(model="smollm", temperature=0, max_tokens=5, timeout=300, **HERE)


class Fox(BaseModel):
    """What is asked for."""

    colour: str


@check("OpenAIEmbeddings(check_embedding_ctx_length=False)")
def _() -> None:
    embed = OpenAIEmbeddings(model="minilm", check_embedding_ctx_length=False, **HERE)
    found = embed.embed_documents(TEXTS)
    expect([len(each) for each in found] == [384] * 3 and found[0] == found[2], found[0][:4])
    expect(len(embed.embed_query("a red fox")) == 384, "embed_query")


@check("ChatOpenAI: invoke and stream")
def _() -> None:
    whole = chat.invoke("Name a colour.")
    streamed = "".join(str(each.content) for each in chat.stream("Name a colour."))
    expect(streamed == whole.content and whole.usage_metadata["output_tokens"], (streamed, whole))


@check("ChatOpenAI: structured output")
def _() -> None:
    longer = ChatOpenAI(model="smollm", temperature=0, max_tokens=60, timeout=300, **HERE)
    found = longer.with_structured_output(Fox, method="json_schema").invoke("The fox is red. Which colour?")
    expect(isinstance(found, Fox), found)


@check("a prompt that is too long raises ContextOverflowError")
def _() -> None:
    try:
        chat.invoke("x " * 20_000)
    except ContextOverflowError:
        return
    raise AssertionError("it was taken")


@check("CohereRerank: /v2/rerank")
def _() -> None:
    client = cohere.ClientV2(api_key="none", base_url=URL)
    ranker = CohereRerank(client=client, model="ranker", top_n=1)
    [found] = ranker.compress_documents([Document(page_content=each) for each in TEXTS], "old road")
    expect(found.page_content == TEXTS[1], found)
