"""From hidden states to the answer: pooling, dense layers, norms; or a classifier."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.layers import FLOAT, activated, at_token, linear, norm, real_tokens, token_numbers
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.pooling import TORCH_NORM_EPS
from twoshift.runtime.encoder.task import (
    ClassificationTask,
    Dense,
    EmbeddingTask,
    LayerNorm,
    Normalize,
    RegressionTask,
    RerankingTask,
    Task,
)
from twoshift.runtime.encoder.weights import Weights, weight_files

__all__ = ["SKIPPED", "answer"]

SKIPPED = "skipped"  # an input: tokens at the front of each row that are not pooled


def answer(writer: GraphWriter, arch: Architecture, task: Task, weights: Weights, hidden: str) -> str:
    """The task's fp32 output, [rows, columns]."""
    match task:
        case EmbeddingTask():
            return _embedding(writer, arch, task, hidden)
        case ClassificationTask():
            logits = _logits(writer, arch, weights, hidden, len(task.labels))
            return activated(writer, "sigmoid", logits) if task.multi_label else writer.op("Softmax", logits, axis=-1)
        case RerankingTask():
            return activated(writer, task.activation, _logits(writer, arch, weights, hidden, 1))
        case RegressionTask():
            return _logits(writer, arch, weights, hidden, 1)
        case _:
            assert_never(task)


def _embedding(writer: GraphWriter, arch: Architecture, task: EmbeddingTask, hidden: str) -> str:
    counted = _counted(writer, task)
    pooled = [_pooled(writer, kind, hidden, counted, task.include_prompt) for kind in task.poolings]
    result = pooled[0] if len(pooled) == 1 else writer.op("Concat", *pooled, axis=1)
    width = arch.hidden * len(pooled)
    for step in task.steps:
        match step:
            case Dense():
                result, width = _dense(writer, step, result, width), step.outputs
            case LayerNorm():
                result = _layer_norm(writer, step, result, width)
            case Normalize():
                size = writer.op("ReduceL2", result, axes=[1], keepdims=1)
                result = writer.op("Div", result, writer.op("Max", size, writer.number(1e-12)))
            case _:
                assert_never(step)
    if task.truncate_dim is not None and task.truncate_dim < width:
        result = writer.op("Slice", result, writer.ints(0), writer.ints(task.truncate_dim), writer.ints(1))
    return result


def _counted(writer: GraphWriter, task: EmbeddingTask) -> str:
    """Which tokens are pooled, bool [rows, tokens]: all but padding and, in some models, the prompt."""
    real = real_tokens(writer)
    if task.include_prompt:
        return real
    skipped = writer.op("Unsqueeze", SKIPPED, writer.ints(1))
    before = writer.op("Less", writer.op("Unsqueeze", token_numbers(writer), writer.ints(0)), skipped)
    return writer.op("And", real, writer.op("Not", before))


def _layer_norm(writer: GraphWriter, step: LayerNorm, given: str, width: int) -> str:
    if step.width != width:
        raise InvalidInput(f"{step.folder}: dimension", step.width, f"{width}, the output width of the previous module")
    with Weights.open(weight_files(step.folder), "norm.weight") as weights:
        result = norm(writer, weights, "norm", given, width, TORCH_NORM_EPS)
        weights.check_all_read()
    return result


def _dense(writer: GraphWriter, dense: Dense, given: str, width: int) -> str:
    if dense.inputs != width:
        raise InvalidInput(
            f"{dense.folder}: in_features", dense.inputs, f"{width}, the output width of the previous module"
        )
    with Weights.open(weight_files(dense.folder), "linear.weight") as weights:
        result = linear(writer, weights, "linear", given, dense.inputs, dense.outputs, dense.bias)
        weights.check_all_read()
    return activated(writer, dense.activation, result)


def _pooled(writer: GraphWriter, kind: str, hidden: str, counted: str, counts_first: bool = True) -> str:
    if kind == "cls" and counts_first:
        return at_token(writer, hidden, 0)
    if kind == "max":
        lowest = writer.op("Where", writer.op("Unsqueeze", counted, writer.ints(2)), hidden, writer.number(-np.inf))
        return writer.op("ReduceMax", lowest, axes=[1], keepdims=0)
    # The others are weighted sums over the tokens: one small product of matrices
    shares = writer.op("Unsqueeze", _shares(writer, kind, counted), writer.ints(1))
    return writer.op("Squeeze", writer.op("MatMul", shares, hidden), writer.ints(1))


def _shares(writer: GraphWriter, kind: str, counted: str) -> str:
    """What each token counts in the sum, [rows, tokens]; one that is not counted counts nothing."""
    numbers = writer.op("Unsqueeze", writer.op("Cast", token_numbers(writer), to=FLOAT), writer.ints(0))
    if kind == "lasttoken":
        lengths = writer.op("Unsqueeze", writer.op("Cast", "lengths", to=FLOAT), writer.ints(1))
        last = writer.op("Equal", numbers, writer.op("Sub", lengths, writer.number(1.0)))
        return writer.op("Cast", writer.op("And", last, counted), to=FLOAT)
    ones = writer.op("Cast", counted, to=FLOAT)
    if kind == "cls":  # the first that is counted; where none is, the first of all
        first = writer.op("Unsqueeze", writer.op("ArgMax", ones, axis=1, keepdims=0), writer.ints(1))
        return writer.op("Cast", writer.op("Equal", numbers, writer.op("Cast", first, to=FLOAT)), to=FLOAT)
    if kind == "weightedmean":
        ones = writer.op("Mul", ones, writer.op("Add", numbers, writer.number(1.0)))
    total = writer.op("Max", writer.op("ReduceSum", ones, writer.ints(1), keepdims=1), writer.number(1e-9))
    return writer.op("Div", ones, writer.op("Sqrt", total) if kind == "mean_sqrt_len_tokens" else total)


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
            given = first if arch.classifier_pooling == "cls" else _pooled(writer, "mean", hidden, real_tokens(writer))
            raised = linear(writer, weights, "head.dense", given, width, width, arch.biases.head)
            pooled = activated(writer, "gelu", raised)
            pooled = norm(writer, weights, "head.norm", pooled, width, arch.norm_eps, arch.biases.norm)
            return linear(writer, weights, "classifier", pooled, width, labels)
        case Family.OTHER:
            raise InvalidInput(
                "model_type", arch.model_type, "a model of the family bert, roberta, mpnet or modernbert"
            )
        case _:
            assert_never(arch.family)
