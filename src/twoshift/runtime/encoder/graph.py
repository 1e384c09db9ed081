"""Model folder -> ONNX graph, written directly with fused operators; no torch is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from twoshift.runtime.encoder import heads
from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.attention import attend, by_head, padding_bias, relative_bias
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.layers import INT32, activated, norm, projected, token_numbers
from twoshift.runtime.encoder.modernbert import modernbert_body
from twoshift.runtime.encoder.nodes import MICROSOFT, GraphWriter, Product
from twoshift.runtime.encoder.task import Task
from twoshift.runtime.encoder.weights import Weights

__all__ = ["GRAPH_FORMAT", "has_type_ids", "write_graph"]

Answer = Callable[[GraphWriter, Architecture, Task, Weights, str], str]
GRAPH_FORMAT = 2  # changes with the graph, so that an older cached one is not used


def has_type_ids(folder: ModelFolder) -> bool:
    """Whether the graph asks which of the two texts a token is of; elsewhere all are of the first."""
    return folder.takes_pairs and folder.architecture.types > 1


def write_graph(
    folder: ModelFolder, graph: Path, data: Path, product: Product | None = None, answer: Answer = heads.answer,
    fused: bool = True,
) -> None:  # fmt: skip
    """Write the model as `graph` with its weights in `data`; raises InvalidInput where a tensor does not fit.

    `product` writes the body's products of matrices, where they are not to be exact; `answer` what follows the body.
    `fused` is for onnxruntime: one operator for a whole attention. OpenVINO fuses its own and copies less without it.
    Inputs: `input_ids` [rows, tokens], `lengths` [rows], `type_ids` where `has_type_ids`, and [rows] `skipped`
    where the folder's `skips_prompts`. One output, `answer`.
    """
    arch, typed = folder.architecture, has_type_ids(folder)
    marker = "embeddings.tok_embeddings.weight" if arch.rotary else "embeddings.word_embeddings.weight"
    with data.open("wb") as file, Weights.open(folder.weights, marker) as weights:
        writer = GraphWriter(file, product, fused)
        hidden = _body(writer, arch, weights, typed)
        result = answer(writer, arch, folder.task, weights, hidden)
        if answer is heads.answer:  # another one answers with something else than the model's own
            weights.check_all_read()
        inputs = [("input_ids", 2), ("lengths", 1), *([("type_ids", 2)] if typed else [])]
        inputs += [(heads.SKIPPED, 1)] if folder.skips_prompts else []
        writer.write(graph, inputs, [("answer", result, 2)])


def _body(writer: GraphWriter, architecture: Architecture, weights: Weights, typed: bool) -> str:
    """Embeddings and layers: token ids -> the last hidden states."""
    if architecture.rotary:
        return modernbert_body(writer, architecture, weights, architecture.rotary)
    hidden = _embeddings(writer, architecture, weights, typed)
    layer = _mpnet_layer if architecture.family is Family.MPNET else _bert_layer
    bias = _bias(writer, architecture, weights)
    for number in range(architecture.layers):
        hidden = layer(writer, architecture, weights, f"encoder.layer.{number}.", hidden, bias)
    return hidden


def _bias(writer: GraphWriter, arch: Architecture, weights: Weights) -> str:
    """What is added to the attention's scores; the fused operator makes its own from the lengths."""
    if arch.relative_buckets:
        return relative_bias(writer, arch, weights)
    return "" if writer.is_fused else padding_bias(writer)


def _embeddings(writer: GraphWriter, arch: Architecture, weights: Weights, typed: bool) -> str:
    word = writer.weight(weights.get("embeddings.word_embeddings.weight", arch.vocabulary, arch.hidden))
    places = weights.get("embeddings.position_embeddings.weight", arch.positions, arch.hidden)
    total = writer.op("Gather", word, "input_ids")
    if arch.types:
        types = weights.get("embeddings.token_type_embeddings.weight", arch.types, arch.hidden)
        if typed:
            total = writer.op("Add", total, writer.op("Gather", writer.weight(types), "type_ids"))
        else:
            places = places + types[0]  # every token is of the first text
    total = writer.op("Add", total, writer.op("Gather", writer.weight(places), _positions(writer, arch)))
    return norm(writer, weights, "embeddings.LayerNorm", total, arch.hidden, arch.norm_eps)


