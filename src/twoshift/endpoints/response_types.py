"""OpenAI's responses as their clients write and read them. Nothing is kept: each request has the whole conversation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from twoshift.endpoints.chat_types import Count, NoList
from twoshift.endpoints.tools import MOST_TOOLS, FunctionName

__all__ = [
    "ChosenFunction",
    "FailedResponse",
    "FunctionCall",
    "FunctionTool",
    "Incomplete",
    "InputItem",
    "InputPart",
    "OutputMessage",
    "OutputText",
    "ResponseReply",
    "ResponseRequest",
    "ResponseUsage",
    "SchemaText",
    "Status",
    "TextConfig",
]

No = Annotated[bool, Meta(extra_json_schema={"const": False})]  # as it is, anyway
Status = Literal["in_progress", "completed", "incomplete", "failed"]


class InputPart(Struct, forbid_unknown_fields=True):
    """A content part of a message; parts of an earlier response are accepted, too."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: NoList | None = None
    logprobs: NoList | None = None


class InputItem(Struct, forbid_unknown_fields=True):
    """A message (`role`, `content`), a function call, or the result of a function call (`output`)."""

    type: Literal["message", "function_call", "function_call_output"] | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    id: str | None = None  # as a reply has them that is sent again
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: None = None


class FunctionTool(Struct, forbid_unknown_fields=True):
    """A function that the model may call."""

    type: Literal["function"]
    name: FunctionName
    parameters: dict[str, Any] | None = None
    strict: bool | None = None  # a forced call is, always
    description: str | None = None


class ChosenFunction(Struct, forbid_unknown_fields=True):
    """The function that the model must call."""

    type: Literal["function"]
    name: str


Choice = Literal["none", "auto", "required"] | ChosenFunction


class PlainText(Struct, tag="text", forbid_unknown_fields=True):
    """Answer format: plain text."""


class JsonText(Struct, tag="json_object", forbid_unknown_fields=True):
    """Answer format: a JSON object."""


class SchemaText(Struct, tag="json_schema", forbid_unknown_fields=True):
    """Answer format: JSON that matches a schema."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None  # it is, always


class TextConfig(Struct, forbid_unknown_fields=True):
    """Format of the answer."""

    format: PlainText | JsonText | SchemaText | None = field(default_factory=PlainText)
    verbosity: Literal["medium"] | None = None  # as it is, anyway


class ResponseStreamOptions(Struct, forbid_unknown_fields=True):
    """Options of a streamed response."""

    include_obfuscation: No | None = None


class ResponseRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/responses."""

    model: str
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=2048)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    text: TextConfig | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: No | None = None
    background: No | None = None
    truncation: Literal["disabled"] | None = None
    parallel_tool_calls: bool | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Choice | None = None
    include: NoList | None = None
    previous_response_id: None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: Literal["auto", "default"] | None = None


class OutputText(Struct, kw_only=True):
    """The text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputMessage(Struct, kw_only=True):
    """An answer."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Status
    content: list[OutputText]


class FunctionCall(Struct, kw_only=True):
    """A call that the model wants made."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class CachedTokens(Struct):
    """Input tokens that were read from the prefix cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class ReasoningTokens(Struct):
    """Output tokens that were used for reasoning."""

    reasoning_tokens: int = 0


class ResponseUsage(Struct):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int

    @classmethod
    def of(cls, prompt: int, written: int, cached: int) -> ResponseUsage:
        """So many tokens."""
        return cls(prompt, CachedTokens(cached), written, ReasoningTokens(), prompt + written)


class Incomplete(Struct):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class FailedResponse(Struct):
    """The error that ended a response."""

    code: str
    message: str


class ResponseReply(Struct, kw_only=True):
    """A response, with the settings of its request."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status = "in_progress"
    background: bool = False
    error: FailedResponse | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[Any] = []  # OutputMessage and FunctionCall, in turn
    parallel_tool_calls: bool
    previous_response_id: None = None
    store: bool = False
    temperature: float
    text: TextConfig
    tool_choice: Choice
    tools: list[FunctionTool]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None
