"""OpenAI's face: models and embeddings."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from twoshift.endpoints.embeddings import EmbeddingCall, read_embeddings
from twoshift.endpoints.known import EMBEDDINGS, told_openai
from twoshift.endpoints.types import EmbeddingReply, EmbeddingRequest, ErrorReply
from twoshift.serve.deployments import Deployment
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openai_types import DerivedReply, LlmDerivedReply, ModelAlone, ModelCard, ModelList
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.row_calls import answered, asking, facts_of
from twoshift.serve.keys import Access
from twoshift.serve.keys_of import text_keys
from twoshift.serve.llm_derived import LlmDerived
from twoshift.serve.service import Service

__all__ = ["add_openai"]

_encoder = msgspec.json.Encoder()


def add_openai(app: App, service: Service) -> None:
    """The paths below /v1."""
    face = _OpenAi(service)
    for path, answer, about in (
        ("/v1/models", face.models, Operation("List the served models.", ModelList, ErrorReply)),
        ("/v1/models/{model}", face.model, _named("Show a served model.", ModelAlone)),
        (
            "/v1/derived/{model}",
            face.derived,
            _named("Show the values that the server derives from a model's SLO.", DerivedReply | LlmDerivedReply),
        ),
    ):
        app.add("GET", path, answer, told_openai, about, needs=Access.KEY)
    about = asking("Embed texts, or token ids of the model's own tokenizer.", EmbeddingRequest, EmbeddingReply)
    app.add("POST", EMBEDDINGS, face.embeddings, told_openai, about, needs=Access.SERVE, kind=RouteKind.GATED)


def _named(summary: str, gives: Any) -> Operation:
    return Operation(summary, gives, ErrorReply, statuses=(404,))


class _OpenAi:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, _exchange: Exchange) -> Reply:
        models = self._service.models.all.values()
        listed = [_shown(model, name) for model in models for name in (model.name, *model.adapters)]
        return Reply(200, _encoder.encode(ModelList(data=listed)))

    async def model(self, exchange: Exchange) -> Reply:
        name = exchange.matched["model"]
        model = self._service.models.known(name) or self._service.find(name)
        ready = self._service.unready(model.name) is None
        shown = msgspec.structs.asdict(_shown(model, name))
        return Reply(200, _encoder.encode(ModelAlone(**shown, name=name, ready=ready)))

    async def derived(self, exchange: Exchange) -> Reply:
        model = self._service.find(exchange.matched["model"])
        info = model.info
        about = (model.name, info.runtime, info.device, info.precision)
        derived = self._service.derived(model)
        if isinstance(derived, LlmDerived):
            return Reply(200, _encoder.encode(LlmDerivedReply(*about, **derived.to_dict())))
        shown = derived.to_dict()
        shown["curves"] |= {"max_row_tokens": info.max_row_tokens, "host": self._service.host_costs()}
        return Reply(200, _encoder.encode(DerivedReply(*about, **shown)))

    async def embeddings(self, exchange: Exchange) -> Reply:
        asked = await exchange.read(read_embeddings, exchange.request.body)
        model = exchange.model = exchange.routed(self._service.find(asked.model), asked.user)
        call = await exchange.read(EmbeddingCall, asked, facts_of(model))
        keys = text_keys(self._service, model, asked.keys, call.rows)
        return await answered(self._service, exchange, model, call, EMBEDDINGS, keys)


def _shown(model: Deployment, name: str) -> ModelCard:
    """By its own name, or by that of an adapter."""
    parent = UNSET if name == model.name else model.name
    card = ModelCard(id=name, created=model.created_unix_s, parent=parent)
    if model.why_not:
        return msgspec.structs.replace(card, state=str(model.state), reason=model.why_not)
    tokens = model.info.max_row_tokens  # 1 where rows are not texts
    return msgspec.structs.replace(card, max_model_len=tokens if tokens > 1 else UNSET)
