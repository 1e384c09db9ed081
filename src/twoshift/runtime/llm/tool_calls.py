"""Calls of tools in what a model writes: found by vLLM's parsers, or all that it may write where a call is forced."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twoshift.errors import InvalidInput
from twoshift.generation import Tool, ToolCallDelta, ToolChoice, ToolUse
from twoshift.llm_ports import Prompt

__all__ = ["CallReader", "ToolCalls", "check_parser"]

_SCANNED_AGAIN = 32  # a list of calls is read from its beginning each time it has grown by a part in so many
_Read = tuple[str, tuple[ToolCallDelta, ...]]


class CallReader(Protocol):
    """Reads one answer as it comes."""

    @property
    def wants_special(self) -> bool:
        """Whether it looks for special tokens."""
        ...

    def more(self, text: str, token_ids: Sequence[int], finished: bool) -> _Read:
        """The text that is no part of a call, and more of the calls."""
        ...


def check_parser(name: str | None) -> None:
    """Raises InvalidInput that says which parsers there are."""
    if name is None:
        return
    from vllm.tool_parsers import ToolParserManager

    known = sorted({*ToolParserManager.tool_parsers, *ToolParserManager.lazy_parsers})
    if name not in known:
        raise InvalidInput("tool_parser", name, f"one of {', '.join(known)}")


class ToolCalls:
    """Of one model."""

    def __init__(self, parser: str | None, tokenizer: Any) -> None:
        """Raises InvalidInput where the model's tokenizer lacks what the parser looks for."""
        self._tokenizer, self._parser = tokenizer, None
        if parser is not None:
            self._parser = _parser_class(parser, tokenizer)

    def schema(self, use: ToolUse, check: Callable[[str], None]) -> str | None:
        """What a forced call keeps to; raises InvalidInput where it cannot be, or nobody could read the calls."""
        if use.choice is ToolChoice.AUTO and self._parser is None:
            accepted = "none, required or the name of a function: the server was started without --tool-parser"
            raise InvalidInput("tool_choice", "auto", accepted)
        if not use.is_forced:
            return None
        try:
            for tool in use.tools:
                check(_parameters(tool))
            made = _named_schema(use) if use.choice is ToolChoice.NAMED else _required_schema(use)
            check(made)
        except InvalidInput as error:
            raise error.renamed("tools") from None
        return made

    def reader(self, prompt: Prompt) -> CallReader | None:
        """Of one answer; None where it calls nothing."""
        use = None if prompt.request is None else prompt.request.tools
        if use is None or use.choice is ToolChoice.NONE:
            return None
        if use.choice is ToolChoice.NAMED:
            return _NamedCall(use.name)
        if use.choice is ToolChoice.REQUIRED:
            return _RequiredCalls()
        return _ParsedCalls(self._parser, self._tokenizer, use, prompt.token_ids)


def _parser_class(name: str, tokenizer: Any) -> Any:
    from vllm.parser import ParserManager

    try:
        return ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True, tokenizer=tokenizer)
    except TypeError as error:
        raise InvalidInput("tool_parser", name, f"a parser that fits the model ({error})") from error


def _named_schema(use: ToolUse) -> str:
    return next(_parameters(each) for each in use.tools if each.name == use.name)


def _required_schema(use: ToolUse) -> str:
    """A list of calls."""
    definitions: dict[str, Any] = {}
    calls = list[Any]()
    for tool in use.tools:
        schema = json.loads(_parameters(tool))
        for name, definition in schema.pop("$defs", {}).items():
            if definitions.setdefault(name, definition) != definition:
                accepted = "the same definition of this name in the `$defs` of all tools"
                raise InvalidInput("tools", name, accepted)
        if _refers_to_root(schema):
            accepted = 'parameters that do not contain "$ref": "#", or a `tool_choice` that names this function'
            raise InvalidInput("tools", tool.name, accepted)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "parameters": schema},
                "required": ["name", "parameters"],
            }
        )
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    found: dict[str, Any] = {"type": "array", "minItems": 1, "items": items}
    found |= {} if use.parallel else {"maxItems": 1}
    return json.dumps(found | ({"$defs": definitions} if definitions else {}))


def _parameters(tool: Tool) -> str:
    """Without any, an object with nothing in it."""
    given = json.loads(tool.parameters)
    return tool.parameters if given else json.dumps({"type": "object", "properties": {}})


def _refers_to_root(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == "#" or any(map(_refers_to_root, schema.values()))
    return isinstance(schema, list) and any(map(_refers_to_root, schema))


class _NamedCall:
    """All of the text is the arguments."""

    wants_special = False

    def __init__(self, name: str) -> None:
        self._name = name

    def more(self, text: str, token_ids: Sequence[int], finished: bool) -> _Read:
        if not text:
            return "", ()
        name, self._name = self._name, ""
        return "", (ToolCallDelta(0, text, _call_id() if name else "", name),)


class _RequiredCalls:
    """All of the text is a list of calls."""

    wants_special = False

    def __init__(self) -> None:
        self._text, self._told = "", 0

    def more(self, text: str, token_ids: Sequence[int], finished: bool) -> _Read:
        from vllm.tool_parsers.streaming import extract_required_tool_call_streaming

        self._text += text
        if not finished and len(self._text) - self._told <= self._told // _SCANNED_AGAIN:
            return "", ()
        before, self._told = self._text[: self._told], len(self._text)
        found, _ = extract_required_tool_call_streaming(
            previous_text=before, current_text=self._text, tool_call_idx=None, tool_call_id_type="random"
        )
        return "", _deltas(found)


class _ParsedCalls:
    """Calls are marked in the text, each family of models in its own way."""

    def __init__(self, parser: Any, tokenizer: Any, use: ToolUse, prompt: Sequence[int]) -> None:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        tools = [
            {"type": "function", "function": {"name": each.name, "parameters": json.loads(each.parameters)}}
            for each in use.tools
        ]
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": ""}], "tools": tools}
        self._request = ChatCompletionRequest(**asked, tool_choice="auto", parallel_tool_calls=use.parallel)
        self._parser = parser(tokenizer, self._request.tools)
        self._request = self._parser.adjust_request(self._request)
        self._parallel = use.parallel
        self._prompt: list[int] | None = list(prompt)  # which the parser wants to see, once

    @property
    def wants_special(self) -> bool:
        return not self._request.skip_special_tokens

    def more(self, text: str, token_ids: Sequence[int], finished: bool) -> _Read:
        prompt, self._prompt = self._prompt, None
        found = self._parser.parse_delta(text, list(token_ids), self._request, prompt, finished=finished)
        calls = tuple(each for each in _deltas(found) if self._parallel or each.index == 0)
        return (found.content or "" if found is not None else ""), calls


def _deltas(message: Any) -> tuple[ToolCallDelta, ...]:
    if message is None:
        return ()
    return tuple(
        ToolCallDelta(
            each.index,
            (each.function.arguments if each.function else None) or "",
            each.id or "",
            (each.function.name if each.function else None) or "",
        )
        for each in message.tool_calls or ()
    )


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
