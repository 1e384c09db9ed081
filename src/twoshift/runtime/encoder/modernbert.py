"""ModernBERT: rotary positions, windows in most layers, gated feed-forward, norms before the sums."""

from __future__ import annotations

import numpy as np

from twoshift.runtime.encoder.architecture import Architecture, Rotary
from twoshift.runtime.encoder.attention import attend, by_head, distances, hidden_where_false, padding_bias
from twoshift.runtime.encoder.layers import activated, norm, projected, token_numbers
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.weights import Weights

__all__ = ["modernbert_body"]

_Angles = tuple[str, str]  # cosines and sines, [tokens, width of a head]


def modernbert_body(writer: GraphWriter, arch: Architecture, weights: Weights, rotary: Rotary) -> str:
    """Token ids -> the last layer's hidden states, normed."""
    word = writer.weight(weights.get("embeddings.tok_embeddings.weight", arch.vocabulary, arch.hidden))
    hidden = writer.op("Gather", word, "input_ids")
    hidden = norm(writer, weights, "embeddings.norm", hidden, arch.hidden, arch.norm_eps, arch.biases.norm)
    near = writer.op("LessOrEqual", writer.op("Abs", distances(writer)), writer.weight(_int(rotary.window)))
    seen = padding_bias(writer)
    window = writer.op("Add", seen, hidden_where_false(writer, near))
    full = (seen, _angles(writer, arch, rotary.global_theta))
    local = (window, _angles(writer, arch, rotary.local_theta))
    for number, is_local in enumerate(rotary.local_layers):
        bias, angles = local if is_local else full
        hidden = _layer(writer, arch, weights, number, hidden, bias, angles)
    return norm(writer, weights, "final_norm", hidden, arch.hidden, arch.norm_eps, arch.biases.norm)


def _layer(
    writer: GraphWriter, arch: Architecture, weights: Weights, number: int, hidden: str, bias: str, angles: _Angles
) -> str:
    name = f"layers.{number}."
    width = arch.hidden
    normed = hidden  # the first layer's input is normed already
    if number:
        normed = norm(writer, weights, f"{name}attn_norm", hidden, width, arch.norm_eps, arch.biases.norm)
    joined = projected(writer, weights, f"{name}attn.Wqkv", normed, width, 3 * width, arch.biases.attention)
    parts = writer.ops("Split", 3, joined, writer.ints(width, width, width), axis=2)
    query, key, value = (by_head(writer, arch, part) for part in parts)
    turned = (_turned(writer, arch, query, angles), _turned(writer, arch, key, angles), value)
    attended = attend(writer, arch, turned, bias)
    attended = projected(writer, weights, f"{name}attn.Wo", attended, width, width, arch.biases.attention)
    hidden = writer.op("Add", hidden, attended)
    normed = norm(writer, weights, f"{name}mlp_norm", hidden, width, arch.norm_eps, arch.biases.norm)
    raised = projected(writer, weights, f"{name}mlp.Wi", normed, width, 2 * arch.inner, arch.biases.feed_forward)
    given, gate = writer.ops("Split", 2, raised, writer.ints(arch.inner, arch.inner), axis=2)
    gated = writer.op("Mul", activated(writer, arch.activation, given), gate)
    lowered = projected(writer, weights, f"{name}mlp.Wo", gated, arch.inner, width, arch.biases.feed_forward)
    return writer.op("Add", hidden, lowered)


def _angles(writer: GraphWriter, arch: Architecture, theta: float) -> _Angles:
    """cos and sin of every position and frequency, made in the graph: a table would be megabytes."""
    size = arch.hidden // arch.heads
    inverse = (1.0 / theta ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))).astype(np.float32)
    places = writer.op("Cast", writer.op("Unsqueeze", token_numbers(writer), writer.ints(1)), to=1)
    angles = writer.op("Mul", places, writer.weight(np.concatenate([inverse, inverse])[None, :]))
    return writer.op("Cos", angles), writer.op("Sin", angles)


def _turned(writer: GraphWriter, arch: Architecture, given: str, angles: _Angles) -> str:
    """x cos + (-second half, first half) sin"""
    half = arch.hidden // arch.heads // 2
    first, second = writer.ops("Split", 2, given, writer.ints(half, half), axis=3)
    swapped = writer.op("Concat", writer.op("Neg", second), first, axis=3)
    cosines, sines = angles
    return writer.op("Add", writer.op("Mul", given, cosines), writer.op("Mul", swapped, sines))


def _int(value: int) -> np.ndarray:
    return np.array(value, np.int32)
