"""The faces of language models: OpenAI's chat, completions and responses, Anthropic's messages; whole or in events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twoshift.endpoints.chat import ChatCall, read_chat
from twoshift.endpoints.chat_types import ChatReply, ChatRequest, CompletionReply, CompletionRequest
from twoshift.endpoints.completions import CompletionCall, read_completion
from twoshift.endpoints.facts import ModelFacts
from twoshift.endpoints.generating import GenerationCall
from twoshift.endpoints.known import told_openai, with_request_field
from twoshift.endpoints.message_types import AnthropicErrorReply, MessageReply, MessageRequest
from twoshift.endpoints.messages import MESSAGES, MessageCall, read_message, told_anthropic
from twoshift.endpoints.response_types import ResponseReply, ResponseRequest
from twoshift.endpoints.responses import RESPONSES, ResponseCall, read_response
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import InvalidInput
from twoshift.serve.deployments import Deployment
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.event_stream import EventStream
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import ASKING, Operation
from twoshift.serve.keys import Access
from twoshift.serve.model import Answer
from twoshift.serve.service import Service

__all__ = ["add_generation"]

_EVENTS = "text/event-stream"
_Read = Callable[[bytes], Any]  # a body to a request, which names its model
_Made = Callable[[Any, ModelFacts], GenerationCall]


def add_generation(app: App, service: Service) -> None:
    """The paths that generate text."""
    face = _Generation(service)
    for path, read, made, about in (
        (
            "/v1/chat/completions",
            read_chat,
            ChatCall,
            _asking("Generate the next message of a conversation.", ChatRequest, ChatReply),
        ),
        (
            "/v1/completions",
            read_completion,
            CompletionCall,
            _asking("Generate the continuation of a prompt.", CompletionRequest, CompletionReply),
        ),
        (
            RESPONSES,
            read_response,
            ResponseCall,
            _asking(
                "Generate a response, in OpenAI's Responses API; the server stores no responses.",
                ResponseRequest,
                ResponseReply,
            ),
        ),
    ):
        app.add("POST", path, partial(face.answer, read, made), told_openai, about, needs=Access.SERVE)
    about = _asking(
        "Generate the next message of a conversation, in Anthropic's Messages API.",
        MessageRequest,
        MessageReply,
        AnthropicErrorReply,
    )
    messages = partial(face.answer, read_message, MessageCall)
    app.add("POST", MESSAGES, messages, told_anthropic, about, needs=Access.SERVE)
    app.tell_below(MESSAGES, told_anthropic)


def _asking(summary: str, takes: Any, gives: Any, fails: Any = ErrorReply) -> Operation:
    return Operation(summary, gives, fails, takes, gives_also=(_EVENTS,), statuses=ASKING, timed=True, spare_nulls=True)


class _Generation:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, read: _Read, made: _Made, exchange: Exchange) -> Reply:
        asked = await exchange.read(read, exchange.request.body)
        model = exchange.model = exchange.routed(self._service.language_model(asked.model), _user_of(asked))
        call = await exchange.read(made, asked, _facts(model).asked_by(asked.model))
        try:
            return await self._run(exchange, model, call)
        except InvalidInput as error:
            raise with_request_field(exchange.request.path, error) from error

    async def _run(self, exchange: Exchange, model: Deployment, call: GenerationCall) -> Reply:
        request = exchange.request
        running = await self._service.generate(model, call.rows, exchange.timeout_s, request.arrived_s, exchange.caller)
        exchange.answer = Answer([], running.tokens, 0, running.stages, running.version)
        if not call.streams:
            try:
                return Reply(200, call.reply(await running.whole(), running.tokens))
            finally:
                running.close()
        stream = EventStream(call, running, running.version)
        await stream.begin()
        exchange.goes_on = stream
        headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]  # a proxy may not hold it back
        return Reply(200, content_type=_EVENTS.encode(), headers=headers, stream=stream, stream_bytes=None)


def _user_of(asked: Any) -> str | None:
    """The caller's own user, as OpenAI's requests name it, or as Anthropic's do."""
    metadata = getattr(asked, "metadata", None)
    return getattr(asked, "user", None) or getattr(metadata, "user_id", None)


def _facts(model: Deployment) -> ModelFacts:
    return ModelFacts(model.name, model.info.outputs, {}, model.most_rows, adapters=model.adapters)
