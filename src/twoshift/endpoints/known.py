"""Every endpoint that a batch can be made of; one that is added here is one of both shifts."""

from __future__ import annotations

import re
from collections.abc import Callable

from twoshift.endpoints.chat import ChatCall, read_chat
from twoshift.endpoints.completions import CompletionCall, read_completion
from twoshift.endpoints.embeddings import EmbeddingCall, read_embeddings
from twoshift.endpoints.facts import EndpointCall, ModelFacts
from twoshift.endpoints.generating import GenerationCall
from twoshift.endpoints.messages import MESSAGES, MessageCall, read_message
from twoshift.endpoints.openai_errors import told_openai
from twoshift.endpoints.rerank import RerankCall, read_rerank
from twoshift.endpoints.responses import RESPONSES, ResponseCall, read_response
from twoshift.endpoints.score import SCORE, ScoreCall, read_score
from twoshift.errors import InvalidInput, Shown

__all__ = ["EMBEDDINGS", "ENDPOINTS", "RERANK", "SCORE", "ReadCall", "told_openai", "with_request_field"]

EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"


ReadCall = Callable[[bytes, ModelFacts], EndpointCall]  # a body to a call; raises InvalidInput


def _embeddings(body: bytes, model: ModelFacts) -> EndpointCall:
    return EmbeddingCall(asked := read_embeddings(body), model.asked_by(asked.model))


def _rerank(body: bytes, model: ModelFacts) -> EndpointCall:
    return RerankCall(asked := read_rerank(body), model.asked_by(asked.model))


def _score(body: bytes, model: ModelFacts) -> EndpointCall:
    return ScoreCall(asked := read_score(body), model.asked_by(asked.model))


def _chat(body: bytes, model: ModelFacts) -> EndpointCall:
    return _whole(ChatCall(asked := read_chat(body), model.asked_by(asked.model)))


def _completion(body: bytes, model: ModelFacts) -> EndpointCall:
    return _whole(CompletionCall(asked := read_completion(body), model.asked_by(asked.model)))


def _message(body: bytes, model: ModelFacts) -> EndpointCall:
    return _whole(MessageCall(asked := read_message(body), model.asked_by(asked.model)))


def _response(body: bytes, model: ModelFacts) -> EndpointCall:
    return _whole(ResponseCall(asked := read_response(body), model.asked_by(asked.model)))


def _whole(call: GenerationCall) -> EndpointCall:
    if call.streams:
        raise InvalidInput("stream", Shown("true"), "false: a batch does not stream its answers")
    return call


ENDPOINTS: dict[str, ReadCall] = {
    EMBEDDINGS: _embeddings,
    RERANK: _rerank,
    SCORE: _score,
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    MESSAGES: _message,
    RESPONSES: _response,
}


_FIELDS = {  # what an endpoint calls a field of the model's own
    "/v1/chat/completions": {"prompt": "messages", "json_schema": "response_format"},
    "/v1/completions": {"json_schema": "response_format"},
    MESSAGES: {"prompt": "messages", "json_schema": "output_config", "stop": "stop_sequences"},
    RESPONSES: {"prompt": "input", "messages": "input", "json_schema": "text", "max_tokens": "max_output_tokens"},
}
_ROWS = {EMBEDDINGS: "input", RERANK: "documents", "/rerank": "texts", SCORE: "rows"}  # and a list of rows
_ROW = re.compile(r"(?:row (\d+)(?:, field '(.*)')?|input(?:\[(\d+)\])?)")


def with_request_field(endpoint: str, error: Exception) -> Exception:
    """The error with the field as a request to that endpoint has it."""
    if not isinstance(error, InvalidInput):
        return error
    field = _FIELDS.get(endpoint, {}).get(error.field, error.field)
    if endpoint in _ROWS and (row := _ROW.fullmatch(field)):
        place = row[1] or row[3]
        within = f".{row[2]}" if row[2] and endpoint == SCORE else ""
        field = _ROWS[endpoint] if place is None else f"{_ROWS[endpoint]}[{place}]{within}"
    return error if field == error.field else error.renamed(field)
