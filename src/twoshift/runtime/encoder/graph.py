"""Model folder -> ONNX graph, written directly with fused operators; no torch is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twoshift.runtime.encoder import heads
from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.attention import attend, by_head, relative_bias
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.layers import INT32, activated, linear, norm, token_numbers
from twoshift.runtime.encoder.modernbert import modernbert_body
from twoshift.runtime.encoder.nodes import MICROSOFT, GraphWriter
from twoshift.runtime.encoder.weights import Weights

__all__ = ["GRAPH_FORMAT", "has_type_ids", "write_graph"]

GRAPH_FORMAT = 1  # changes with the graph, so that an older cached one is not used


def has_type_ids(folder: ModelFolder) -> bool:
    """Whether the graph asks which of the two texts a token is of; elsewhere all are of the first."""
    return folder.takes_pairs and folder.architecture.types > 1


def write_graph(folder: ModelFolder, graph: Path, data: Path) -> None:
    """Write the model as `graph` with its weights in `data`; raises InvalidInput where a tensor does not fit.

    Inputs: `input_ids` [rows, tokens], `lengths` [rows], and `type_ids` where `has_type_ids`. One output, `answer`.
    """
    arch, typed = folder.architecture, has_type_ids(folder)
    marker = "embeddings.tok_embeddings.weight" if arch.rotary else "embeddings.word_embeddings.weight"
    with data.open("wb") as file, Weights.open(folder.weights, marker) as weights:
        writer = GraphWriter(file)
        if arch.rotary:
            hidden = modernbert_body(writer, arch, weights, arch.rotary)
        else:
            hidden = _body(writer, arch, weights, typed)
        answer = heads.answer(writer, arch, folder.task, weights, hidden)
        inputs = [("input_ids", 2), ("lengths", 1), *([("type_ids", 2)] if typed else [])]
        writer.write(graph, inputs, [("answer", answer, 2)])


def _body(writer: GraphWriter, architecture: Architecture, weights: Weights, typed: bool) -> str:
    """Embeddings and layers of BERT, RoBERTa and MPNet: norms after the sums."""
    hidden = _embeddings(writer, architecture, weights, typed)
    layer = _mpnet_layer if architecture.family is Family.MPNET else _bert_layer
    bias = relative_bias(writer, architecture, weights) if architecture.relative_buckets else ""
    for number in range(architecture.layers):
        hidden = layer(writer, architecture, weights, f"encoder.layer.{number}.", hidden, bias)
    return hidden


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


def _bert_layer(writer: GraphWriter, arch: Architecture, weights: Weights, prefix: str, hidden: str, _bias: str) -> str:
    names = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
    width = arch.hidden
    joined = np.concatenate([weights.get(f"{name}.weight", width, width) for name in names]).T
    biases = np.concatenate([weights.get(f"{name}.bias", width) for name in names])
    attended = writer.op(
        "Attention", hidden, writer.weight(joined), writer.weight(biases), "lengths", domain=MICROSOFT,
        num_heads=arch.heads,
    )  # fmt: skip
    output = f"{prefix}attention.output."
    hidden = _add_and_norm(writer, arch, weights, (f"{output}dense", f"{output}LayerNorm"), attended, hidden)
    return _feed_forward(writer, arch, weights, prefix, hidden)


def _mpnet_layer(writer: GraphWriter, arch: Architecture, weights: Weights, prefix: str, hidden: str, bias: str) -> str:
    own = f"{prefix}attention.attn."
    parts = [linear(writer, weights, f"{own}{name}", hidden, arch.hidden, arch.hidden) for name in "qkv"]
    query, key, value = (by_head(writer, arch, part) for part in parts)
    attended = attend(writer, arch, (query, key, value), bias)
    names = (f"{own}o", f"{prefix}attention.LayerNorm")
    return _feed_forward(writer, arch, weights, prefix, _add_and_norm(writer, arch, weights, names, attended, hidden))


def _feed_forward(writer: GraphWriter, arch: Architecture, weights: Weights, prefix: str, hidden: str) -> str:
    name = f"{prefix}intermediate.dense"
    kernel = writer.weight(weights.get(f"{name}.weight", arch.inner, arch.hidden).T)
    bias = writer.weight(weights.get(f"{name}.bias", arch.inner))
    raised = writer.op("MatMul", hidden, kernel)
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
        writer.op("MatMul", given, writer.weight(kernel)),
        skip,
        writer.weight(weights.get(f"{norm}.weight", arch.hidden)),
        writer.weight(weights.get(f"{norm}.bias", arch.hidden)),
        writer.weight(weights.get(f"{dense}.bias", arch.hidden)),
        domain=MICROSOFT,
        epsilon=arch.norm_eps,
    )
