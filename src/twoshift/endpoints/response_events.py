"""A response as it is generated: OpenAI's events, numbered."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from twoshift.endpoints.chat_types import GenerationUsage
from twoshift.endpoints.faults import Fault
from twoshift.endpoints.generating import named_event
from twoshift.endpoints.response_types import (
    FailedResponse,
    FunctionCall,
    Incomplete,
    OutputMessage,
    OutputText,
    ResponseReply,
    ResponseUsage,
    Status,
)
from twoshift.generation import Delta, ToolCallDelta

__all__ = ["ResponseEvents", "ended"]


class ResponseEvents:
    """One item of the output after the other."""

    def __init__(self, empty: ResponseReply) -> None:
        self._reply = empty
        self._number = 0
        self._message: OutputMessage | None = None  # that is being written
        self._call: FunctionCall | None = None  # or this one
        self._called = -1  # its place among the calls
        self._finish = "stop"

    def begin(self) -> bytes:
        """The response, with nothing in it."""
        return self._event("response.created", response=self._reply) + self._event(
            "response.in_progress", response=self._reply
        )

    def more(self, place: int, delta: Delta) -> bytes:
        """Of the item that is open, or a new one."""
        if delta.finish is not None:
            self._finish = delta.finish.value
        told = self._text(delta.text) if delta.text else b""
        return told + b"".join(self._more_called(each) for each in delta.tool_calls)

    def end(self, usage: GenerationUsage) -> bytes:
        """The whole of it, and what it took."""
        reply = ended(self._reply, self._finish, usage)
        told = self._text("") if self._message is self._call is None and not self._reply.output else b""
        told += self._closed("completed" if reply.status == "completed" else "incomplete")
        reply.output = self._reply.output
        return told + self._event(f"response.{reply.status}", response=reply)

    def fail(self, fault: Fault) -> bytes:
        """What has ended it instead."""
        failed = msgspec.structs.replace(
            self._reply, status="failed", error=FailedResponse("server_error", fault.message)
        )
        return self._event("response.failed", response=failed)

    def _text(self, text: str) -> bytes:
        begun = b""
        if self._message is None:
            begun = self._closed()
            self._message = OutputMessage(id=f"msg_{secrets.token_hex(16)}", status="in_progress", content=[])
            begun += self._item("added", self._message) + self._part("added", OutputText(text=""))
            self._message.content = [OutputText(text="")]
        self._message.content[0].text += text
        return begun + (self._of_part("response.output_text.delta", delta=text, logprobs=[]) if text else b"")

    def _more_called(self, delta: ToolCallDelta) -> bytes:
        begun = b""
        if self._call is None or self._called != delta.index:
            begun, self._called = self._closed(), delta.index
            made, name = f"fc_{secrets.token_hex(16)}", delta.name
            self._call = FunctionCall(id=made, call_id=delta.id, name=name, arguments="", status="in_progress")
            begun += self._item("added", self._call)
        self._call.arguments += delta.arguments
        if not delta.arguments:
            return begun
        return begun + self._of_call("delta", self._call, delta=delta.arguments)

    def _closed(self, status: Status = "completed") -> bytes:
        """The item that is open is whole."""
        told, item = b"", self._message or self._call
        if item is None:
            return told
        item.status = status
        if isinstance(item, OutputMessage):
            [part] = item.content
            told = self._of_part("response.output_text.done", text=part.text, logprobs=[]) + self._part("done", part)
        else:
            told = self._of_call("done", item, name=item.name, arguments=item.arguments)
        told += self._item("done", item)
        self._reply.output.append(item)
        self._message = self._call = None
        return told

    def _of_call(self, moment: str, call: FunctionCall, **told: Any) -> bytes:
        name = f"response.function_call_arguments.{moment}"
        return self._event(name, item_id=call.id, output_index=self._at, **told)

    def _part(self, moment: str, part: OutputText) -> bytes:
        return self._of_part(f"response.content_part.{moment}", part=part)

    def _of_part(self, name: str, **told: Any) -> bytes:
        assert self._message is not None  # noqa: S101 - parts are of one
        return self._event(name, item_id=self._message.id, output_index=self._at, content_index=0, **told)

    def _item(self, moment: str, item: OutputMessage | FunctionCall) -> bytes:
        return self._event(f"response.output_item.{moment}", output_index=self._at, item=item)

    @property
    def _at(self) -> int:
        return len(self._reply.output)

    def _event(self, event: str, /, **told: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return named_event(event, {"type": event, "sequence_number": number, **told})


def ended(empty: ResponseReply, finish: str, usage: GenerationUsage) -> ResponseReply:
    """The response as it is at its end, without its output."""
    whole = finish != "length"
    cached = usage.prompt_tokens_details.cached_tokens
    return msgspec.structs.replace(
        empty,
        status="completed" if whole else "incomplete",
        incomplete_details=None if whole else Incomplete(),
        usage=ResponseUsage.of(usage.prompt_tokens, usage.completion_tokens, cached),
    )
