"""The functions that a request tells a model of, and which of them it is to call, in every API's words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import Tool, ToolChoice, ToolUse

__all__ = ["MOST_TOOLS", "FunctionName", "tool_of", "tool_use"]

MOST_TOOLS = 128
FunctionName = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,128}$")]


def tool_of(name: str, description: str | None, schema: dict[str, Any] | None) -> Tool:
    """One of them."""
    return Tool(name, description, json.dumps(schema or {}))


def tool_use(tools: Sequence[Tool], choice: str, name: str | None = None, parallel: bool = True) -> ToolUse | None:
    """None where there are none; raises InvalidInput. A `choice` is that of OpenAI's, or a function's by its `name`."""
    wanted = ToolChoice.NAMED if name is not None else ToolChoice(choice)
    if not tools:
        if wanted in (ToolChoice.REQUIRED, ToolChoice.NAMED):
            raise Inapplicable("tool_choice", name or choice, "without `tools`")
        return None
    names = [each.name for each in tools]
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise InvalidInput("tools", twice, "a list in which each function name occurs once")
    if name is not None and name not in names:
        raise InvalidInput("tool_choice", name, f"one of these functions: {', '.join(names)}")
    return ToolUse(tuple(tools), wanted, name or "", parallel)
