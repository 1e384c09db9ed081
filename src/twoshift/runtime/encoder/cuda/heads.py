"""From packed hidden states to the answer, in fp32: pooling, dense layers, norms; or a classifier."""

from __future__ import annotations

from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.cuda.rows import PackedRows
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.pooling import TORCH_NORM_EPS, read_steps
from twoshift.runtime.encoder.task import (
    ClassificationTask,
    Dense,
    EmbeddingTask,
    LayerNorm,
    Normalize,
    RegressionTask,
    RerankingTask,
    Step,
)
from twoshift.runtime.encoder.weights import Weights

__all__ = ["PackedHead", "has_head"]

_Linear = tuple[Tensor, Tensor]
_SCORES = {"identity": lambda given: given, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}
_SCORES["gelu"] = functional.gelu


def has_head(folder: ModelFolder) -> bool:
    """Whether the answer can be made here: a classifier must be of a family whose own is known."""
    if isinstance(folder.task, EmbeddingTask):
        return not folder.skips_prompts  # its pooling counts every token
    return folder.architecture.family is not Family.OTHER


class PackedHead:
    """Hidden states [tokens, hidden] -> answers [rows, width]."""

    def __init__(self, folder: ModelFolder, device: torch.device) -> None:
        self._task, self._arch, self._device = folder.task, folder.architecture, device
        self._steps: list[tuple[Step, _Linear]] = []
        self._classifier: dict[str, _Linear] = {}
        self.read: frozenset[str] = frozenset()  # tensors of the folder's own weights
        match folder.task:
            case EmbeddingTask():
                read = read_steps(folder.task, folder.architecture.hidden)
                self._steps = [(step, (self._put(weight), self._put(bias))) for step, weight, bias in read]
            case ClassificationTask(labels=labels):
                self._classifier = self._read_classifier(folder, len(labels))
            case RerankingTask() | RegressionTask():
                self._classifier = self._read_classifier(folder, 1)
            case _:
                assert_never(folder.task)

    def __call__(self, hidden: Tensor, rows: PackedRows) -> Tensor:
        match self._task:
            case EmbeddingTask(poolings=poolings, truncate_dim=truncate_dim):
                result = torch.cat([_pooled(kind, hidden, rows) for kind in poolings], dim=1)
                for step, (weight, bias) in self._steps:
                    result = _stepped(step, result, weight, bias)
                return result[:, :truncate_dim].contiguous()
            case ClassificationTask(multi_label=multi_label):
                logits = self._logits(hidden, rows)
                return logits.sigmoid() if multi_label else logits.softmax(-1)
            case RerankingTask(activation=activation):
                return _SCORES[activation](self._logits(hidden, rows))
            case RegressionTask():
                return self._logits(hidden, rows)
            case _:
                assert_never(self._task)

    def _logits(self, hidden: Tensor, rows: PackedRows) -> Tensor:
        """Each family's own classifier, as transformers saves it."""
        arch = self._arch
        kind = "mean" if arch.family is Family.MODERNBERT and arch.classifier_pooling == "mean" else "cls"
        result = functional.linear(_pooled(kind, hidden, rows), *self._classifier["first"])
        if arch.family is Family.MODERNBERT:
            weight, bias = self._classifier["norm"]
            result = functional.layer_norm(functional.gelu(result), weight.shape, weight, bias, arch.norm_eps)
        else:
            result = result.tanh()
        return functional.linear(result, *self._classifier["last"])

    def _read_classifier(self, folder: ModelFolder, labels: int) -> dict[str, _Linear]:
        first, last = _names(self._arch)
        marker = "embeddings.tok_embeddings.weight" if self._arch.rotary else "embeddings.word_embeddings.weight"
        width = self._arch.hidden
        with Weights.open(folder.weights, marker) as weights:
            read = {"first": self._read_linear(weights, first, width, width, self._arch.biases.head)}
            read["last"] = self._read_linear(weights, last, width, labels)
            if self._arch.family is Family.MODERNBERT:
                bias = weights.get("head.norm.bias", width) if self._arch.biases.norm else np.zeros(width)
                read["norm"] = (self._put(weights.get("head.norm.weight", width)), self._put(bias))
            self.read = weights.read
        return read

    def _read_linear(self, weights: Weights, name: str, inputs: int, outputs: int, biased: bool = True) -> _Linear:
        bias = weights.get(f"{name}.bias", outputs) if biased else np.zeros(outputs)
        return self._put(weights.get(f"{name}.weight", outputs, inputs)), self._put(bias)

    def _put(self, values: NDArray[np.floating]) -> Tensor:
        return torch.from_numpy(np.array(values, np.float32)).to(self._device)


def _stepped(step: Step, given: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    match step:
        case Dense(activation=activation):
            return _SCORES[activation](functional.linear(given, weight, bias))
        case LayerNorm(width=width):
            return functional.layer_norm(given, (width,), weight, bias, TORCH_NORM_EPS)
        case Normalize():
            return functional.normalize(given, dim=1)
        case _:
            assert_never(step)


def _names(arch: Architecture) -> tuple[str, str]:
    """The first and the last layer of the family's classifier."""
    match arch.family:
        case Family.BERT:
            return "pooler.dense", "classifier"
        case Family.ROBERTA | Family.MPNET:
            return "classifier.dense", "classifier.out_proj"
        case Family.MODERNBERT:
            return "head.dense", "classifier"
        case Family.OTHER:
            raise InvalidInput(
                "model_type", arch.model_type, "a model of the family bert, roberta, mpnet or modernbert"
            )
        case _:
            assert_never(arch.family)


def _pooled(kind: str, hidden: Tensor, rows: PackedRows) -> Tensor:
    last = hidden.shape[0] - 1
    if kind == "cls":
        return hidden[rows.starts[:-1].clamp(max=last).long()].float()
    if kind == "lasttoken":
        return hidden[(rows.starts[1:] - 1).clamp(0, last).long()].float()
    shape = (rows.rows + 1, hidden.shape[1])  # one more, for tokens without a row
    states = hidden.float()
    if kind == "max":
        lowest = torch.full(shape, -torch.inf, device=hidden.device)
        return lowest.scatter_reduce(0, rows.row_of[:, None].expand_as(states), states, "amax")[:-1]
    if kind == "weightedmean":
        states = states * (rows.places + 1)[:, None]
    total = torch.zeros(shape, device=hidden.device).index_add_(0, rows.row_of, states)[:-1]
    lengths = rows.lengths.clamp(min=1).float()[:, None]
    if kind == "mean":
        return total / lengths
    if kind == "mean_sqrt_len_tokens":
        return total / lengths.sqrt()
    return total / (lengths * (lengths + 1) / 2)
