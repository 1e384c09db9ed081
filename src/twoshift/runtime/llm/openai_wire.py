"""OpenAI's protocol as a client: which models there are, and answers as server-sent events."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from twoshift.errors import Broken, InvalidInput, Malformed, TooLarge, TryLater, TwoshiftError
from twoshift.generation import (
    FinishReason,
    GenerationParams,
    GenerationRequest,
    Message,
    TokenUsage,
    ToolCallDelta,
    ToolChoice,
    ToolUse,
    is_conversation,
)
from twoshift.llm_ports import Emitted

__all__ = ["Endpoint", "StreamedAnswer"]

_TIMEOUT_S = 300.0
_KV_USE = re.compile(r"^vllm:(?:gpu|kv)_cache_usage_perc(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


class Endpoint:
    """A server, and a model on it."""

    def __init__(self, address: str, name: str, key: str | None) -> None:
        self.address, self.name = address, name
        self.httpx = importlib.import_module("httpx")
        self._root = address[: len(address) - len(urlsplit(address).path)]
        self._arguments: dict[str, Any] = {
            "headers": {"authorization": f"Bearer {key}"} if key else {},
            "timeout": _TIMEOUT_S,
            "verify": ssl.create_default_context(),
            "trust_env": False,
        }

    def check(self) -> int | None:
        """The model's context, where the server says it; raises InvalidInput where it is not there, TryLater."""
        listed = json.loads(self._get(f"{self.address}/models"))["data"]
        names = [each["id"] for each in listed]
        if not self.name and len(names) == 1:
            self.name = names[0]
        if self.name not in names:
            raise InvalidInput("model", f"{self.address}#{self.name}", f"one of {', '.join(names)} after the #")
        context = next(each for each in listed if each["id"] == self.name).get("max_model_len")
        return int(context) if context else None

    def kv_use(self) -> float:
        """As vLLM's own metrics say it; 0 where there are none."""
        with contextlib.suppress(TryLater, ValueError):
            if found := _KV_USE.search(self._get(f"{self._root}/metrics")):
                return float(found[1])
        return 0.0

    def connect(self) -> Any:
        """A client with connections of its own."""
        return self.httpx.Client(**self._arguments)

    def _get(self, url: str) -> str:
        try:
            with self.connect() as client:
                reply = client.get(url)
        except self.httpx.TransportError as error:
            raise TryLater(f"{self.address} does not answer ({error})", 5.0) from error
        if reply.status_code != 200:
            raise TryLater(f"{self.address} answered {reply.status_code} for {url}", 5.0)
        return reply.text


