"""What OpenAI's face reads and writes; the OpenAPI document is made from it."""

from __future__ import annotations

import typing
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from twoshift.serve.derived import Derived
from twoshift.serve.llm_derived import LlmDerived

__all__ = [
    "DerivedReply",
    "LlmDerivedReply",
    "ModelAlone",
    "ModelCard",
    "ModelList",
]


class ModelCard(Struct, kw_only=True):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "twoshift"
    max_model_len: int | UnsetType = UNSET  # tokens of a row, as vLLM has it: of a prompt and its answer together
    parent: str | UnsetType = UNSET  # of an adapter: the model that it changes, as vLLM has it
    state: str | UnsetType = UNSET  # of one that does not answer now
    reason: str | UnsetType = UNSET  # why it does not


class ModelAlone(ModelCard, kw_only=True):
    """A served model, in the formats of OpenAI and of KServe's V1 protocol."""

    name: str
    ready: bool


class ModelList(Struct, kw_only=True):
    """The served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


_ABOUT = [("model", str), ("runtime", str), ("device", str), ("precision", str)]


def _reply(name: str, kind: str, of: type, about: str) -> Any:
    fields: list[Any] = [*_ABOUT, *typing.get_type_hints(of).items()]
    return msgspec.defstruct(name, fields, namespace={"__doc__": about}, tag_field="kind", tag=kind)


DerivedReply = _reply("DerivedReply", "rows", Derived, "Values that the server derives from a model's SLO.")
LlmDerivedReply = _reply(
    "LlmDerivedReply",
    "sequences",
    LlmDerived,
    "Values that the server derives from a language model's latency objectives.",
)
