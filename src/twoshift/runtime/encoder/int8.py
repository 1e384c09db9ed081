"""int8 on the CPU: weights and inputs of the body's products as bytes, with ranges measured on a few texts.

Scales of single inputs move into the weights (SmoothQuant), and the feed-forward's outliers stay in fp32.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twoshift.runtime.encoder.architecture import Architecture
from twoshift.runtime.encoder.cache import GRAPH_FILE, WEIGHTS_FILE
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.graph import has_type_ids, write_graph
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.sample import calibration_rows
from twoshift.runtime.encoder.sessions import open_session
from twoshift.runtime.encoder.task import Task
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat
from twoshift.runtime.encoder.weights import Weights

__all__ = ["INT8_FORMAT", "Int8Product", "Range", "write_int8_graph"]

INT8_FORMAT = 1  # changes with what is below, so that an older cached graph, or its parity, is not used
_MIGRATION = 0.75  # how much of an input's range goes to the weights; from 0.7 to 0.8 MiniLM loses least
_OUTLIERS = 8  # inputs of the feed-forward's second product that stay in fp32: MiniLM has one, four times the rest
_LEAST = 1e-5  # of a range: an input that is always 0 has a scale too
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the largest value of each input of a product."""

    low: Floats
    high: Floats

    @property
    def size(self) -> Floats:
        """The largest absolute value of each input."""
        return np.maximum(np.maximum(-self.low, self.high), np.float32(_LEAST))


def write_int8_graph(folder: ModelFolder, library: str, graph: Path, data: Path) -> None:
    """Write the model in int8, as `write_graph` does in fp32; raises InvalidInput, Broken."""
    write_graph(folder, graph, data, Int8Product(_ranges(folder, library)))


def _ranges(folder: ModelFolder, library: str) -> list[Range]:
    """What every product of the body is given, over the calibration texts."""
    observer = _Observer()
    with tempfile.TemporaryDirectory(prefix="twoshift-") as name:
        graph = Path(name) / GRAPH_FILE
        write_graph(folder, graph, Path(name) / WEIGHTS_FILE, observer, observer.answer)
        session = open_session(graph, 1, library)
        rows = _calibration(folder)
        # Each row alone: padding would count otherwise
        batches = [rows.padded(np.array([row]), folder.architecture.pad_id) for row in range(len(rows))]
        seen = np.concatenate(session.run(batches))
        del session
    return observer.ranges(seen)


def _calibration(folder: ModelFolder) -> TokenRows:
    """The sample's texts, and the same with random words: rare ones have the widest ranges."""
    texts = TextTokenizer(folder, has_type_ids(folder)).rows(calibration_rows(folder.task))
    ids = np.random.default_rng(0).integers(folder.architecture.vocabulary, size=len(texts.ids), dtype=np.int32)
    ends = np.concatenate([texts.offsets[:-1], texts.offsets[1:] - 1])
    ids[ends] = texts.ids[ends]  # what begins and ends a row is no word
    return concat([texts, dataclasses.replace(texts, ids=ids)])


class _Observer:
    """A Product that is exact, and whose graph answers with the ranges in place of the model's answer."""

    def __init__(self) -> None:
        self._widths: list[int] = []
        self._found: list[str] = []

    def __call__(self, writer: GraphWriter, given: str, kernel: Floats, *, outliers: bool) -> str:
        self._widths.append(len(kernel))
        self._found += [writer.op(kind, given, axes=[1], keepdims=0) for kind in ("ReduceMin", "ReduceMax")]
        return writer.op("MatMul", given, writer.weight(kernel))

    def answer(self, writer: GraphWriter, _arch: Architecture, _task: Task, _weights: Weights, _hidden: str) -> str:
        """The ranges of every product, side by side, [rows, twice the widths]."""
        return writer.op("Concat", *self._found, axis=1)

    def ranges(self, seen: Floats) -> list[Range]:
        """The ranges over all rows, a product each."""
        places = np.cumsum([width for width in self._widths for _ in range(2)])[:-1]
        parts = np.split(seen, places, axis=1)
        return [Range(low.min(axis=0), high.max(axis=0)) for low, high in zip(parts[::2], parts[1::2], strict=True)]


class Int8Product:
    """A Product whose weights are int8 by output and whose inputs uint8, both with the ranges that were seen."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges: Iterator[Range] = iter(ranges)

    def __call__(self, writer: GraphWriter, given: str, kernel: Floats, *, outliers: bool) -> str:
        """(given / shares) @ (shares * kernel), and the outliers' part beside it."""
        seen = next(self._ranges)
        apart = _largest(seen) if outliers and len(kernel) > 4 * _OUTLIERS else np.empty(0, np.int64)
        shares = _shares(seen, kernel)
        bulk = (kernel * shares[:, None]).astype(np.float32)
        bulk[apart] = 0  # so that it does not matter how far they are cut
        result = writer.op("MatMul", _bytes(writer, given, seen, shares, apart), _signed(writer, bulk))
        if not len(apart):
            return result
        few = writer.op("Gather", given, writer.weight(apart.astype(np.int32)), axis=2)
        return writer.op("Add", result, writer.op("MatMul", few, writer.weight(kernel[apart])))


def _largest(seen: Range) -> NDArray[np.int64]:
    return np.sort(np.argsort(-seen.size, kind="stable")[:_OUTLIERS])


def _shares(seen: Range, kernel: Floats) -> Floats:
    """By what each input is divided, and its weights multiplied, so that neither has outliers."""
    weight = np.maximum(np.abs(kernel).max(axis=1), np.float32(_LEAST))
    return (seen.size**_MIGRATION / weight ** (1 - _MIGRATION)).astype(np.float32)


def _bytes(writer: GraphWriter, given: str, seen: Range, shares: Floats, apart: NDArray[np.int64]) -> str:
    """The inputs through uint8 and back; 0 stays 0."""
    low = min(0.0, float(np.delete(seen.low / shares, apart).min()))
    high = max(_LEAST, float(np.delete(seen.high / shares, apart).max()))
    step = (high - low) / 255
    scale, zero = writer.number(step), writer.weight(np.array(round(-low / step), np.uint8))
    divided = writer.op("Mul", given, writer.weight(np.float32(1) / shares))
    return writer.op("DequantizeLinear", writer.op("QuantizeLinear", divided, scale, zero), scale, zero)


def _signed(writer: GraphWriter, kernel: Floats) -> str:
    """The weights as int8 with a scale for each output."""
    step = np.maximum(np.abs(kernel).max(axis=0), np.float32(_LEAST)) / np.float32(127)
    rounded = np.clip(np.rint(kernel / step), -127, 127).astype(np.int8)
    return writer.op("DequantizeLinear", writer.weight(rounded), writer.weight(step), axis=1)
