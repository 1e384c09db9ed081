"""ONNX graphs over plain tensors: inputs by name, outputs as columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, UnusableModel, first_line
from twoshift.extras import needed
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_files, full_file
from twoshift.runtime.columns import ColumnRows, array_of, bad_row, cast, shape_of
from twoshift.runtime.devices import checked_device, cpu_device, cuda_device, usable_threads
from twoshift.runtime.features import FEATURES
from twoshift.runtime.host_model import HostModel
from twoshift.runtime.load_limit import loading_step
from twoshift.runtime.onnx_file import read_onnx
from twoshift.types import Tensor

__all__ = ["load_onnx", "open_graph"]

_CUDA = "CUDAExecutionProvider"
_MOST_INPUT_BYTES = 4 << 30
_DTYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_, "tensor(string)": np.object_,
}  # fmt: skip


def load_onnx(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> HostModel:
    """A graph in onnxruntime; raises Broken where the file is damaged, InvalidInput where it cannot be served."""
    graph = read_onnx(full_file(path))
    graph.check_precision(precision)
    session, ran_on = open_graph(path, device, usable_threads(threads))
    inputs = tuple(_Input.of(node, path) for node in session.get_inputs())
    outputs = tuple(_output(node, path) for node in session.get_outputs())
    if not inputs:
        raise InvalidInput("model", str(path), "an ONNX graph with at least one input")
    checksum = checksum_of_files(graph.files)
    info = RuntimeInfo(
        model=str(path),
        checksum=checksum,
        runtime="onnxruntime",
        device=ran_on,
        precision=graph.precision,
        max_row_tokens=1,
        outputs=outputs,
        inputs=tuple(each.tensor() for each in inputs),
        example={each.name: each.zeros() for each in inputs},
    )
    return HostModel(info, _Graph(session, inputs, outputs, _fixed_rows(inputs, path)))


@dataclass(frozen=True, slots=True)
class _Input:
    """One of the graph's inputs; the first axis is rows."""

    name: str
    dtype: np.dtype[Any]
    rows: int | None  # None: any number
    shape: tuple[int | None, ...]  # of one row; None: any size

    @classmethod
    def of(cls, node: Any, path: Path) -> _Input:
        """Raises InvalidInput where rows of it cannot be made."""
        if node.type not in _DTYPES:
            raise InvalidInput("model", str(path), f"only tensors as inputs; the input {node.name!r} is a {node.type}")
        if not node.shape:
            raise InvalidInput("model", str(path), f"inputs with the rows on axis 0; input {node.name!r} has no axes")
        sizes = [size if isinstance(size, int) and size > 0 else None for size in node.shape]
        _check_sizes(node, sizes, path)
        return cls(node.name, np.dtype(_DTYPES[node.type]), sizes[0], tuple(sizes[1:]))

    def column(self, values: Sequence[Any]) -> NDArray[Any]:
        """The rows' values as the graph wants them; raises InvalidInput that names the row."""
        try:
            array = cast(array_of(values, self.name), self.dtype, self.name)
        except InvalidInput:
            self._check(values)
            raise
        if self.shape == (1,) and array.ndim == 1:
            return array.reshape(-1, 1)  # one number a row, as converters of tabular models write it
        self._check(values if not self._fits(array.shape[1:]) else ())
        return array

    def tensor(self) -> Tensor:
        dtype = "text" if self.dtype.kind == "O" else self.dtype.name
        return Tensor(self.name, dtype, tuple(-1 if size is None else size for size in self.shape))

    def zeros(self) -> Any:
        shape = tuple(size or 1 for size in self.shape)
        return np.full(shape, "", object).tolist() if self.dtype.kind == "O" else np.zeros(shape, self.dtype)

    def empty(self) -> NDArray[Any]:
        return np.empty((0, *(size or 0 for size in self.shape)), self.dtype)

    def _check(self, values: Sequence[Any]) -> None:
        for number, value in enumerate(values):
            if not self._fits(shape_of(value)):
                expected = [size or "any" for size in self.shape]
                raise bad_row(number, self.name, value, f"values of shape {expected}" if expected else "one value")

    def _fits(self, shape: tuple[int, ...] | None) -> bool:
        return (
            shape is not None
            and len(shape) == len(self.shape)
            and all(want in (None, size) for want, size in zip(self.shape, shape, strict=True))
        )


