"""From hidden states to the answer: pooling, dense layers, norms; or a classifier."""

from __future__ import annotations

from typing import assert_never

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.layers import FLOAT, activated, at_token, linear, norm, real_tokens, token_numbers
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.task import Classification, Dense, Embedding, Reranking, Task
from twoshift.runtime.encoder.weights import Weights, weight_files

__all__ = ["answer"]


def answer(writer: GraphWriter, arch: Architecture, task: Task, weights: Weights, hidden: str) -> str:
    """The task's fp32 output, [rows, columns]."""
    match task:
        case Embedding():
            return _embedding(writer, arch, task, hidden)
        case Classification():
            logits = _logits(writer, arch, weights, hidden, len(task.labels))
            return activated(writer, "sigmoid", logits) if task.multi_label else writer.op("Softmax", logits, axis=-1)
        case Reranking():
            return activated(writer, task.activation, _logits(writer, arch, weights, hidden, 1))
        case _:
            assert_never(task)


def _embedding(writer: GraphWriter, arch: Architecture, task: Embedding, hidden: str) -> str:
    pooled = [_pooled(writer, kind, hidden) for kind in task.poolings]
    result = pooled[0] if len(pooled) == 1 else writer.op("Concat", *pooled, axis=1)
    width = arch.hidden * len(pooled)
    for dense in task.dense:
        result, width = _dense(writer, dense, result, width), dense.outputs
    if not task.normalize:
        return result
    size = writer.op("ReduceL2", result, axes=[1], keepdims=1)
    return writer.op("Div", result, writer.op("Max", size, writer.number(1e-12)))


def _dense(writer: GraphWriter, dense: Dense, given: str, width: int) -> str:
    if dense.inputs != width:
        raise InvalidInput(f"{dense.folder}: in_features", dense.inputs, f"{width}, the width before it")
    with Weights.open(weight_files(dense.folder), "linear.weight") as weights:
        result = linear(writer, weights, "linear", given, dense.inputs, dense.outputs, dense.bias)
        weights.check_all_read()
    return activated(writer, dense.activation, result)


def _pooled(writer: GraphWriter, kind: str, hidden: str) -> str:
    if kind == "cls":
        return at_token(writer, hidden, 0)
    if kind == "max":
        real = writer.op("Unsqueeze", real_tokens(writer), writer.ints(2))
        lowest = writer.op("Where", real, hidden, writer.number(float("-inf")))
        return writer.op("ReduceMax", lowest, axes=[1], keepdims=0)
    # The others are weighted sums over the tokens: one small product of matrices
    shares = writer.op("Unsqueeze", _shares(writer, kind), writer.ints(1))
    return writer.op("Squeeze", writer.op("MatMul", shares, hidden), writer.ints(1))


def _shares(writer: GraphWriter, kind: str) -> str:
    """What each token counts in the sum, [rows, tokens]; padding counts nothing."""
    numbers = writer.op("Unsqueeze", writer.op("Cast", token_numbers(writer), to=FLOAT), writer.ints(0))
    lengths = writer.op("Unsqueeze", writer.op("Cast", "lengths", to=FLOAT), writer.ints(1))
    if kind == "lasttoken":
        last = writer.op("Equal", numbers, writer.op("Sub", lengths, writer.number(1.0)))
        return writer.op("Cast", last, to=FLOAT)
    counted = writer.op("Cast", real_tokens(writer), to=FLOAT)
    if kind == "mean":
        return writer.op("Div", counted, lengths)
    if kind == "mean_sqrt_len_tokens":
        return writer.op("Div", counted, writer.op("Sqrt", lengths))
    growing = writer.op("Mul", counted, writer.op("Add", numbers, writer.number(1.0)))  # weightedmean
    return writer.op("Div", growing, writer.op("ReduceSum", growing, writer.ints(1), keepdims=1))


def _logits(writer: GraphWriter, arch: Architecture, weights: Weights, hidden: str, labels: int) -> str:
    """Each family's own classifier, as transformers saves it."""
    width = arch.hidden
    first = at_token(writer, hidden, 0)
    match arch.family:
        case Family.BERT:
            pooled = activated(writer, "tanh", linear(writer, weights, "pooler.dense", first, width, width))
            return linear(writer, weights, "classifier", pooled, width, labels)
        case Family.ROBERTA | Family.MPNET:
            pooled = activated(writer, "tanh", linear(writer, weights, "classifier.dense", first, width, width))
            return linear(writer, weights, "classifier.out_proj", pooled, width, labels)
        case Family.MODERNBERT:
            given = first if arch.classifier_pooling == "cls" else _pooled(writer, "mean", hidden)
            raised = linear(writer, weights, "head.dense", given, width, width, arch.biases.head)
            pooled = activated(writer, "gelu", raised)
            pooled = norm(writer, weights, "head.norm", pooled, width, arch.norm_eps, arch.biases.norm)
            return linear(writer, weights, "classifier", pooled, width, labels)
        case Family.OTHER:
            raise InvalidInput("model_type", arch.model_type, "a family whose graph is written here")
        case _:
            assert_never(arch.family)
