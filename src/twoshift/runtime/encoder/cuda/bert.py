"""BERT, RoBERTa and XLM-R over packed rows, on our own tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.cuda.attention import attend
from twoshift.runtime.encoder.cuda.kernels import Norm, add_norm, embed_norm
from twoshift.runtime.encoder.cuda.rows import PackedRows
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.weights import Weights

__all__ = ["PackedBert", "can_pack"]

Attend = Callable[[Tensor, Tensor, Tensor, PackedRows], Tensor]
_MARKER = "embeddings.word_embeddings.weight"
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda given: functional.gelu(given, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Tensor
    bias: Tensor

    def __call__(self, given: Tensor) -> Tensor:
        return functional.linear(given, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _Layer:
    inputs: _Linear  # query, key and value in one product
    output: _Linear
    attention_norm: Norm
    up: _Linear
    down: _Linear
    norm: Norm


class PackedBert:
    """Token ids -> the last layer's hidden states."""

    recordable = True  # nothing here looks at the device's numbers

    def __init__(
        self, folder: ModelFolder, typed: bool, device: torch.device, dtype: torch.dtype, attention: Attend = attend
    ) -> None:
        self.arch = folder.architecture
        self._attend = attention
        self._activation = _ACTIVATIONS[self.arch.activation]
        self.device, self._dtype = device, dtype
        self._files = folder.weights
        with Weights.open(folder.weights, _MARKER) as weights:
            self._read_tables(weights, typed)
            self._layers = [self._read_layer(weights, number) for number in range(self.arch.layers)]
            self._read = weights.read

    def check_all_read(self, also: frozenset[str]) -> None:
        """Raise UnusableModel where neither this network nor who read `also` has read a tensor of the folder's."""
        with Weights.open(self._files, _MARKER) as weights:
            weights.check_all_read(self._read | also)

    def __call__(self, ids: Tensor, rows: PackedRows, types: Tensor | None) -> Tensor:
        tables = [(self._words, ids), (self._positions, self._places(ids, rows))]
        if self._kinds is not None and types is not None:
            tables.append((self._kinds, types))
        hidden = embed_norm(tables, self._norm)
        for layer in self._layers:
            hidden = self._run(layer, hidden, rows)
        return hidden

    def _run(self, layer: _Layer, hidden: Tensor, rows: PackedRows) -> Tensor:
        heads = self.arch.heads
        query, key, value = layer.inputs(hidden).view(-1, 3, heads, self.arch.hidden // heads).unbind(1)
        attended = self._attend(query, key, value, rows).reshape(hidden.shape)
        hidden = add_norm(layer.output(attended), hidden, layer.attention_norm)
        return add_norm(layer.down(self._activation(layer.up(hidden))), hidden, layer.norm)

    def _places(self, ids: Tensor, rows: PackedRows) -> Tensor:
        most = self.arch.positions - 1
        if self.arch.family is Family.BERT:
            return rows.places.clamp(0, most)
        # RoBERTa counts real tokens from after the padding's own position, even where a text spells that token out
        real = (ids != self.arch.pad_id).long()
        counted = functional.pad(real.cumsum(0), (1, 0))
        before = counted[rows.starts.clamp(max=ids.shape[0]).long()]
        return ((counted[1:] - before[rows.row_of]) * real + self.arch.pad_id).clamp(0, most)

    # Reading

    def _read_tables(self, weights: Weights, typed: bool) -> None:
        arch = self.arch
        words = weights.get("embeddings.word_embeddings.weight", arch.vocabulary, arch.hidden)
        positions = weights.get("embeddings.position_embeddings.weight", arch.positions, arch.hidden)
        self._kinds: Tensor | None = None
        if arch.types:
            kinds = weights.get("embeddings.token_type_embeddings.weight", arch.types, arch.hidden)
            if typed:
                self._kinds = self._put(kinds)
            else:
                positions = positions + kinds[0]  # every token is of the first text
        self._words, self._positions = self._put(words), self._put(positions)
        self._norm = self._read_norm(weights, "embeddings.LayerNorm")

    def _read_layer(self, weights: Weights, number: int) -> _Layer:
        arch, name = self.arch, f"encoder.layer.{number}."
        own = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
        kernels = [weights.get(f"{part}.weight", arch.hidden, arch.hidden) for part in own]
        biases = [weights.get(f"{part}.bias", arch.hidden) for part in own]
        return _Layer(
            inputs=_Linear(self._put(np.concatenate(kernels)), self._put(np.concatenate(biases))),
            output=self._read_linear(weights, f"{name}attention.output.dense", arch.hidden, arch.hidden),
            attention_norm=self._read_norm(weights, f"{name}attention.output.LayerNorm"),
            up=self._read_linear(weights, f"{name}intermediate.dense", arch.hidden, arch.inner),
            down=self._read_linear(weights, f"{name}output.dense", arch.inner, arch.hidden),
            norm=self._read_norm(weights, f"{name}output.LayerNorm"),
        )

    def _read_linear(self, weights: Weights, name: str, inputs: int, outputs: int) -> _Linear:
        kernel, bias = weights.get(f"{name}.weight", outputs, inputs), weights.get(f"{name}.bias", outputs)
        return _Linear(self._put(kernel), self._put(bias))

    def _read_norm(self, weights: Weights, name: str) -> Norm:
        width = self.arch.hidden
        weight, bias = (weights.get(f"{name}.{part}", width) for part in ("weight", "bias"))
        return Norm(self._put(weight, torch.float32), self._put(bias, torch.float32), self.arch.norm_eps)

    def _put(self, values: NDArray[np.float32], dtype: torch.dtype | None = None) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device, dtype or self._dtype)


def can_pack(arch: Architecture) -> bool:
    """Whether the network is written here and the attention kernel takes its heads."""
    width = arch.hidden // arch.heads if arch.heads else 0
    return arch.family in (Family.BERT, Family.ROBERTA) and width % 8 == 0 and width <= 256
