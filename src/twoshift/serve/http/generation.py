"""OpenAI's face of language models: chat completions and completions, whole or in events."""

from __future__ import annotations

from typing import Any

from twoshift.endpoints.chat import ChatCall, read_chat
from twoshift.endpoints.chat_types import ChatReply, ChatRequest, CompletionReply, CompletionRequest
from twoshift.endpoints.completions import CompletionCall, read_completion
from twoshift.endpoints.facts import ModelFacts
from twoshift.endpoints.generating import GenerationCall
from twoshift.endpoints.known import told_openai, with_request_field
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


def add_generation(app: App, service: Service) -> None:
    """/v1/chat/completions and /v1/completions."""
    face = _Generation(service)
    chat = _asking("Generate the next message of a conversation.", ChatRequest, ChatReply)
    app.add("POST", "/v1/chat/completions", face.chat, told_openai, chat, needs=Access.SERVE)
    completion = _asking("Generate the continuation of a prompt.", CompletionRequest, CompletionReply)
    app.add("POST", "/v1/completions", face.completion, told_openai, completion, needs=Access.SERVE)


def _asking(summary: str, takes: Any, gives: Any) -> Operation:
    return Operation(
        summary, gives, ErrorReply, takes, gives_also=(_EVENTS,), statuses=ASKING, timed=True, spare_nulls=True
    )


class _Generation:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, exchange: Exchange) -> Reply:
        asked = await exchange.read(read_chat, exchange.request.body)
        model = exchange.model = self._service.language_model(asked.model)
        return await self._answered(exchange, model, await exchange.read(ChatCall, asked, _facts(model)))

    async def completion(self, exchange: Exchange) -> Reply:
        asked = await exchange.read(read_completion, exchange.request.body)
        model = exchange.model = self._service.language_model(asked.model)
        return await self._answered(exchange, model, await exchange.read(CompletionCall, asked, _facts(model)))

    async def _answered(self, exchange: Exchange, model: Deployment, call: GenerationCall) -> Reply:
        try:
            return await self._run(exchange, model, call)
        except InvalidInput as error:
            raise with_request_field(exchange.request.path, error) from error

    async def _run(self, exchange: Exchange, model: Deployment, call: GenerationCall) -> Reply:
        request = exchange.request
        running = await self._service.generate(model, call.rows, exchange.timeout_s, request.arrived_s, exchange.caller)
        exchange.answer = Answer([], running.tokens, 0, running.stages)
        if not call.streams:
            try:
                return Reply(200, call.reply(await running.whole(), running.tokens))
            finally:
                running.close()
        stream = EventStream(call, running, model.version, told_openai)
        await stream.begin()
        exchange.goes_on = stream
        headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]  # a proxy may not hold it back
        return Reply(200, content_type=_EVENTS.encode(), headers=headers, stream=stream, stream_bytes=None)


def _facts(model: Deployment) -> ModelFacts:
    return ModelFacts(model.name, model.info.outputs, {}, model.most_rows)
