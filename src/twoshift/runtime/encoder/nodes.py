"""An ONNX graph as it grows: nodes that name their outputs, and weights that go to a file beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from twoshift.extras import needed

__all__ = ["MICROSOFT", "GraphWriter", "Product"]

MICROSOFT = "com.microsoft"  # onnxruntime's fused operators; OpenVINO reads those that are used here too
_OPSETS = (("", 17), (MICROSOFT, 1))
_IR_VERSION = 8
_INLINE_BYTES = 4096  # shapes and constants, which optimizers look into, stay in the graph
_ALIGNMENT_BYTES = 4096  # so that the file can be mapped


class Product(Protocol):
    """How given @ kernel is written, where it is not in full precision; `outliers`: some inputs may be very large."""

    def __call__(self, writer: GraphWriter, given: str, kernel: NDArray[np.float32], *, outliers: bool) -> str: ...


class GraphWriter:
    """Collects nodes; large weights are written to `data` at once, so that memory stays at one tensor."""

    def __init__(self, data: BinaryIO, product: Product | None = None, fused: bool = True) -> None:
        self._onnx = needed("onnx", "encoder", "a graph for the CPU")
        self.is_fused = fused and product is None  # whether operators that hold products in themselves may be used
        self._product = product
        self._data = data
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and give its name."""
        return self.ops(kind, 1, *inputs, domain=domain, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node with `count` outputs and give their names."""
        names = [f"{kind}_{len(self._nodes)}_{number}" for number in range(count)]
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names

    @property
    def is_exact(self) -> bool:
        """Whether products are plain."""
        return self._product is None

    def product(self, given: str, kernel: NDArray[np.float32], *, outliers: bool = False) -> str:
        """given @ kernel, [inputs, outputs], in the network's body: what a lower precision writes in its own way."""
        if self._product is None:
            return self.op("MatMul", given, self.weight(kernel))
        return self._product(self, given, kernel, outliers=outliers)

    def weight(self, array: NDArray[Any]) -> str:
        """Add a constant and give its name."""
        array = np.asarray(array, order="C")  # ascontiguousarray would give a scalar an axis
        name = f"weight_{len(self._weights)}"
        inline = array.nbytes <= _INLINE_BYTES
        add: Callable[[str, NDArray[Any]], Any] = self._inline if inline else self._external
        self._weights.append(add(name, array))
        return name

    def ints(self, *values: int) -> str:
        """Add a list of int64, such as a shape or axes."""
        return self.weight(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add an fp32 scalar."""
        return self.weight(np.array(value, np.float32))

    def write(self, path: Path, inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, str, int]]) -> None:
        """Write the graph. Inputs are int32 (name, axes); outputs fp32 (name, node's output, axes)."""
        helper, proto = self._onnx.helper, self._onnx.TensorProto
        _sync(self._data)
        for name, source, _ in outputs:
            self._nodes.append(helper.make_node("Identity", [source], [name]))
        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [helper.make_tensor_value_info(name, proto.INT32, _axes(name, count)) for name, count in inputs],
            [helper.make_tensor_value_info(name, proto.FLOAT, _axes(name, count)) for name, _, count in outputs],
            self._weights,
        )
        opsets = [helper.make_opsetid(*opset) for opset in _OPSETS]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="twoshift")
        with path.open("wb") as file:
            file.write(model.SerializeToString())
            _sync(file)

    def _inline(self, name: str, array: NDArray[Any]) -> Any:
        return self._onnx.numpy_helper.from_array(array, name)

    def _external(self, name: str, array: NDArray[Any]) -> Any:
        offset = -(-self._data.tell() // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self._data.seek(offset)
        self._data.write(array.data)
        proto = self._onnx.TensorProto
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = proto(name=name, dims=array.shape, data_type=kind, data_location=proto.EXTERNAL)
        for key, value in (("location", Path(self._data.name).name), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


def _axes(name: str, count: int) -> list[str]:
    return ["rows", *(f"{name}_{number}" for number in range(1, count))] if count else []


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
