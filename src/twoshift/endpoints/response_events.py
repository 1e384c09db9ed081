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
    Incomplete,
    OutputMessage,
    OutputText,
    ResponseReply,
    ResponseUsage,
)
from twoshift.generation import Delta

__all__ = ["ResponseEvents", "ended"]


class ResponseEvents:
    """One item of the output after the other."""

    def __init__(self, empty: ResponseReply) -> None:
        self._reply = empty
        self._number = 0
        self._message: OutputMessage | None = None  # that is being written
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
        return self._text(delta.text) if delta.text else b""

    def end(self, usage: GenerationUsage) -> bytes:
        """The whole of it, and what it took."""
        reply = ended(self._reply, self._finish, usage)
        told = self._closed(incomplete=reply.status == "incomplete")
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
            self._message = OutputMessage(id=f"msg_{secrets.token_hex(16)}", status="in_progress", content=[])
            begun = self._item("added", self._message) + self._part("added", OutputText(text=""))
            self._message.content = [OutputText(text="")]
        self._message.content[0].text += text
        return begun + self._of_part("response.output_text.delta", delta=text, logprobs=[])

    def _closed(self, incomplete: bool) -> bytes:
        message = self._message
        if message is None:
            return b""
        [part] = message.content
        message.status = "incomplete" if incomplete else "completed"
        told = self._of_part("response.output_text.done", text=part.text, logprobs=[]) + self._part("done", part)
        told += self._item("done", message)
        self._reply.output.append(message)
        self._message = None
        return told

    def _part(self, moment: str, part: OutputText) -> bytes:
        return self._of_part(f"response.content_part.{moment}", part=part)

    def _of_part(self, name: str, **told: Any) -> bytes:
        assert self._message is not None  # noqa: S101 - parts are of one
        return self._event(name, item_id=self._message.id, output_index=self._at, content_index=0, **told)

    def _item(self, moment: str, item: OutputMessage) -> bytes:
        return self._event(f"response.output_item.{moment}", output_index=self._at, item=item)

    @property
    def _at(self) -> int:
        return len(self._reply.output)

    def _event(self, name: str, **told: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return named_event(name, {"type": name, "sequence_number": number, **told})


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
