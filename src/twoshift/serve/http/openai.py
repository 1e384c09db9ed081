"""OpenAI's face: models and embeddings; and reranking as Cohere and Jina have it."""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.serve.faults import Fault
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply
from twoshift.serve.model import Answer, ServedModel
from twoshift.serve.service import Service

__all__ = ["add_openai", "told_openai"]

_encoder = msgspec.json.Encoder()


class EmbeddingRequest(msgspec.Struct):
    """POST /v1/embeddings."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class RerankRequest(msgspec.Struct):
    """POST /v1/rerank."""

    model: str
    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None = None
    return_documents: bool = False


_embeddings, _reranks = msgspec.json.Decoder(EmbeddingRequest), msgspec.json.Decoder(RerankRequest)


def told_openai(fault: Fault) -> bytes:
    """An error as OpenAI's clients read it."""
    error = {"message": fault.message, "type": fault.kind, "param": fault.param, "code": fault.kind}
    return _encoder.encode({"error": error})


def add_openai(app: App, service: Service) -> None:
    """The paths below /v1."""
    face = _OpenAi(service)
    app.add("GET", "/v1/models", face.models, told_openai)
    app.add("GET", "/v1/models/{model}", face.model, told_openai)
    app.add("POST", "/v1/embeddings", face.embeddings, told_openai)
    app.add("POST", "/v1/rerank", face.rerank, told_openai)
    app.add("GET", "/v1/derived/{model}", face.derived, told_openai)


class _OpenAi:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, _exchange: Exchange) -> Reply:
        listed = [_shown(model) for model in self._service.models.values()]
        return Reply(200, _encoder.encode({"object": "list", "data": listed}))

    async def model(self, exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(_shown(self._service.find(exchange.matched["model"]))))

    async def derived(self, exchange: Exchange) -> Reply:
        model = self._service.find(exchange.matched["model"])
        info = model.engine.runtime.info
        about = {"model": model.name, "runtime": info.runtime, "device": info.device, "precision": info.precision}
        return Reply(200, _encoder.encode(about | model.derived.to_dict()))

    async def _answered(self, exchange: Exchange, model: ServedModel, rows: list[Any]) -> Answer:
        return await self._service.answer(model, rows, exchange.timeout_s, exchange.request.arrived_s, exchange.caller)

    async def embeddings(self, exchange: Exchange) -> Reply:
        asked = _decoded(_embeddings, exchange.request.body)
        model = exchange.model = self._service.find(asked.model)
        _requires(model, "embedding", "embeddings")
        rows = _inputs(asked.input)
        exchange.answer = answer = await self._answered(exchange, model, rows)
        vectors = [row["embedding"] for row in answer.rows]
        if asked.dimensions is not None:
            vectors = _shortened(vectors, asked.dimensions)
        encode = _base64 if asked.encoding_format == "base64" else np.ndarray.tolist
        data = [{"object": "embedding", "index": k, "embedding": encode(each)} for k, each in enumerate(vectors)]
        usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens}
        reply = {"object": "list", "data": data, "model": model.name, "usage": usage}
        return Reply(200, _encoder.encode(reply))

    async def rerank(self, exchange: Exchange) -> Reply:
        asked = _decoded(_reranks, exchange.request.body)
        model = exchange.model = self._service.find(asked.model)
        _requires(model, "score", "reranking")
        if asked.top_n is not None and asked.top_n < 1:
            raise InvalidInput("top_n", asked.top_n, "at least 1")
        rows = [(asked.query, _document(document, k)) for k, document in enumerate(asked.documents)]
        exchange.answer = answer = await self._answered(exchange, model, rows)
        scores = np.array([row["score"] for row in answer.rows])
        best = np.argsort(-scores, kind="stable")[: asked.top_n]
        results = [{"index": int(k), "relevance_score": float(scores[k])} for k in best]
        if asked.return_documents:
            results = [each | {"document": {"text": rows[each["index"]][1]}} for each in results]
        usage = {"total_tokens": answer.tokens}
        return Reply(200, _encoder.encode({"model": model.name, "results": results, "usage": usage}))


def _shown(model: ServedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created_unix_s, "owned_by": "twoshift"}


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput("body", "it", f"a request as the API describes it: {error}") from None


def _requires(model: ServedModel, column: str, what: str) -> None:
    if column not in model.engine.runtime.info.outputs:
        raise InvalidInput("model", model.name, f"a model for {what}; this one answers with something else")


def _inputs(given: str | list[Any]) -> list[Any]:
    """A text, texts, tokens, or lists of tokens: as rows of the model."""
    if isinstance(given, str):
        return [given]
    kinds = {type(each) for each in given}
    if len(kinds) > 1:
        raise InvalidInput("input", "a mixed list", "texts, or token ids, or lists of token ids")
    return [given] if kinds == {int} else given


def _shortened(vectors: list[NDArray[Any]], dimensions: int) -> list[NDArray[Any]]:
    """The first dimensions, of length 1 again: what models trained for it allow."""
    if not 1 <= dimensions <= len(vectors[0]):
        raise InvalidInput("dimensions", dimensions, f"from 1 to {len(vectors[0])}")
    cut = [vector[:dimensions] for vector in vectors]
    return [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in cut]


def _base64(vector: NDArray[Any]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _document(document: str | dict[str, Any], place: int) -> str:
    text = document if isinstance(document, str) else document.get("text")
    if not isinstance(text, str):
        raise InvalidInput(f"documents[{place}]", document, "a text, or an object with the key text")
    return text
