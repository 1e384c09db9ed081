"""What OpenAI's face reads and writes; the OpenAPI document is made from it."""

from __future__ import annotations

import typing
from typing import Any, Literal

import msgspec
from msgspec import Struct

from twoshift.serve.derived import Derived

__all__ = [
    "DerivedReply",
    "ModelCard",
    "ModelList",
]


class ModelCard(Struct, kw_only=True):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "twoshift"


class ModelList(Struct, kw_only=True):
    """The models that are served."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


_ABOUT = [("model", str), ("runtime", str), ("device", str), ("precision", str)]
_fields: list[Any] = [*_ABOUT, *typing.get_type_hints(Derived).items()]
DerivedReply: Any = msgspec.defstruct(
    "DerivedReply", _fields, namespace={"__doc__": "What follows from a model's SLO."}
)
