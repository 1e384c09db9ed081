"""OpenAI's embeddings: texts, or the model's own token ids, to vectors."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.endpoints.facts import ModelFacts, Row, check_cut, finite_rows, requires
from twoshift.endpoints.inputs import texts_or_ids
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.prompts import chosen_prompt
from twoshift.endpoints.types import Embedding, EmbeddingReply, EmbeddingRequest, Usage
from twoshift.errors import Inapplicable, InvalidInput, Shown

__all__ = ["EmbeddingCall", "read_embeddings"]

_COLUMN = "embedding"
_OWN_IDS = (
    'texts; to send ids of this model\'s own tokenizer, add "allow_token_ids": true. LangChain sends token ids of '
    "OpenAI's tokenizer: to send texts, set check_embedding_ctx_length=False in LangChain"
)
_requests, _encoder = msgspec.json.Decoder(EmbeddingRequest), msgspec.json.Encoder()


def read_embeddings(body: bytes | memoryview) -> EmbeddingRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


class EmbeddingCall:
    """A request for embeddings of a model; raises InvalidInput where it cannot be asked that."""

    def __init__(self, asked: EmbeddingRequest, model: ModelFacts) -> None:
        requires(model, _COLUMN, "embeddings")
        self._name, self._asked = model.name, asked
        self._check_dimensions(model.sizes.get(_COLUMN))
        check_cut(model, "truncate_prompt_tokens", asked.truncate_prompt_tokens)
        self.rows = texts_or_ids(asked.input, model.most_rows, "input")
        if self.rows and not isinstance(self.rows[0], str):
            _check_ids(asked)
        elif asked.prompt_name is not None or asked.input_type is not None:
            chosen = chosen_prompt(asked.prompt_name, asked.input_type, model.prompts)
            self.rows = [{"text": text, **chosen} for text in self.rows]

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The vectors, in the order of the input."""
        vectors = finite_rows(rows, _COLUMN)
        if self._asked.dimensions is not None:
            self._check_dimensions(min(map(len, vectors)))
            vectors = _shortened(vectors, self._asked.dimensions)
        encode = _base64 if self._asked.encoding_format == "base64" else np.ndarray.tolist
        data = [Embedding(index=k, embedding=encode(each)) for k, each in enumerate(vectors)]
        return _encoder.encode(EmbeddingReply(data=data, model=self._name, usage=Usage(tokens, tokens)))

    def _check_dimensions(self, most: int | None) -> None:
        asked = self._asked.dimensions
        if asked is not None and most is not None and asked > most:
            raise InvalidInput("dimensions", asked, f"a whole number from 1 to {most}")


def _check_ids(asked: EmbeddingRequest) -> None:
    if not asked.allow_token_ids:  # another tokenizer's have vectors, too: wrong ones
        raise InvalidInput("input", Shown("a list of token ids"), _OWN_IDS)
    for name in ("prompt_name", "input_type"):
        if (value := getattr(asked, name)) is not None:
            raise Inapplicable(name, value, "because the input is token ids: a prompt can be added only to texts")


def _shortened(vectors: list[NDArray[Any]], dimensions: int) -> list[NDArray[Any]]:
    """The first dimensions, of length 1 again: what models trained for it allow."""
    cut = [vector[:dimensions] for vector in vectors]
    return [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in cut]


def _base64(vector: NDArray[Any]) -> str:
    return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode("ascii")
