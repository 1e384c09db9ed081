"""Pooling and what comes after it in numpy, for networks whose graph is not written here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.task import Dense, Embedding
from twoshift.runtime.encoder.weights import Weights, weight_files

__all__ = ["Pooler", "activated"]

Floats = NDArray[np.float32]


class Pooler:
    """Hidden states -> embeddings, as the folder's modules say."""

    def __init__(self, task: Embedding, hidden: int) -> None:
        self._task = task
        self._dense = [(dense, *_tensors(dense)) for dense in task.dense]
        expected = hidden * len(task.poolings)
        for dense in task.dense:
            if dense.inputs != expected:
                raise InvalidInput(f"{dense.folder}: in_features", dense.inputs, f"{expected}, the width before it")
            expected = dense.outputs

    def __call__(self, hidden: Floats, lengths: NDArray[Any]) -> Floats:
        result = np.concatenate([_pooled(kind, hidden, lengths) for kind in self._task.poolings], axis=1)
        for dense, kernel, bias in self._dense:
            result = activated(dense.activation, result @ kernel.T + bias)
        if self._task.normalize:
            result = result / np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
        return result.astype(np.float32, copy=False)


def _tensors(dense: Dense) -> tuple[Floats, Floats]:
    with Weights.open(weight_files(dense.folder), "linear.weight") as weights:
        kernel = weights.get("linear.weight", dense.outputs, dense.inputs)
        bias = weights.get("linear.bias", dense.outputs) if dense.bias else np.zeros(dense.outputs, np.float32)
        weights.check_all_read()
    return kernel, bias


def _pooled(kind: str, hidden: Floats, lengths: NDArray[Any]) -> Floats:
    numbers = np.arange(hidden.shape[1])
    real = numbers < lengths[:, None]
    if kind == "cls":
        return hidden[:, 0]
    if kind == "max":
        return np.where(real[:, :, None], hidden, -np.inf).max(axis=1)
    if kind == "lasttoken":
        return hidden[np.arange(len(hidden)), lengths - 1]
    shares = (real * (numbers + 1) if kind == "weightedmean" else real).astype(np.float32)
    total = shares.sum(axis=1, keepdims=True)
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
        case _:
            raise InvalidInput("activation_function", kind, "Tanh, ReLU, Sigmoid or Identity")
