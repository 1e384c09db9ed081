"""Reranking as Cohere, Jina and vLLM have it, and as text-embeddings-inference does."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from twoshift.endpoints.facts import ModelFacts, Row, check_cut, finite, requires
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.types import (
    Document,
    RerankReply,
    RerankRequest,
    RerankResult,
    RerankUsage,
    TextScore,
    TextsRerankRequest,
)
from twoshift.errors import InvalidInput, Shown

__all__ = ["RerankCall", "TextsRerankCall", "read_rerank", "read_texts_rerank"]

_COLUMN = "score"
_requests, _encoder = msgspec.json.Decoder(RerankRequest), msgspec.json.Encoder()
_texts_requests = msgspec.json.Decoder(TextsRerankRequest)


def read_rerank(body: bytes | memoryview) -> RerankRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


def read_texts_rerank(body: bytes | memoryview) -> TextsRerankRequest:
    """A body in the shape of text-embeddings-inference; raises InvalidInput."""
    return asked_of(_texts_requests, body)


class RerankCall:
    """A request to a model that scores pairs; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: RerankRequest, model: ModelFacts, shows_documents: bool = False) -> None:
        """`shows_documents` is for requests that do not say."""
        requires(model, _COLUMN, "reranking")
        self._name, self._most = model.name, asked.top_n
        self._shows = shows_documents if asked.return_documents is None else asked.return_documents
        check_cut(model, "max_tokens_per_doc", asked.max_tokens_per_doc)
        check_cut(model, "truncate_prompt_tokens", asked.truncate_prompt_tokens)
        self._texts = [each if isinstance(each, str) else each.text for each in asked.documents]
        self.rows = [(asked.query, text) for text in self._texts]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The best first."""
        results = [
            RerankResult(k, score, Document(self._texts[k]) if self._shows else msgspec.UNSET)
            for k, score in _ranked(rows)[: self._most]
        ]
        return _encoder.encode(RerankReply(self._name, results, RerankUsage(tokens)))


class TextsRerankCall:
    """The same in the shape of text-embeddings-inference."""

    def __init__(self, asked: TextsRerankRequest, model: ModelFacts) -> None:
        requires(model, _COLUMN, "reranking")
        if asked.raw_scores:
            raise InvalidInput(
                "raw_scores", Shown("true"), "false: the model's own activation function is always applied"
            )
        self._asked = asked
        self.rows = [(asked.query, text) for text in asked.texts]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The best first."""
        texts = self._asked.texts if self._asked.return_text else None
        ranked = _ranked(rows)
        return _encoder.encode(
            [TextScore(k, score, msgspec.UNSET if texts is None else texts[k]) for k, score in ranked]
        )


def _ranked(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Places and scores, the best first."""
    scores = [float(finite(row, _COLUMN, 0, place)) for place, row in enumerate(rows)]
    return sorted(enumerate(scores), key=lambda each: -each[1])
