"""Search: texts to the nearest rows of an index of the same model's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.endpoints.facts import ModelFacts, Row, finite, requires
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.prompts import chosen_prompt
from twoshift.endpoints.types import SearchHit, SearchReply, SearchRequest, SearchResult, Usage
from twoshift.errors import InvalidInput, TooLarge

__all__ = ["SEARCH", "SearchCall", "query_rows", "read_search"]

SEARCH = "/v1/search"
_COLUMN, _QUERY = "embedding", "query"
_requests, _encoder = msgspec.json.Decoder(SearchRequest), msgspec.json.Encoder()


class _Found(Protocol):
    @property
    def key(self) -> Any: ...

    @property
    def score(self) -> float: ...


def read_search(body: bytes | memoryview) -> SearchRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


class SearchCall:
    """A request to a model whose vectors are indexed; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: SearchRequest, model: ModelFacts) -> None:
        requires(model, _COLUMN, "embeddings")
        self._name = model.name
        texts = [asked.query] if isinstance(asked.query, str) else asked.query
        if not texts:
            raise InvalidInput("query", texts, "a text, or a list of at least one text")
        if len(texts) > model.most_rows:
            raise TooLarge("query", f"{len(texts):,} texts", f"at most {model.most_rows:,} texts in a request")
        self.rows = query_rows(texts, asked.prompt_name, model.prompts)

    def vectors(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        """Of the texts, as the model has answered."""
        return np.stack([finite(row, _COLUMN, 1, place) for place, row in enumerate(rows)]).astype(np.float32)

    def reply(self, found: Sequence[Sequence[_Found]], generation: str, tokens: int) -> bytes:
        """The nearest rows of each text, the best first."""
        data = [
            SearchResult(index=k, hits=[SearchHit(hit.key, hit.score) for hit in hits]) for k, hits in enumerate(found)
        ]
        usage = Usage(tokens, tokens)
        return _encoder.encode(SearchReply(data=data, model=self._name, generation=generation, usage=usage))


def query_rows(texts: Sequence[str], prompt_name: str | None, prompts: Any) -> list[Any]:
    """Texts as rows of the model: with the prompt that is named, or with that for queries where it has one."""
    name = prompt_name or (_QUERY if _QUERY in prompts else None)
    return list(texts) if name is None else [{"text": text, **chosen_prompt(name, None, prompts)} for text in texts]
