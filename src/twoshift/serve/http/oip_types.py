"""What the Open Inference Protocol's face reads and writes; the OpenAPI document is made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

__all__ = [
    "IndexRequest",
    "InferParameters",
    "InferReply",
    "InferRequest",
    "InputParameters",
    "InputTensor",
    "Live",
    "LoadRequest",
    "Loaded",
    "OipError",
    "OutputParameters",
    "OutputTensor",
    "Ready",
    "RequestedOutput",
]

_VALUES = {"type": "array", "description": "Numbers, bools or texts, flat or nested.", "items": {}}


class InputParameters(Struct, frozen=True):
    """Parameters of an input tensor: the bytes that the tensor has after the JSON. Shared memory is refused."""

    binary_data_size: int | None = None  # of those after the JSON, in the order of the inputs
    shared_memory_region: str | None = None


class InputTensor(Struct):
    """An input tensor; the first number of `shape` is the number of rows."""

    name: str
    shape: list[int]
    datatype: str
    # Until the datatype says what it should hold; a factory, since a schema cannot show the default itself.
    data: Annotated[Raw, Meta(extra_json_schema=_VALUES)] = field(default_factory=Raw)
    parameters: InputParameters = InputParameters()


class OutputParameters(Struct, frozen=True):
    """Parameters of a requested output: binary data or JSON. Classification and shared memory are refused."""

    binary_data: bool | None = None
    classification: int = 0
    shared_memory_region: str | None = None


class RequestedOutput(Struct):
    """An output tensor to return."""

    name: str
    parameters: OutputParameters = OutputParameters()


class InferParameters(Struct, frozen=True):
    """Parameters of an inference request; unknown parameters are ignored."""

    timeout: Annotated[int, Meta(ge=0)] | None = None  # in microseconds
    priority: Annotated[int, Meta(ge=0)] | None = None
    binary_data_output: bool = False  # of outputs that do not say it themselves


class InferRequest(Struct):
    """Body of POST /v2/models/{model}/infer."""

    inputs: list[InputTensor]
    outputs: list[RequestedOutput] = []  # all without any
    id: str | None = None
    parameters: InferParameters = InferParameters()


class OutputTensor(Struct):
    """An output tensor; if it has no `data`, the bytes of the tensor follow the JSON."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, int] | UnsetType = UNSET
    data: list[Any] | UnsetType = UNSET


class InferReply(Struct):
    """Reply to an inference request, with the requested output tensors."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str | UnsetType = UNSET


class Live(Struct):
    """Liveness reply: the process is running."""

    live: Literal[True] = True


class Ready(Struct):
    """Readiness reply: the model (or every model) is loaded, warmed up and not overloaded."""

    ready: Literal[True] = True


class IndexRequest(Struct):
    """Body of POST /v2/repository/index."""

    ready: bool = False  # whether only models that are


class LoadRequest(Struct):
    """Body of POST /v2/repository/models/{model}/load."""

    parameters: dict[str, Any] = {}


class Loaded(Struct):
    """Reply after a model was loaded or unloaded."""


class OipError(Struct):
    """Error reply in the format of the Open Inference Protocol."""

    error: str
