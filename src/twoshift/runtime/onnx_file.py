"""What an ONNX file says before it is run: the files it draws on, and what its weights are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, InvalidInput, first_line
from twoshift.extras import needed

__all__ = ["OnnxFile", "read_onnx"]

_PRECISIONS = {"FLOAT16": "fp16", "BFLOAT16": "bf16", "DOUBLE": "fp64", "INT8": "int8", "UINT8": "int8"}


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """The files that hold the weights, their precision, and what the graph is given."""

    files: tuple[Path, ...]
    precision: str
    inputs: tuple[str, ...]  # names, without the weights that older files list among them

    def check_precision(self, asked: str | None) -> None:
        """Refuse a precision other than the file's own: a graph runs as it was written."""
        if asked not in (None, self.precision):
            raise InvalidInput(
                "precision",
                asked,
                f"{self.precision}, the precision of the weights in the file; to change it, convert the file",
            )


def read_onnx(path: Path) -> OnnxFile:
    """Read the graph, not the external weights; raises Broken where it is damaged or reaches out of its folder."""
    onnx = needed("onnx", "onnx", str(path))
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's errors differ between its implementations
        raise Broken(f"{path} is not a complete ONNX model: {first_line(error)}") from error
    if not model.graph.node and not model.graph.output:
        raise Broken(f"{path} is not an ONNX model: the file contains no graph")
    tensors = list(_tensors_of_model(model))
    places = {place for tensor in tensors for place in _places(tensor)}
    held = {tensor.name for tensor in model.graph.initializer}
    return OnnxFile(
        files=(path, *(_inside(path, place) for place in sorted(places))),
        precision=_precision(onnx, tensors, path),
        inputs=tuple(each.name for each in model.graph.input if each.name not in held),
    )


def _inside(path: Path, place: str) -> Path:
    """The external file, which must lie in the model's own folder, links followed."""
    folder, told = path.parent.resolve(), f"{path}: the model keeps weights in {place[:80]!r}"
    try:
        file = (folder / place).resolve()
        if Path(place).is_absolute() or not file.is_relative_to(folder):
            raise Broken(f"{told}, which is outside the folder of the model; export the model again into one folder")
        if not file.is_file():
            raise Broken(f"{told}, which does not exist; export the model again into one folder")
    except (OSError, ValueError) as error:  # a name that no file can have
        raise Broken(f"{told}, which is not the name of a file; export the model again into one folder") from error
    return file


def _places(tensor: Any) -> list[str]:
    return [entry.value for entry in tensor.external_data if entry.key == "location"]


def _tensors_of_model(model: Any) -> Iterator[Any]:
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors_of_graph(graph)


def _precision(onnx: Any, tensors: list[Any], path: Path) -> str:
    """What most of the weights are made of; indices and shapes do not count."""
    kinds = {number: kind for kind, number in onnx.TensorProto.DataType.items()}
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        if len(tensor.dims) < 2:
            continue
        numbers = 1
        for size in tensor.dims:
            numbers *= size
        if tensor.data_type not in kinds:
            raise Broken(
                f"{path} has weights of type {tensor.data_type}, which is not a data type of ONNX; "
                "export the model again"
            )
        sizes[_PRECISIONS.get(kinds[tensor.data_type], "fp32")] += numbers
    return sizes.most_common(1)[0][0] if sizes else "fp32"