class StreamedAnswer:
    """One answer as it comes; in a thread of its own."""

    def __init__(
        self, endpoint: Endpoint, key: int, request: GenerationRequest, max_tokens: int, put: Callable[[Emitted], None]
    ) -> None:
        self._endpoint, self._key, self._request, self._max_tokens, self._put = endpoint, key, request, max_tokens, put
        self._client = endpoint.connect()
        self._socket: socket.socket | None = None
        self._cancelled = False

    def run(self) -> None:
        """Until it is over; whatever goes wrong is the answer."""
        try:
            if not self._cancelled:
                self._stream()
        except TwoshiftError as error:
            self._put(Emitted(self._key, "", (), error=error))
        except Exception as error:  # the connection's, or of what came over it
            lost = TryLater(f"the stream of {self._endpoint.address} ended too early ({error!r})", 1.0)
            self._put(Emitted(self._key, "", (), error=lost))
        finally:
            self._client.close()

    def cancel(self) -> None:
        """Nobody wants it any more; from another thread."""
        self._cancelled = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _stream(self) -> None:
        is_chat = is_conversation(self._request.prompt)
        url = f"{self._endpoint.address}/{'chat/completions' if is_chat else 'completions'}"
        with self._client.stream("POST", url, json=self._body(), extensions={"trace": self._seen}) as reply:
            if reply.status_code != 200:
                reply.read()
                raise _refusal(reply.status_code, reply.text, self._endpoint.address)
            self._pass_on(_events(reply), is_chat)

    def _seen(self, event: str, info: dict[str, Any]) -> None:
        """The socket, so that it can be hung up while the server still reads the prompt."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._cancelled:
                self.cancel()

    def _pass_on(self, events: Iterator[dict[str, Any]], is_chat: bool) -> None:
        finish, stopped_by, usage, pieces = None, None, None, 0
        for event in events:
            if "error" in event:
                raise Broken(f"{self._endpoint.address}: {event['error']}")
            if event.get("usage"):
                usage = _usage(event["usage"])
            for choice in event.get("choices", ()):
                text = (choice["delta"].get("content") if is_chat else choice.get("text")) or ""
                finish = choice.get("finish_reason") or finish
                stopped_by = choice.get("stop_reason") or stopped_by  # as vLLM tells it: a text, or a token
                calls = _calls(choice["delta"]) if is_chat else ()
                if text or calls:
                    pieces += 1
                    self._put(Emitted(self._key, text, (0,), tool_calls=calls))
        if finish is None:
            raise EOFError("the stream ended without a finish_reason")
        reason = FinishReason.LENGTH if finish == "length" else FinishReason.STOP
        stop = stopped_by if isinstance(stopped_by, str) else None
        self._put(Emitted(self._key, "", (), reason, usage=usage or TokenUsage(0, pieces), stopped_by=stop))

    def _body(self) -> dict[str, Any]:
        prompt, params = self._request.prompt, self._request.params
        body: dict[str, Any] = {"model": self._endpoint.name, "stream": True, "stream_options": {"include_usage": True}}
        if is_conversation(prompt):
            body["messages"] = [_turn(each) for each in prompt]
            body |= {} if self._request.tools is None else _tools(self._request.tools)
        else:
            body["prompt"] = prompt if isinstance(prompt, str) else list(prompt)
        body |= {"max_tokens": self._max_tokens, "temperature": params.temperature, "top_p": params.top_p}
        body |= {"presence_penalty": params.presence_penalty, "frequency_penalty": params.frequency_penalty}
        return body | _wanted(params)


def _wanted(params: GenerationParams) -> dict[str, Any]:
    """What is not as it is anyway; a server that does not know one of them says so."""
    found: dict[str, Any] = {
        "top_k": params.top_k,
        "min_p": params.min_p or None,
        "logit_bias": {str(token): bias for token, bias in params.logit_bias} or None,
        "repetition_penalty": params.repetition_penalty if params.repetition_penalty != 1 else None,
        "ignore_eos": params.ignore_eos or None,
        "seed": params.seed,
        "stop": list(params.stop) or None,
        "response_format": None if params.json_schema is None else _format(params.json_schema),
    }
    return {name: value for name, value in found.items() if value is not None}


def _turn(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
            for each in message.tool_calls
        ]
    return turn | ({"tool_call_id": message.tool_call_id} if message.tool_call_id else {})


def _tools(use: ToolUse) -> dict[str, Any]:
    """The server reads the calls."""
    functions = [
        {"name": each.name, "description": each.description or "", "parameters": json.loads(each.parameters)}
        for each in use.tools
    ]
    named = {"type": "function", "function": {"name": use.name}}
    return {
        "tools": [{"type": "function", "function": each} for each in functions],
        "tool_choice": named if use.choice is ToolChoice.NAMED else str(use.choice),
        "parallel_tool_calls": use.parallel,
    }


def _calls(delta: dict[str, Any]) -> tuple[ToolCallDelta, ...]:
    found = list[ToolCallDelta]()
    for each in delta.get("tool_calls") or ():
        function = each.get("function") or {}
        told = (function.get("arguments") or "", each.get("id") or "", function.get("name") or "")
        found.append(ToolCallDelta(each.get("index") or 0, *told))
    return tuple(found)


def _format(schema: str) -> dict[str, Any]:
    if schema.strip() == "{}":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": json.loads(schema), "strict": True}}


def _events(reply: Any) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        if line.startswith("data:"):
            data = line[5:].strip()
            if data == "[DONE]":
                return
            yield json.loads(data)


def _usage(given: dict[str, Any]) -> TokenUsage:
    details = given.get("prompt_tokens_details") or {}
    return TokenUsage(given["prompt_tokens"], given["completion_tokens"], details.get("cached_tokens") or 0)


def _refusal(status: int, text: str, address: str) -> Exception:
    told = text[:300]
    if status == 413:
        return TooLarge("prompt", "the prompt has too many tokens", f"a prompt that {address} accepts ({told})")
    if status in (408, 429) or status >= 500:
        return TryLater(f"{address} answered {status}: {told}", 1.0)
    return Malformed("request", f"a request that {address} accepts; it answered {status}: {told}")