class _Graph:
    """A session as a column model; a graph with a fixed number of rows is run as often as it takes."""

    def __init__(self, session: Any, inputs: tuple[_Input, ...], outputs: tuple[str, ...], rows: int | None) -> None:
        self._session = session
        self._inputs = inputs
        self._outputs = outputs
        self._rows = rows

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        if not rows:
            return ColumnRows({each.name: each.empty() for each in self._inputs})
        alone = len(self._inputs) == 1
        return ColumnRows({each.name: each.column(_values(rows, each.name, alone)) for each in self._inputs})

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        if self._rows is None:
            return self._run(columns)
        rows = len(columns[self._inputs[0].name])
        calls = [self._padded(columns, start, self._rows) for start in range(0, rows, self._rows)]
        return {name: np.concatenate([call[name] for call in calls])[:rows] for name in self._outputs}

    def _padded(self, columns: dict[str, NDArray[Any]], start: int, size: int) -> Columns:
        """A call over `size` rows from `start`; the last row fills up the last call."""
        pieces = {name: array[start : start + size] for name, array in columns.items()}
        return self._run({name: _filled(piece, size) for name, piece in pieces.items()})

    def _run(self, columns: dict[str, NDArray[Any]]) -> Columns:
        results = self._session.run(list(self._outputs), columns)
        return {name: np.asarray(result) for name, result in zip(self._outputs, results, strict=True)}


def open_graph(path: Path, device: str, threads: int, may_spin: bool = True) -> tuple[Any, str]:
    """A session of onnxruntime's, and the name of what it runs on; raises Broken, InvalidInput."""
    index = int(checked_device(device).partition(":")[2] or 0)
    onnxruntime = needed("onnxruntime", "onnx", str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if not may_spin:  # threads that spin between calls take the cores that the server and the tokenizer need
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # what goes wrong is raised; the log would only repeat it
    providers: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu" and _CUDA in onnxruntime.get_available_providers():
        providers.insert(0, (_CUDA, {"device_id": index}))
    loading_step(f"loading {path} in onnxruntime")
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime's errors have no common parent
        raise Broken(
            f"{path}: onnxruntime {onnxruntime.__version__} cannot load the file: {first_line(error)}"
        ) from error
    on_cuda = session.get_providers()[0] == _CUDA
    if device.startswith("cuda") and not on_cuda:
        raise InvalidInput("device", device, "cpu or auto: onnxruntime has no working CUDA provider on this machine")
    return session, cuda_device(index) if on_cuda else cpu_device(threads)


def _check_sizes(node: Any, sizes: list[int | None], path: Path) -> None:
    """A file may promise any axis; a call's input must fit in memory."""
    dtype = np.dtype(_DTYPES[node.type])
    if math.prod(size or 1 for size in sizes) * dtype.itemsize <= _MOST_INPUT_BYTES:
        return
    axis, size = max(enumerate(size or 1 for size in sizes), key=lambda each: each[1])
    told = f"has the input {node.name!r} with {size:,} numbers on axis {axis}, so the input is larger than"
    how = "export the model with a smaller or dynamic axis"
    raise UnusableModel("model", str(path), f"{told} {_MOST_INPUT_BYTES >> 30} GiB; {how}")


def _output(node: Any, path: Path) -> str:
    if not node.type.startswith("tensor("):
        hint = "; convert with zipmap=False" if "map" in node.type else ""
        raise InvalidInput("model", str(path), f"outputs that are tensors; output {node.name!r} is a {node.type}{hint}")
    if node.shape == []:  # None would mean that the graph does not say
        raise InvalidInput("model", str(path), f"outputs with one row per input row; output {node.name!r} has no axes")
    return node.name


def _fixed_rows(inputs: tuple[_Input, ...], path: Path) -> int | None:
    fixed = {each.rows for each in inputs if each.rows is not None}
    if len(fixed) > 1:
        told = f"has inputs with different fixed numbers of rows on axis 0 ({', '.join(map(str, sorted(fixed)))})"
        raise UnusableModel("model", str(path), f"{told}; export the model with a dynamic first axis")
    return next(iter(fixed), None)


def _values(rows: Sequence[Any], name: str, alone: bool) -> list[Any]:
    """Each row's value of one input; where there is only one, `features` or the bare value will do."""
    values: list[Any] = []
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            known = name if name in row or not alone else FEATURES
            if known not in row:
                raise bad_row(number, name, sorted(map(str, row)), f"{name!r} among the fields of the row")
            values.append(row[known])
        elif alone:
            values.append(row)
        else:
            raise bad_row(number, None, row, f"a dict with the field {name!r}")
    return values


def _filled(piece: NDArray[Any], size: int) -> NDArray[Any]:
    return piece if len(piece) == size else np.concatenate([piece, np.repeat(piece[-1:], size - len(piece), axis=0)])
