"""Attention in standard operators, for networks whose kind the fused operator does not cover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twoshift.runtime.encoder.architecture import Architecture
from twoshift.runtime.encoder.layers import real_tokens, token_numbers
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.weights import Weights

__all__ = ["attend", "by_head", "distances", "hidden_where_false", "padding_bias", "relative_bias"]

_HIDDEN = -1e9  # its exponential is 0, and adding another bias does not overflow
_MPNET_BUCKETS, _MPNET_FAR = 32, 128


def by_head(writer: GraphWriter, arch: Architecture, given: str) -> str:
    """[rows, tokens, width] -> [rows, heads, tokens, width of a head]"""
    split = writer.op("Reshape", given, writer.ints(0, 0, arch.heads, arch.hidden // arch.heads))
    return writer.op("Transpose", split, perm=[0, 2, 1, 3])


def attend(writer: GraphWriter, arch: Architecture, parts: tuple[str, str, str], bias: str) -> str:
    """softmax(query key^T / sqrt(width) + bias) value, heads joined again."""
    query, key, value = parts
    scale = writer.number((arch.hidden // arch.heads) ** -0.5)
    turned = writer.op("Transpose", key, perm=[0, 1, 3, 2])
    scores = writer.op("MatMul", writer.op("Mul", query, scale), turned)
    shares = writer.op("Softmax", writer.op("Add", scores, bias), axis=-1)
    joined = writer.op("Transpose", writer.op("MatMul", shares, value), perm=[0, 2, 1, 3])
    return writer.op("Reshape", joined, writer.ints(0, 0, arch.hidden))


def padding_bias(writer: GraphWriter) -> str:
    """0 for a real token and far below it for padding, [rows, 1, 1, tokens]."""
    return writer.op("Unsqueeze", hidden_where_false(writer, real_tokens(writer)), writer.ints(1, 2))


def hidden_where_false(writer: GraphWriter, seen: str) -> str:
    """A bias that hides what is false."""
    return writer.op("Where", seen, writer.number(0.0), writer.number(_HIDDEN))


def distances(writer: GraphWriter) -> str:
    """Key's position minus query's, int32 [tokens, tokens]."""
    numbers = token_numbers(writer)
    keys, queries = writer.op("Unsqueeze", numbers, writer.ints(0)), writer.op("Unsqueeze", numbers, writer.ints(1))
    return writer.op("Sub", keys, queries)


def relative_bias(writer: GraphWriter, arch: Architecture, weights: Weights) -> str:
    """MPNet's learned bias by distance, and the padding's, [rows, heads, tokens, tokens]."""
    learned = weights.get("encoder.relative_attention_bias.weight", arch.relative_buckets, arch.heads)
    reach = arch.max_tokens - 1
    table = writer.weight(learned[_buckets(np.arange(-reach, reach + 1))].T)
    index = writer.op("Add", distances(writer), writer.weight(np.array(reach, np.int32)))
    by_distance = writer.op("Unsqueeze", writer.op("Gather", table, index, axis=1), writer.ints(0))
    return writer.op("Add", by_distance, padding_bias(writer))


def _buckets(distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row of the learned table for each distance: exact nearby, logarithmic further away."""
    half = _MPNET_BUCKETS // 2
    near = half // 2
    away = np.abs(distance)
    ratio = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(near)) / np.float32(np.log(_MPNET_FAR / near))
    far = np.minimum(near + (ratio * np.float32(half - near)).astype(np.int64), half - 1)
    return np.where(distance > 0, half, 0) + np.where(away < near, away, far)
