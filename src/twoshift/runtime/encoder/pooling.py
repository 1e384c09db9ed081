"""Pooling and what comes after it in numpy, for networks whose graph is not written here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.task import Dense, EmbeddingTask, LayerNorm, Normalize, Step
from twoshift.runtime.encoder.weights import Weights, weight_files

__all__ = ["TORCH_NORM_EPS", "Pooler", "activated", "read_steps", "stepped"]

TORCH_NORM_EPS = 1e-5  # of torch.nn.LayerNorm, where nothing else is said
Floats = NDArray[np.float32]
_erf = np.frompyfunc(math.erf, 1, 1)  # numpy has none


class Pooler:
    """Hidden states -> embeddings, as the folder's modules say."""

    def __init__(self, task: EmbeddingTask, hidden: int) -> None:
        self._task = task
        self._steps = read_steps(task, hidden)

    def __call__(self, hidden: Floats, batch: Mapping[str, NDArray[Any]]) -> Floats:
        lengths = batch["lengths"]
        numbers = np.arange(hidden.shape[1])
        counted = numbers < lengths[:, None]
        if "skipped" in batch:
            counted &= numbers >= batch["skipped"][:, None]
        pooled = [_pooled(kind, hidden, lengths, counted) for kind in self._task.poolings]
        return stepped(np.concatenate(pooled, axis=1), self._steps, self._task.truncate_dim)


def read_steps(task: EmbeddingTask, width: int) -> list[tuple[Step, Floats, Floats]]:
    """The steps after a pooling of `width`, with the weights of each; raises InvalidInput where they do not fit."""
    read: list[tuple[Step, Floats, Floats]] = []
    width *= len(task.poolings)
    for step in task.steps:
        match step:
            case Dense():
                _check_width(step.folder, "in_features", step.inputs, width)
                width = step.outputs
            case LayerNorm():
                _check_width(step.folder, "dimension", step.width, width)
            case Normalize():
                pass
            case _:
                assert_never(step)
        read.append((step, *_tensors(step)))
    return read


def _check_width(folder: Path, name: str, given: int, width: int) -> None:
    if given != width:
        raise InvalidInput(f"{folder}: {name}", given, f"{width}, the output width of the previous module")


def stepped(result: Floats, steps: Sequence[tuple[Step, Floats, Floats]], truncate_dim: int | None) -> Floats:
    """Vectors after each step, and cut to `truncate_dim` numbers at the end."""
    for step, weight, bias in steps:
        match step:
            case Dense():
                result = activated(step.activation, result @ weight.T + bias)
            case LayerNorm():
                centred = result - result.mean(axis=1, keepdims=True)
                variance = np.square(centred).mean(axis=1, keepdims=True)
                result = centred / np.sqrt(variance + TORCH_NORM_EPS) * weight + bias
            case Normalize():
                result = result / np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
            case _:
                assert_never(step)
    return np.ascontiguousarray(result[:, :truncate_dim], np.float32)


def _tensors(step: Step) -> tuple[Floats, Floats]:
    if isinstance(step, Normalize):
        return np.empty(0, np.float32), np.empty(0, np.float32)
    name = "linear" if isinstance(step, Dense) else "norm"
    shape = (step.outputs, step.inputs) if isinstance(step, Dense) else (step.width,)
    with Weights.open(weight_files(step.folder), f"{name}.weight") as weights:
        weight = weights.get(f"{name}.weight", *shape)
        biased = isinstance(step, LayerNorm) or step.bias
        bias = weights.get(f"{name}.bias", shape[0]) if biased else np.zeros(shape[0], np.float32)
        weights.check_all_read()
    return weight, bias


def _pooled(kind: str, hidden: Floats, lengths: NDArray[Any], counted: NDArray[np.bool_]) -> Floats:
    rows = np.arange(len(hidden))
    if kind == "cls":  # the first that is counted; where none is, the first of all
        return hidden[rows, counted.argmax(axis=1)]
    if kind == "max":
        return np.where(counted[:, :, None], hidden, -np.inf).max(axis=1)
    if kind == "lasttoken":
        return hidden[rows, lengths - 1] * counted[rows, lengths - 1, None]
    weights = np.arange(1, hidden.shape[1] + 1)
    shares = (counted * weights if kind == "weightedmean" else counted).astype(np.float32)
    total = np.maximum(shares.sum(axis=1, keepdims=True), np.float32(1e-9))
    shares /= np.sqrt(total) if kind == "mean_sqrt_len_tokens" else total
    return np.einsum("rt,rtw->rw", shares, hidden, optimize=True)


def activated(kind: str, given: Floats) -> Floats:
    """What torch's function of that name gives."""
    match kind:
        case "identity":
            return given
        case "tanh":
            return np.tanh(given)
        case "relu":
            return np.maximum(given, 0)
        case "sigmoid":
            with np.errstate(over="ignore"):  # infinity's inverse is the 0 that is meant
                return np.float32(1) / (np.float32(1) + np.exp(-given))
        case "gelu":
            erf = np.asarray(_erf(given * np.float32(0.5**0.5)), np.float32)
            return (given * ((1 + erf) * np.float32(0.5))).astype(np.float32, copy=False)
        case _:
            raise InvalidInput("activation_function", kind, "Tanh, ReLU, GELU, Sigmoid or Identity")
