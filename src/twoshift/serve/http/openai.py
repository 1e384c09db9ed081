"""OpenAI's face: models and embeddings; and reranking as Cohere and Jina have it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from twoshift.endpoints.embeddings import EmbeddingCall, read_embeddings
from twoshift.endpoints.facts import Call, ModelFacts
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.rerank import RerankCall, read_rerank
from twoshift.endpoints.types import EmbeddingReply, EmbeddingRequest, ErrorReply, RerankReply, RerankRequest
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openai_types import DerivedReply, LlmDerivedReply, ModelCard, ModelList
from twoshift.serve.http.openapi import ASKING, Operation
from twoshift.serve.keys import Access
from twoshift.serve.live_model import LiveModel
from twoshift.serve.llm.derived import LlmDerived
from twoshift.serve.service import Service

__all__ = ["add_openai"]

_encoder = msgspec.json.Encoder()


def add_openai(app: App, service: Service) -> None:
    """The paths below /v1."""
    face = _OpenAi(service)
    for path, answer, about in (
        ("/v1/models", face.models, Operation("The models that are served.", ModelList, ErrorReply)),
        ("/v1/models/{model}", face.model, _named("One of them.", ModelCard)),
        (
            "/v1/derived/{model}",
            face.derived,
            _named("What follows from a model's SLO.", DerivedReply | LlmDerivedReply),
        ),
    ):
        app.add("GET", path, answer, told_openai, about, needs=Access.KEY)
    for path, answer, about in (
        ("/v1/embeddings", face.embeddings,
         _asking("Texts, or the model's own token ids, to vectors.", EmbeddingRequest, EmbeddingReply)),
        ("/v1/rerank", face.rerank,
         _asking("Documents by how well they answer a query.", RerankRequest, RerankReply)),
    ):  # fmt: skip
        app.add("POST", path, answer, told_openai, about, needs=Access.SERVE)


def _named(summary: str, gives: Any) -> Operation:
    return Operation(summary, gives, ErrorReply, statuses=(404,))


def _asking(summary: str, takes: Any, gives: Any) -> Operation:
    return Operation(summary, gives, ErrorReply, takes, statuses=ASKING, timed=True, spare_nulls=True)


class _OpenAi:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, _exchange: Exchange) -> Reply:
        listed = [_shown(model) for model in self._service.models.values()]
        return Reply(200, _encoder.encode(ModelList(data=listed)))

    async def model(self, exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(_shown(self._service.find(exchange.matched["model"]))))

    async def derived(self, exchange: Exchange) -> Reply:
        model = self._service.find(exchange.matched["model"])
        info = model.info
        about = (model.name, info.runtime, info.device, info.precision)
        derived = model.derived_now()
        made = LlmDerivedReply if isinstance(derived, LlmDerived) else DerivedReply
        return Reply(200, _encoder.encode(made(*about, **derived.to_dict())))

    async def embeddings(self, exchange: Exchange) -> Reply:
        asked = read_embeddings(exchange.request.body)
        model = exchange.model = self._service.find(asked.model)
        return await self._answered(exchange, model, EmbeddingCall(asked, _facts(model)))

    async def rerank(self, exchange: Exchange) -> Reply:
        asked = read_rerank(exchange.request.body)
        model = exchange.model = self._service.find(asked.model)
        return await self._answered(exchange, model, RerankCall(asked, _facts(model)))

    async def _answered(self, exchange: Exchange, model: LiveModel, call: Call) -> Reply:
        request, caller = exchange.request, exchange.caller
        answer = await self._service.answer(model, call.rows, exchange.timeout_s, request.arrived_s, caller)
        exchange.answer = answer
        return Reply(200, call.reply(answer.rows, answer.tokens))


def _facts(model: LiveModel) -> ModelFacts:
    outputs = model.info.outputs or tuple(tensor.name for tensor in model.outputs)
    sizes = {tensor.name: tensor.shape[0] for tensor in model.outputs if tensor.shape}
    return ModelFacts(model.name, outputs, sizes, model.most_rows)


def _shown(model: LiveModel) -> ModelCard:
    tokens = model.info.max_row_tokens  # 1 where rows are not texts
    return ModelCard(id=model.name, created=model.created_unix_s, max_model_len=tokens if tokens > 1 else UNSET)
