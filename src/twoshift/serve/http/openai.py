"""OpenAI's face: models and embeddings; and reranking as Cohere and Jina have it."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import BrokenModel, InvalidInput, TooLarge
from twoshift.serve.faults import Fault
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.json_body import decoded
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openai_types import (
    DerivedReply,
    Document,
    Embedding,
    EmbeddingReply,
    EmbeddingRequest,
    ErrorReply,
    ErrorTold,
    ModelCard,
    ModelList,
    RerankReply,
    RerankRequest,
    RerankResult,
    RerankUsage,
    TokenIds,
    Usage,
)
from twoshift.serve.http.openapi import ASKING, Operation
from twoshift.serve.keys import Access
from twoshift.serve.live_model import LiveModel
from twoshift.serve.model import Answer
from twoshift.serve.service import Service

__all__ = ["add_openai", "told_openai"]

_encoder = msgspec.json.Encoder()
_FIRST = re.compile(rb"\[[ \t\r\n]*(.)", re.DOTALL)  # what a list begins with
_text, _texts = msgspec.json.Decoder(str), msgspec.json.Decoder(list[str])
_ids, _id_lists = msgspec.json.Decoder(TokenIds), msgspec.json.Decoder(list[TokenIds])
_embeddings, _reranks = msgspec.json.Decoder(EmbeddingRequest), msgspec.json.Decoder(RerankRequest)


def told_openai(fault: Fault) -> bytes:
    """An error as OpenAI's clients read it."""
    return _encoder.encode(ErrorReply(ErrorTold(fault.message, fault.kind, fault.param, fault.kind)))


def add_openai(app: App, service: Service) -> None:
    """The paths below /v1."""
    face = _OpenAi(service)
    for path, answer, about in (
        ("/v1/models", face.models, Operation("The models that are served.", ModelList, ErrorReply)),
        ("/v1/models/{model}", face.model, _named("One of them.", ModelCard)),
        ("/v1/derived/{model}", face.derived, _named("What follows from a model's SLO.", DerivedReply)),
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
    return Operation(summary, gives, ErrorReply, takes, statuses=ASKING, timed=True)


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
        return Reply(200, _encoder.encode(DerivedReply(*about, **derived.to_dict())))

    async def _answered(self, exchange: Exchange, model: LiveModel, rows: list[Any]) -> Answer:
        return await self._service.answer(model, rows, exchange.timeout_s, exchange.request.arrived_s, exchange.caller)

    async def embeddings(self, exchange: Exchange) -> Reply:
        asked = decoded(_embeddings, exchange.request.body)
        model = exchange.model = self._service.find(asked.model)
        dimensions = _dimensions(model, asked.dimensions)
        rows = _inputs(asked.input, model.most_rows)
        exchange.answer = answer = await self._answered(exchange, model, rows)
        vectors = [_finite(row["embedding"], "embedding", 1, k) for k, row in enumerate(answer.rows)]
        if dimensions is not None:
            vectors = _shortened(vectors, dimensions)
        encode = _base64 if asked.encoding_format == "base64" else np.ndarray.tolist
        data = [Embedding(index=k, embedding=encode(each)) for k, each in enumerate(vectors)]
        usage = Usage(answer.tokens, answer.tokens)
        return Reply(200, _encoder.encode(EmbeddingReply(data=data, model=model.name, usage=usage)))

    async def rerank(self, exchange: Exchange) -> Reply:
        asked = decoded(_reranks, exchange.request.body)
        model = exchange.model = self._service.find(asked.model)
        _requires(model, "score", "reranking")
        texts = [each if isinstance(each, str) else each.text for each in asked.documents]
        exchange.answer = answer = await self._answered(exchange, model, [(asked.query, text) for text in texts])
        scores = [float(_finite(row["score"], "score", 0, k)) for k, row in enumerate(answer.rows)]
        best = sorted(range(len(scores)), key=lambda k: -scores[k])[: asked.top_n]
        results = [RerankResult(k, scores[k]) for k in best]
        if asked.return_documents:
            results = [RerankResult(k, scores[k], Document(texts[k])) for k in best]
        return Reply(200, _encoder.encode(RerankReply(model.name, results, RerankUsage(answer.tokens))))


def _shown(model: LiveModel) -> ModelCard:
    return ModelCard(id=model.name, created=model.created_unix_s)


def _requires(model: LiveModel, column: str, what: str) -> None:
    outputs = model.info.outputs or [tensor.name for tensor in model.outputs]
    if column not in outputs:
        answers = f"answers with {', '.join(outputs)}" if outputs else "does not say what it answers with"
        raise InvalidInput("model", model.name, f"a model for {what}, whose output is `{column}`; this one {answers}")


def _dimensions(model: LiveModel, asked: int | None) -> int | None:
    """What was asked for, if the model has as many: seen before the device is asked."""
    _requires(model, "embedding", "embeddings")
    most = next((tensor.shape[0] for tensor in model.outputs if tensor.name == "embedding" and tensor.shape), asked)
    if asked is not None and most is not None and asked > most:
        raise InvalidInput("dimensions", asked, f"from 1 to {most}")
    return asked


def _inputs(given: msgspec.Raw, most_rows: int) -> list[Any]:
    """A text, texts, tokens, or lists of tokens: as rows of the model."""
    text = bytes(given)
    if text.startswith(b'"'):
        return [decoded(_text, text, "input")]
    first = _FIRST.match(text)
    match first and first[1]:
        case None:
            return [decoded(_text, text, "input")]
        case b'"' | b"]":
            return decoded(_texts, text, "input")
        case b"[":
            if text.count(b"[") > most_rows + 1:  # before millions of lists are made
                raise TooLarge("input", f"{text.count(b'[') - 1:,} rows", f"at most {most_rows:,} in a request")
            return decoded(_id_lists, text, "input")
        case _:
            return [decoded(_ids, text, "input")]


def _shortened(vectors: list[NDArray[Any]], dimensions: int) -> list[NDArray[Any]]:
    """The first dimensions, of length 1 again: what models trained for it allow."""
    cut = [vector[:dimensions] for vector in vectors]
    return [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in cut]


def _base64(vector: NDArray[Any]) -> str:
    return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode("ascii")


def _finite(values: Any, column: str, axes: int, row: int) -> Any:
    """A row's answer, where JSON can say it; raises BrokenModel for another shape, NaN and infinities."""
    if np.ndim(values) != axes:
        raise BrokenModel(f"the model's {column} of a row has {np.ndim(values)} axes; expected {axes}")
    # The product is the cheap look at all of them.
    if not math.isfinite(np.dot(values, values)) and not np.isfinite(values).all():
        raise BrokenModel(f"the model's {column} of row {row} has numbers that are not finite")
    return values
