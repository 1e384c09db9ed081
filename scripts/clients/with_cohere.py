"""Cohere's own client: reranking by both versions of its API."""

import cohere
from checks import TEXTS, URL, check, expect, version

version("cohere")


@check("ClientV2.rerank: /v2/rerank")
def _() -> None:
    client = cohere.ClientV2(api_key="none", base_url=URL)
    found = client.rerank(model="ranker", query="old road", documents=TEXTS, top_n=1).results
    expect([(each.index, each.relevance_score) for each in found] == [(1, 1.0)], found)


@check("Client.rerank: /v1/rerank")
def _() -> None:
    client = cohere.Client(api_key="none", base_url=URL)
    found = client.rerank(model="ranker", query="old road", documents=TEXTS, return_documents=True).results
    expect(found[0].index == 1 and found[0].document.text == TEXTS[1], found)


@check("errors have Cohere's format")
def _() -> None:
    try:
        cohere.ClientV2(api_key="none", base_url=URL).rerank(model="nope", query="q", documents=TEXTS)
    except cohere.NotFoundError as error:
        expect("ranker" in error.body["message"], error.body)
    else:
        raise AssertionError("it was found")
