"""LlamaIndex: its OpenAI-like embeddings and language model."""

from checks import TEXTS, URL, check, expect, version
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

version("llama-index-core")
llm = OpenAILike(model="smollm", api_base=f"{URL}/v1", api_key="none", is_chat_model=True, max_tokens=5,
                 temperature=0, timeout=300, max_retries=0)  # fmt: skip


@check("OpenAILikeEmbedding")
def _() -> None:
    embed = OpenAILikeEmbedding(model_name="minilm", api_base=f"{URL}/v1", api_key="none", max_retries=0)
    found = embed.get_text_embedding_batch(TEXTS)
    expect([len(each) for each in found] == [384] * 3 and found[0] == found[2], found[0][:4])


@check("OpenAILike: chat and stream_chat")
def _() -> None:
    asked = [ChatMessage(role="user", content="Name a colour.")]
    whole = llm.chat(asked).message.content
    expect("".join(each.delta or "" for each in llm.stream_chat(asked)) == whole, whole)


@check("OpenAILike: complete")
def _() -> None:
    text = OpenAILike(model="smollm", api_base=f"{URL}/v1", api_key="none", is_chat_model=False, max_tokens=3,
                      timeout=300, max_retries=0).complete("One, two,").text  # fmt: skip
    expect(text, "no text")
