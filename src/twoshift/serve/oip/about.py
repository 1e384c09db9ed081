"""What the protocol tells of the server and its models, as plain values: JSON and protobuf are made from the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from twoshift._version import __version__
from twoshift.serve.counts import HistogramCounts
from twoshift.serve.deployments import Deployment
from twoshift.serve.oip.datatypes import datatype_of
from twoshift.serve.oip.rows import declared_inputs
from twoshift.serve.service import Service
from twoshift.types import Lane, Tensor

__all__ = [
    "ModelIndex",
    "ModelMetadata",
    "ServerMetadata",
    "TensorMetadata",
    "config_of",
    "index_of",
    "metadata_of",
    "statistics_of",
]

_EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")
_CONFIG_TYPES = {"BYTES": "TYPE_STRING"}  # as Triton's configuration has it, where they differ


class ServerMetadata(msgspec.Struct, frozen=True):
    """Name, version and extensions of the server."""

    name: str = "twoshift"
    version: str = __version__
    extensions: tuple[str, ...] = _EXTENSIONS


class TensorMetadata(msgspec.Struct, frozen=True):
    """An input or output tensor; the first number of `shape` is the number of rows, and -1 means any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(msgspec.Struct, frozen=True):
    """Inputs and outputs of a model; `outputs` is empty until the model has run its first call."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ModelIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model, and whether it is ready."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str = ""


def metadata_of(model: Deployment) -> ModelMetadata:
    """What it takes and answers."""
    info = model.info
    inputs, outputs = _tensors(declared_inputs(info)), _tensors(model.outputs)
    return ModelMetadata(model.name, _versions(model), info.runtime, inputs, outputs)


def config_of(model: Deployment) -> dict[str, Any]:
    """As Triton's model configuration has it."""
    info, most_rows = model.info, model.most_rows
    slo_us = round(1e6 * model.derived.slo_s)
    queue = {"default_timeout_microseconds": slo_us, "allow_timeout_override": True, "max_queue_size": most_rows}
    kind = "KIND_GPU" if info.device.startswith("cuda") else "KIND_CPU"
    about = {"runtime": info.runtime, "device": info.device, "precision": info.precision, "checksum": info.checksum}
    return {
        "name": model.name,
        "platform": info.runtime,
        "backend": "twoshift",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": most_rows,
        "input": _configured(declared_inputs(info)),
        "output": _configured(model.outputs),
        "instance_group": [{"name": f"{model.name}_0", "kind": kind, "count": max(1, model.replicas().ready)}],
        "dynamic_batching": {"max_queue_delay_microseconds": 0, "default_queue_policy": queue},
        "parameters": {name: {"string_value": value} for name, value in about.items()},
    }


def statistics_of(models: Sequence[Deployment]) -> dict[str, Any]:
    """As Triton's statistics extension has them; what is not counted here is left out."""
    return {"model_stats": [_model_statistics(model) for model in models]}


def index_of(service: Service, only_ready: bool) -> list[ModelIndex]:
    """The models."""
    found = list[ModelIndex]()
    for model in service.models.all.values():
        why = service.unready(model.name)
        if why is None:
            found.append(ModelIndex(model.name, model.version, "READY"))
        elif not only_ready:
            found.append(ModelIndex(model.name, model.version, "UNAVAILABLE", why))
    return found


def _versions(model: Deployment) -> list[str]:
    """The stable one first."""
    split = model.split
    return [model.version] if split is None else [split.stable.version, split.candidate.version]


def _tensors(tensors: Sequence[Tensor]) -> list[TensorMetadata]:
    return [TensorMetadata(each.name, datatype_of(each), [-1, *each.shape]) for each in tensors]


def _configured(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    """As the metadata has them, without the axis of rows: Triton's way where there is a max_batch_size."""
    return [
        {"name": each.name, "data_type": _config_type(each.datatype), "dims": each.shape[1:]}
        for each in _tensors(tensors)
    ]


def _config_type(datatype: str) -> str:
    return _CONFIG_TYPES.get(datatype, f"TYPE_{datatype}")


def _model_statistics(model: Deployment) -> dict[str, Any]:
    counts = model.metrics.total()
    stages, requests = counts.stages, counts.requests
    engine = model.stats()
    answered_s = sum(each.total for each in stages.values())
    failed = sum(count for status, count in requests.items() if status != 200)
    return {
        "name": model.name,
        "version": model.version,
        "inference_count": engine.lanes[Lane.ONLINE].rows,
        "execution_count": sum(engine.call_rows[Lane.ONLINE].counts),
        "inference_stats": {
            "success": _duration(requests.get(200, 0), answered_s),
            "fail": _duration(failed, max(0.0, counts.latency.total - answered_s)),
            "queue": _stage(stages["queue"]),
            "compute_input": _stage(stages["lookup"], stages["prepare"]),
            "compute_infer": _stage(stages["forward"]),
            "compute_output": _stage(stages["finish"]),
        },
    }


def _stage(*parts: HistogramCounts) -> dict[str, int]:
    return _duration(sum(parts[0].counts), sum(part.total for part in parts))


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(1e9 * seconds)}
