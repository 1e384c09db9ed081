"""/tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from twoshift.endpoints.chat import message_of
from twoshift.endpoints.chat_types import ChatMessage
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import InvalidInput
from twoshift.generation import Message
from twoshift.runtime.tokenization import TextTokens, encoder_tokens
from twoshift.serve.deployments import Deployment
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.keys import Access
from twoshift.serve.llm.language_model import is_language_model
from twoshift.serve.service import Service

__all__ = ["add_tokenization"]


class TokenizeRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /tokenize: a text or a conversation."""

    model: str | None = None  # may be left out where one is served
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=2048)] | None = None
    add_special_tokens: bool | None = None  # without it: of a text, and not of a conversation, which has its own
    return_token_strs: bool | None = None


class TokenizeReply(Struct):
    """Token ids, in order."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /detokenize."""

    model: str | None = None
    tokens: list[Annotated[int, Meta(ge=0, le=2**32 - 1)]]


class DetokenizeReply(Struct):
    """The text of the token ids."""

    prompt: str


_encoder = msgspec.json.Encoder()
_tokenize, _detokenize = msgspec.json.Decoder(TokenizeRequest), msgspec.json.Decoder(DetokenizeRequest)
_STATUSES = (400, 403, 404, 413, 429, 500)


def add_tokenization(app: App, service: Service) -> None:
    """/tokenize and /detokenize."""
    face = _Tokenization(service)
    for path, answer, summary, takes, gives in (
        ("/tokenize", face.tokenize, "Tokenize a text or a conversation.", TokenizeRequest, TokenizeReply),
        ("/detokenize", face.detokenize, "Convert token ids to a text.", DetokenizeRequest, DetokenizeReply),
    ):
        about = Operation(summary, gives, ErrorReply, takes, statuses=_STATUSES, spare_nulls=True)
        app.add("POST", path, answer, told_openai, about, needs=Access.SERVE)


class _Tokenization:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, TextTokens] = {}  # by folder; read when they are first wanted

    async def tokenize(self, exchange: Exchange) -> Reply:
        asked: TokenizeRequest = await exchange.read(asked_of, _tokenize, exchange.request.body)
        model = self._service.find_or_only(asked.model)
        given = _given(asked)
        special = isinstance(given, str) if asked.add_special_tokens is None else asked.add_special_tokens

        def made() -> TokenizeReply:
            tokens = self._tokens(model)
            ids = tokens.ids(given, special)
            names = tokens.names(ids) if asked.return_token_strs else None
            return TokenizeReply(len(ids), model.info.max_row_tokens, ids, names)

        return await _in_thread(exchange, model, made)

    async def detokenize(self, exchange: Exchange) -> Reply:
        asked: DetokenizeRequest = await exchange.read(asked_of, _detokenize, exchange.request.body)
        model = self._service.find_or_only(asked.model)
        return await _in_thread(exchange, model, lambda: DetokenizeReply(self._tokens(model).text(asked.tokens)))

    def _tokens(self, model: Deployment) -> TextTokens:
        """An encoder's is read from its folder: replicas in other processes have theirs for themselves."""
        if is_language_model(backend := model.backend):
            return backend.text_tokens()
        info = model.info
        if info.model not in self._known:
            if info.max_row_tokens <= 1:
                raise InvalidInput("model", model.name, "a model with a tokenizer; this model has no tokenizer")
            self._known[info.model] = encoder_tokens(info.model)
        return self._known[info.model]


def _given(asked: TokenizeRequest) -> str | tuple[Message, ...]:
    if (asked.prompt is None) == (asked.messages is None):
        raise InvalidInput("prompt", asked.prompt, "either `prompt` (a text) or `messages`, not both")
    if asked.messages is not None:
        return tuple(message_of(each, place) for place, each in enumerate(asked.messages))
    return asked.prompt or ""


async def _in_thread(exchange: Exchange, model: Deployment, made: Callable[[], Any]) -> Reply:
    """A long text takes its time."""
    exchange.caller.enter(model.name)
    try:
        return Reply(200, _encoder.encode(await asyncio.to_thread(made)))
    finally:
        exchange.caller.leave()