def _positions(writer: GraphWriter, arch: Architecture) -> str:
    if arch.family is Family.BERT:
        return token_numbers(writer)
    # Positions count real tokens from after the padding's own, even where a text spells the padding token out.
    pad = writer.weight(np.array(arch.pad_id, np.int32))
    real = writer.op("Cast", writer.op("Not", writer.op("Equal", "input_ids", pad)), to=INT32)
    counted = writer.op("CumSum", real, writer.weight(np.array(1, np.int32)))
    return writer.op("Add", writer.op("Mul", counted, real), pad)


def _bert_layer(writer: GraphWriter, arch: Architecture, weights: Weights, prefix: str, hidden: str, bias: str) -> str:
    names = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
    if writer.is_exact and not writer.is_fused:
        apart = [projected(writer, weights, name, hidden, arch.hidden, arch.hidden) for name in names]
        attended = _attended(writer, arch, apart, bias)
    else:
        attended = _joined_attention(writer, arch, weights, names, hidden, bias)
    output = f"{prefix}attention.output."
    hidden = _add_and_norm(writer, arch, weights, (f"{output}dense", f"{output}LayerNorm"), attended, hidden)
    return _feed_forward(writer, arch, weights, prefix, hidden)


def _joined_attention(
    writer: GraphWriter, arch: Architecture, weights: Weights, names: list[str], hidden: str, bias: str
) -> str:
    """Query, key and value as one product."""
    width = arch.hidden
    kernel = np.concatenate([weights.get(f"{name}.weight", width, width) for name in names]).T
    biases = np.concatenate([weights.get(f"{name}.bias", width) for name in names])
    if writer.is_fused:
        return writer.op(
            "Attention", hidden, writer.weight(kernel), writer.weight(biases), "lengths", domain=MICROSOFT,
            num_heads=arch.heads,
        )  # fmt: skip
    joined = writer.op("Add", writer.product(hidden, kernel), writer.weight(biases))
    return _attended(writer, arch, writer.ops("Split", 3, joined, writer.ints(width, width, width), axis=2), bias)


def _attended(writer: GraphWriter, arch: Architecture, parts: list[str], bias: str) -> str:
    query, key, value = (by_head(writer, arch, part) for part in parts)
    return attend(writer, arch, (query, key, value), bias)


def _mpnet_layer(writer: GraphWriter, arch: Architecture, weights: Weights, prefix: str, hidden: str, bias: str) -> str:
    own = f"{prefix}attention.attn."
    parts = [projected(writer, weights, f"{own}{name}", hidden, arch.hidden, arch.hidden) for name in "qkv"]
    attended = _attended(writer, arch, parts, bias)
    names = (f"{own}o", f"{prefix}attention.LayerNorm")
    return _feed_forward(writer, arch, weights, prefix, _add_and_norm(writer, arch, weights, names, attended, hidden))


def _feed_forward(writer: GraphWriter, arch: Architecture, weights: Weights, prefix: str, hidden: str) -> str:
    name = f"{prefix}intermediate.dense"
    raised = writer.product(hidden, weights.get(f"{name}.weight", arch.inner, arch.hidden).T)
    bias = writer.weight(weights.get(f"{name}.bias", arch.inner))
    if arch.activation == "gelu":
        raised = writer.op("BiasGelu", raised, bias, domain=MICROSOFT)
    else:
        raised = activated(writer, arch.activation, writer.op("Add", raised, bias))
    names = (f"{prefix}output.dense", f"{prefix}output.LayerNorm")
    return _add_and_norm(writer, arch, weights, names, raised, hidden, arch.inner)


def _add_and_norm(
    writer: GraphWriter, arch: Architecture, weights: Weights, names: tuple[str, str], given: str, skip: str,
    width: int | None = None,
) -> str:  # fmt: skip
    """norm(skip + linear(given))"""
    dense, norm = names
    kernel = weights.get(f"{dense}.weight", arch.hidden, width or arch.hidden).T
    return writer.op(
        "SkipLayerNormalization",
        writer.product(given, kernel, outliers=width is not None),
        skip,
        writer.weight(weights.get(f"{norm}.weight", arch.hidden)),
        writer.weight(weights.get(f"{norm}.bias", arch.hidden)),
        writer.weight(weights.get(f"{dense}.bias", arch.hidden)),
        domain=MICROSOFT,
        epsilon=arch.norm_eps,
    )
