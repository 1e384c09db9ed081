"""Reranking in the shapes that clients have: Cohere's, Jina's and vLLM's, and that of text-embeddings-inference."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from twoshift.endpoints.faults import Fault
from twoshift.endpoints.json_body import has_field
from twoshift.endpoints.known import RERANK, told_openai
from twoshift.endpoints.rerank import RerankCall, TextsRerankCall, read_rerank, read_texts_rerank
from twoshift.endpoints.types import RerankReply, RerankRequest
from twoshift.errors import InvalidInput
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.row_calls import answered, asking, facts_of
from twoshift.serve.keys import Access
from twoshift.serve.service import Service

__all__ = ["add_reranking", "told_cohere"]

_encoder = msgspec.json.Encoder()


class CohereError(Struct):
    """Error reply on paths under /v2: `message` is Cohere's format; `error` has the same text."""

    message: str
    error: str


def told_cohere(fault: Fault) -> bytes:
    """An error as Cohere's clients read it."""
    return _encoder.encode(CohereError(fault.message, fault.message))


def add_reranking(app: App, service: Service) -> None:
    """/v1/rerank, /v2/rerank and /rerank."""
    face = _Reranking(service)
    summary = "Rank documents by how well they answer a query."
    v1 = asking(summary, RerankRequest, RerankReply)
    app.add("POST", RERANK, face.rerank, told_openai, v1, needs=Access.SERVE, kind=RouteKind.GATED)
    v2 = asking(summary, RerankRequest, RerankReply, CohereError)
    app.add("POST", "/v2/rerank", face.rerank, told_cohere, v2, needs=Access.SERVE, kind=RouteKind.GATED)
    either = asking(
        f"{summary[:-1]}; a request with `texts` has the format of text-embeddings-inference.",
        RerankRequest,
        RerankReply,
    )
    app.add("POST", "/rerank", face.either, told_openai, either, needs=Access.SERVE, kind=RouteKind.GATED)


class _Reranking:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def rerank(self, exchange: Exchange, shows_documents: bool = False) -> Reply:
        self._check_served(exchange.request.body)
        asked = await exchange.read(read_rerank, exchange.request.body)
        model = exchange.model = exchange.routed(self._service.find(asked.model))
        call = await exchange.read(RerankCall, asked, facts_of(model), shows_documents)
        return await answered(self._service, exchange, model, call, RERANK)

    async def either(self, exchange: Exchange) -> Reply:
        """vLLM and Jina send documents back unless they are told not to; TEI's requests have `texts`."""
        self._check_served(exchange.request.body)
        if not await exchange.read(has_field, exchange.request.body, "texts"):
            return await self.rerank(exchange, shows_documents=True)
        asked = await exchange.read(read_texts_rerank, exchange.request.body)
        model = exchange.model = exchange.routed(self._service.find_or_only(asked.model, "score"))
        call = await exchange.read(TextsRerankCall, asked, facts_of(model))
        return await answered(self._service, exchange, model, call, "/rerank")

    def _check_served(self, body: bytes | bytearray | memoryview) -> None:
        """A request that names no model is not told to name one where none could do it."""
        if not self._service.has_column("score") and not has_field(body, "model"):
            known = ", ".join(sorted(self._service.models))
            accepted = f"a reranking model; the models of this server ({known}) cannot rank documents"
            raise InvalidInput("model", None, accepted)
