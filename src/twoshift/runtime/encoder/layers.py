"""The small pieces that every network is made of."""

from __future__ import annotations

import numpy as np

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.weights import Weights

__all__ = ["FLOAT", "INT32", "activated", "at_token", "linear", "norm", "projected", "real_tokens", "token_numbers"]

FLOAT, INT32 = 1, 6  # ONNX's numbers for its types


def linear(
    writer: GraphWriter, weights: Weights, name: str, given: str, inputs: int, outputs: int, bias: bool = True
) -> str:
    """given @ weight.T, plus the bias where there is one; always exact, as a head wants it."""
    result = writer.op("MatMul", given, writer.weight(weights.get(f"{name}.weight", outputs, inputs).T))
    return _biased(writer, weights, name, result, outputs) if bias else result


def projected(
    writer: GraphWriter, weights: Weights, name: str, given: str, inputs: int, outputs: int, bias: bool = True
) -> str:
    """The same in the network's body, in the graph's precision."""
    result = writer.product(given, weights.get(f"{name}.weight", outputs, inputs).T)
    return _biased(writer, weights, name, result, outputs) if bias else result


def _biased(writer: GraphWriter, weights: Weights, name: str, result: str, outputs: int) -> str:
    return writer.op("Add", result, writer.weight(weights.get(f"{name}.bias", outputs)))


def norm(
    writer: GraphWriter, weights: Weights, name: str, given: str, width: int, eps: float, bias: bool = True
) -> str:
    """Layer normalisation, with a bias where there is one."""
    inputs = [given, writer.weight(weights.get(f"{name}.weight", width))]
    if bias:
        inputs.append(writer.weight(weights.get(f"{name}.bias", width)))
    return writer.op("LayerNormalization", *inputs, epsilon=eps)


def activated(writer: GraphWriter, kind: str, given: str) -> str:
    """An activation by the name that the folder's reader gave it."""
    match kind:
        case "identity":
            return given
        case "tanh" | "relu" | "sigmoid":
            return writer.op({"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}[kind], given)
        case "gelu":
            root = writer.op("Erf", writer.op("Mul", given, writer.number(0.5**0.5)))
            return writer.op("Mul", given, _half_of_one_plus(writer, root))
        case "gelu_tanh":
            cube = writer.op("Mul", writer.op("Mul", given, given), writer.op("Mul", given, writer.number(0.044715)))
            scaled = writer.op("Mul", writer.op("Add", given, cube), writer.number(0.7978845608028654))
            return writer.op("Mul", given, _half_of_one_plus(writer, writer.op("Tanh", scaled)))
        case _:
            raise InvalidInput("activation", kind, "gelu, gelu_tanh, relu, tanh, sigmoid or identity")


def _half_of_one_plus(writer: GraphWriter, given: str) -> str:
    return writer.op("Mul", writer.op("Add", given, writer.number(1.0)), writer.number(0.5))


def token_numbers(writer: GraphWriter) -> str:
    """0, 1, 2, ... for the tokens of the longest row, int32 [tokens]."""
    count = writer.op("Gather", writer.op("Cast", writer.op("Shape", "input_ids"), to=INT32), _scalar(writer, 1))
    return writer.op("Range", _scalar(writer, 0), count, _scalar(writer, 1))


def real_tokens(writer: GraphWriter) -> str:
    """Which tokens are no padding, bool [rows, tokens]."""
    lengths = writer.op("Unsqueeze", "lengths", writer.ints(1))
    return writer.op("Less", writer.op("Unsqueeze", token_numbers(writer), writer.ints(0)), lengths)


def at_token(writer: GraphWriter, hidden: str, number: int) -> str:
    """One token of every row, [rows, width]."""
    return writer.op("Gather", hidden, _scalar(writer, number), axis=1)


def _scalar(writer: GraphWriter, value: int) -> str:
    return writer.weight(np.array(value, np.int32))
