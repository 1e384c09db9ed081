"""Reranking as Cohere and Jina have it: documents by how well they answer a query."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from twoshift.endpoints.facts import ModelFacts, Row, finite, requires
from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.types import Document, RerankReply, RerankRequest, RerankResult, RerankUsage

__all__ = ["RerankCall", "read_rerank"]

_COLUMN = "score"
_requests, _encoder = msgspec.json.Decoder(RerankRequest), msgspec.json.Encoder()


def read_rerank(body: bytes | memoryview) -> RerankRequest:
    """A request's body; raises InvalidInput."""
    return decoded(_requests, body)


class RerankCall:
    """A request to a model that scores pairs; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: RerankRequest, model: ModelFacts) -> None:
        requires(model, _COLUMN, "reranking")
        self._name, self._asked = model.name, asked
        self._texts = [each if isinstance(each, str) else each.text for each in asked.documents]
        self.rows = [(asked.query, text) for text in self._texts]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The best first."""
        scores = [float(finite(row, _COLUMN, 0, place)) for place, row in enumerate(rows)]
        best = sorted(range(len(scores)), key=lambda k: -scores[k])[: self._asked.top_n]
        results = [RerankResult(k, scores[k]) for k in best]
        if self._asked.return_documents:
            results = [RerankResult(k, scores[k], Document(self._texts[k])) for k in best]
        return _encoder.encode(RerankReply(self._name, results, RerankUsage(tokens)))
