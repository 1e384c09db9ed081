"""What endpoints read and write; the OpenAPI document is made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

__all__ = [
    "INPUT",
    "Document",
    "Embedding",
    "EmbeddingReply",
    "EmbeddingRequest",
    "ErrorReply",
    "ErrorTold",
    "FeatureTold",
    "LookupReply",
    "LookupRequest",
    "LookupRow",
    "RerankReply",
    "RerankRequest",
    "RerankResult",
    "RerankUsage",
    "ScoreModel",
    "ScoreReply",
    "ScoreRequest",
    "SearchHit",
    "SearchReply",
    "SearchRequest",
    "SearchResult",
    "TextScore",
    "TextsRerankRequest",
    "TokenIds",
    "Usage",
]

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
INPUT = {
    "oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
}


TokenIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]


class EmbeddingRequest(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/embeddings."""

    model: str
    # Read in a second step: a union of lists is more than the decoder can tell apart.
    input: Annotated[Raw, Meta(extra_json_schema=INPUT)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    prompt_name: str | None = None  # of the model's own, as sentence-transformers has them
    input_type: str | None = None  # query, document ...: the prompt that the model has for it
    allow_token_ids: bool | None = None  # the ids of `input` are of this model's own tokenizer
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None  # as vLLM has it: -1, what the model takes
    user: str | None = None
    keys: list[int | str | None] | int | str | None = None  # of precomputed answers, one for each text


class Embedding(Struct, kw_only=True):
    """One vector: a list of numbers, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(Struct):
    """Token counts of a request."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingReply(Struct, kw_only=True):
    """Vectors, in the order of the input."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class RerankRequest(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/rerank, /v2/rerank and /rerank."""

    model: str
    query: str
    documents: Annotated[list[str | Document], Meta(extra_json_schema={"minItems": 1})]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[int, Meta(ge=1)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None  # as vLLM has it
    priority: int | None = None  # these two change nothing
    user: str | None = None


class TextsRerankRequest(Struct, forbid_unknown_fields=True):
    """POST /rerank as text-embeddings-inference has it."""

    query: str
    texts: Annotated[list[str], Meta(extra_json_schema={"minItems": 1})]
    model: str | None = None  # may be left out where one reranker is served
    raw_scores: Annotated[bool, Meta(extra_json_schema={"const": False})] | None = None
    return_text: bool | None = None
    truncate: bool | None = None  # they are, anyway
    truncation_direction: Literal["right", "Right"] | None = None


class Document(Struct):
    """A text to rank."""

    text: str


class RerankResult(Struct):
    """Score of a document, and its index in the request."""

    index: int
    relevance_score: float
    document: Document | UnsetType = UNSET


class RerankUsage(Struct):
    """Token counts of a request."""

    total_tokens: int


class RerankReply(Struct):
    """Documents, best first."""

    model: str
    results: list[RerankResult]
    usage: RerankUsage


class TextScore(Struct):
    """A text's score, and its place in the request."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class ScoreRequest(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/score and /v1/score/{model}."""

    rows: Annotated[list[dict[str, Any]], Meta(extra_json_schema={"minItems": 1})]
    model: str | None = None  # may be left out where the path has it, or where one model is served


class ScoreReply(Struct):
    """Outputs of each row, by output name. For an output with one value per class, `classes` has the class names."""

    model: str
    rows: list[dict[str, Any]]
    classes: dict[str, list[str]]


class LookupRequest(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/lookup."""

    keys: Annotated[list[int | str], Meta(extra_json_schema={"minItems": 1})]
    model: str | None = None  # may be left out where one model is served


class LookupRow(Struct, kw_only=True):
    """Result for a key. `found` is hit, miss, stale, wrong_version or damaged; `outputs` is set only for a hit."""

    key: int | str
    found: str
    age_s: float | None = None
    outputs: dict[str, Any] | None = None


class LookupReply(Struct):
    """Results in the order of the keys; `classes` has the same meaning as in /v1/score."""

    model: str
    rows: list[LookupRow]
    classes: dict[str, list[str]]


class FeatureTold(Struct):
    """An input field of a model."""

    name: str
    type: str


class ScoreModel(Struct):
    """Input fields of a model in order, and its outputs; `outputs` is empty until the model has run its first call."""

    model: str
    features: list[FeatureTold]
    outputs: list[str]
    classes: dict[str, list[str]]


class SearchRequest(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/search."""

    query: Annotated[str | list[str], Meta(extra_json_schema={"minItems": 1})]
    model: str | None = None  # may be left out where one embedding model is served
    k: Annotated[int, Meta(ge=1, le=1000)] = 10
    prompt_name: str | None = None  # of the model's own; `query` where it has that, and nothing is said


class SearchHit(Struct):
    """A row that was found. `score` is the cosine, the inner product or the negative distance: higher is nearer."""

    key: str | int
    score: float


class SearchResult(Struct):
    """The nearest rows for one text, best first."""

    index: int
    hits: list[SearchHit]


class SearchReply(Struct, kw_only=True):
    """Results in the order of the texts, and the generation of the index that was searched."""

    object: Literal["list"] = "list"
    data: list[SearchResult]
    model: str
    generation: str
    usage: Usage


class ErrorTold(Struct):
    """An error: a message for people, and a type and code for programs."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorReply(Struct):
    """Error reply in OpenAI's format."""

    error: ErrorTold
