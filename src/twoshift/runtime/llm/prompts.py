"""Requests as tokens: the chat template of a folder, and its tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, Inapplicable, InvalidInput, TooLong
from twoshift.generation import GenerationRequest, Message, Tool, ToolCall, ToolUse
from twoshift.llm_ports import Prompt, Prompts
from twoshift.runtime.companions import needed_transformers
from twoshift.runtime.tokenization import TextTokens

__all__ = ["PromptMaker"]


class PromptMaker:
    """Any thread may use it."""

    def __init__(self, folder: Path, context_tokens: int, vocabulary: int | None = None) -> None:
        """`vocabulary` is that of the weights; None: that of the tokenizer, which may have more or fewer tokens."""
        transformers = needed_transformers("vllm", str(folder))
        try:
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise Broken(f"the tokenizer in {folder} cannot be read: {error}") from error
        self.tokenizer = tokenizer
        self._template = tokenizer if tokenizer.chat_template else None
        self._takes_tools = self._template is not None and _takes_tools(tokenizer)
        self._tokenizer = tokenizer.backend_tokenizer  # it is fast, and may be used from several threads at once
        self._context, self._vocabulary = context_tokens, vocabulary or self._tokenizer.get_vocab_size()
        self.tokens = TextTokens(self._tokenizer, self._chat)

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        """Template and tokenise; raises InvalidInput, and TooLong where a prompt and its answer exceed the context."""
        known = dict[tuple[int, int], tuple[int, ...]]()  # by the prompt itself: of several answers it is the same
        return Prompts(tuple(self._prompt(row, known) for row in rows))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens are, without special ones."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def _prompt(self, row: GenerationRequest, known: dict[tuple[int, int], tuple[int, ...]]) -> Prompt:
        key = (id(row.prompt), id(row.tools))
        if (ids := known.get(key)) is None:
            ids = known[key] = self._token_ids(row.prompt, row.tools)
        if not ids:
            raise InvalidInput("prompt", row.prompt, "at least one token")
        left = self._context - len(ids)
        most = row.params.max_tokens or max(1, left)
        if left < 1 or (most > left and not row.params.may_shorten):
            raise TooLong.of(self._context, len(ids), most)
        request = None if row.tools is None else row
        return Prompt(ids, row.params, min(left, most), request, adapter=row.adapter, whole=row.whole)

    def _token_ids(self, prompt: tuple[Message, ...] | str | tuple[int, ...], tools: ToolUse | None) -> tuple[int, ...]:
        """All of them are in the weights: one that is not would end the device's process, with all that it runs."""
        if isinstance(prompt, str):
            return self._known(self._tokenizer.encode(prompt).ids)
        if prompt and isinstance(prompt[0], Message):
            return self._known(self._tokenizer.encode(self._chat(prompt, tools), add_special_tokens=False).ids)
        for each in prompt:
            if isinstance(each, Message) or not 0 <= each < self._vocabulary:
                raise InvalidInput("prompt", each, f"token ids from 0 to {self._vocabulary - 1}")
        return tuple(each for each in prompt if not isinstance(each, Message))

    def _known(self, ids: list[int]) -> tuple[int, ...]:
        if ids and (most := max(ids)) >= self._vocabulary:
            accepted = f"token ids below {self._vocabulary}: the tokenizer in the folder has more tokens than the model"
            raise InvalidInput("prompt", f"a text with the token id {most}", accepted)
        return tuple(ids)

    def _chat(self, messages: tuple[Any, ...], tools: ToolUse | None = None) -> str:
        if self._template is None:
            raise Inapplicable("messages", True, "because this model has no chat template; use `prompt` instead")
        if tools is not None and not self._takes_tools:
            raise Inapplicable("tools", True, "because the chat template of this model does not support tools")
        turns = [_turn(each) for each in messages]
        told = None if tools is None else [_told(each) for each in tools.tools]
        try:
            made = self._template.apply_chat_template(turns, tools=told, tokenize=False, add_generation_prompt=True)
            made.encode()  # half of a surrogate pair is JSON, but no text
        except Exception as error:  # a template is a program: it refuses in its own words
            raise InvalidInput(
                "messages",
                [each.role for each in messages],
                f"messages that the chat template accepts ({error})",
            ) from error
        return made


def _takes_tools(tokenizer: Any) -> bool:
    return re.search(r"\btools\b", tokenizer.get_chat_template(tools=[{}])) is not None


def _turn(message: Message) -> dict[str, Any]:
    """As templates have it: the arguments of calls are no text."""
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": _arguments(each)}}
            for each in message.tool_calls
        ]
    return turn | ({"tool_call_id": message.tool_call_id} if message.tool_call_id else {})


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        accepted = f"valid JSON as the arguments of the tool call {call.name}"
        raise InvalidInput("messages", call.arguments, accepted) from None


def _told(tool: Tool) -> dict[str, Any]:
    described = {} if tool.description is None else {"description": tool.description}
    function = {"name": tool.name, **described, "parameters": json.loads(tool.parameters)}
    return {"type": "function", "function": function}
