"""What language models are asked and answer with, as OpenAI's clients have it; the OpenAPI document is made from it.

A field of type `None` is known elsewhere and not supported here: it may be null, as clients send what they do not use.
`NoList` may be empty, too. What changes no answer (`user`, `metadata`) is accepted and not looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from twoshift.endpoints.tools import MOST_TOOLS, FunctionName
from twoshift.endpoints.types import INPUT

__all__ = [
    "CalledFunction",
    "CalledPiece",
    "ChatChoice",
    "ChatChunk",
    "ChatChunkChoice",
    "ChatDelta",
    "ChatLogprobs",
    "ChatMessage",
    "ChatReply",
    "ChatRequest",
    "ChatToken",
    "ChatTool",
    "ChatToolCall",
    "ChatToolCallDelta",
    "CompletionChoice",
    "CompletionLogprobs",
    "CompletionReply",
    "CompletionRequest",
    "GeneratingRequest",
    "GenerationUsage",
    "LikelyToken",
    "NamedTool",
    "PromptDetails",
    "ReplyMessage",
    "StreamOptions",
    "TextPart",
]

Finish = Literal["stop", "length", "tool_calls"]
Count = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
NoList = Annotated[list[Any], Meta(max_length=0)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
_TOKEN_IDS = {"propertyNames": {"pattern": "^[0-9]+$"}, "maxProperties": 1024}
NoTool = Literal["none", "auto"]  # the same, where there are no tools


class TextPart(Struct, forbid_unknown_fields=True):
    """A text part of a message."""

    type: Literal["text"]
    text: str


class CalledFunction(Struct, forbid_unknown_fields=True):
    """Name and arguments of a called function; the arguments are JSON text as the model wrote it."""

    name: str
    arguments: str


class ChatToolCall(Struct, forbid_unknown_fields=True):
    """A tool call that the model requests."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ToolFunction(Struct, forbid_unknown_fields=True):
    """A function that the model may call."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None  # a forced call is, always


class ChatTool(Struct, forbid_unknown_fields=True):
    """A tool that the model may call."""

    type: Literal["function"]
    function: ToolFunction


class NamedFunction(Struct, forbid_unknown_fields=True):
    """Name of the function to call."""

    name: str


class NamedTool(Struct, forbid_unknown_fields=True):
    """The tool that the model must call."""

    type: Literal["function"]
    function: NamedFunction


class ChatMessage(Struct, forbid_unknown_fields=True):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None  # only an assistant that calls something says nothing
    name: str | None = None
    refusal: None = None  # as a reply has them that is sent again
    annotations: NoList | None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ChatToolCall] | None = None  # of an assistant
    tool_call_id: str | None = None  # of a tool


class StreamOptions(Struct, forbid_unknown_fields=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # as vLLM has it: in every event, beside `include_usage`


class PlainFormat(Struct, tag="text", forbid_unknown_fields=True):
    """Answer format: plain text."""


class JsonFormat(Struct, tag="json_object", forbid_unknown_fields=True):
    """Answer format: a JSON object."""


class NamedSchema(Struct, forbid_unknown_fields=True):
    """A JSON schema with a name."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None  # it is, always


class SchemaFormat(Struct, tag="json_schema", forbid_unknown_fields=True):
    """Answer format: JSON that matches a schema."""

    json_schema: NamedSchema


class GeneratingRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """How to generate; a null is the same as nothing, also of what is not listed."""

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None  # as vLLM has it: -1 and 0 are all of them
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=0)] | None = None  # as it is, anyway
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)]
        | None
    ) = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    ignore_eos: bool | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    response_format: PlainFormat | JsonFormat | SchemaFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: Literal["auto", "default"] | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(extra_json_schema=_TOKEN_IDS)] | None = None


class ChatRequest(GeneratingRequest, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=2048)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    store: Annotated[bool, Meta(extra_json_schema={"const": False})] | None = None  # as it is, anyway
    modalities: list[Literal["text"]] | None = None
    parallel_tool_calls: bool | None = None
    tools: Annotated[list[ChatTool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    functions: NoList | None = None
    function_call: NoTool | None = None


class CompletionRequest(GeneratingRequest, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/completions."""

    # Read in a second step: a union of lists is more than the decoder can tell apart.
    prompt: Annotated[Raw, Meta(extra_json_schema=INPUT)]
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    best_of: Literal[1] | None = None
    echo: bool | None = None
    suffix: None = None


class PromptDetails(Struct):
    """Prompt tokens that were read from the prefix cache."""

    cached_tokens: int = 0


class GenerationUsage(Struct):
    """Token counts of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails = field(default_factory=PromptDetails)


class LikelyToken(Struct):
    """An alternative token, with its log probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatToken(LikelyToken):
    """A token of the answer, with its log probability."""

    top_logprobs: list[LikelyToken] = []


class ChatLogprobs(Struct):
    """Log probabilities of the tokens of an answer."""

    content: list[ChatToken]
    refusal: None = None


class ReplyMessage(Struct, kw_only=True):
    """The generated message."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[ChatToolCall] | UnsetType = UNSET


class ChatChoice(Struct):
    """One generated answer."""

    index: int
    message: ReplyMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatReply(Struct, kw_only=True):
    """Reply to a chat completion request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: GenerationUsage


class CalledPiece(Struct):
    """More of what is called."""

    arguments: str
    name: str | UnsetType = UNSET


class ChatToolCallDelta(Struct):
    """More of a call."""

    index: int
    function: CalledPiece
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(Struct):
    """More of an answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ChatToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(Struct):
    """More of one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: Finish | None = None


class ChatChunk(Struct, kw_only=True):
    """An event of a streamed reply."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: GenerationUsage | UnsetType | None = UNSET


class CompletionLogprobs(Struct):
    """Log probabilities of the tokens of a continuation."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Struct):
    """One continuation; in a streamed reply, the next part of a continuation."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish | None


class CompletionReply(Struct, kw_only=True):
    """Reply to a completion request; also one event of a streamed reply."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: GenerationUsage | UnsetType | None = UNSET
