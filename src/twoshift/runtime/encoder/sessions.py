"""The graph in a library that runs it on the CPU: OpenVINO or onnxruntime, whichever is the faster there."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, first_line
from twoshift.extras import needed

__all__ = ["OnnxRuntimeSession", "OpenVinoSession", "Session", "choose_library", "open_session", "version_of"]

Batch = dict[str, NDArray[np.int32]]
_PRECISION = "f32"
# A thread that is pinned stays on its core beside whatever else runs there; and two models would be pinned to the same
_NOT_PINNED = {"ENABLE_CPU_PINNING": False}
_LANES = 2  # one call is answered, and the next one formed, while another runs


class Session(Protocol):
    """A graph that is loaded. One thread owns it."""

    library: str
    streams: int  # batches that run side by side; a call is cut into at least so many
    lanes: int  # calls that may run side by side, each with its part of the streams

    def run(self, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        """The answers to each batch, in order."""
        ...

    def run_beside(self, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        """The same in one of the lanes; as many threads may be in here at a time."""
        ...


def choose_library() -> str:
    """OpenVINO where the CPU has AVX-512, onnxruntime elsewhere; what is installed, where only one is.

    MiniLM in fp32 on two cores: with AVX-512 OpenVINO takes a fifth less CPU time a token; on a machine with AVX2
    alone onnxruntime was ahead, 86 documents a second to 80. One query takes either about as long.
    """
    preferred = ("openvino", "onnxruntime") if _has_avx512() else ("onnxruntime", "openvino")
    installed = [name for name in preferred if importlib.util.find_spec(name) is not None]
    return installed[0] if installed else preferred[0]


def open_session(graph: Path, threads: int, library: str) -> Session:
    """The graph in that library; raises Broken where it does not load."""
    kinds = {"openvino": OpenVinoSession, "onnxruntime": OnnxRuntimeSession}
    if library not in kinds:
        raise InvalidInput("library", library, " or ".join(kinds))
    module = needed(library, "encoder", str(graph))
    try:
        return kinds[library](module, graph, threads)
    except Exception as error:  # the libraries' errors have no common parent
        raise Broken(f"{graph}: {library} {module.__version__} cannot load the file: {first_line(error)}") from error


def version_of(library: str) -> str:
    """The version of an installed library: another one may round in another way."""
    return needed(library, "encoder", library).__version__


class OnnxRuntimeSession:
    """All threads on one batch after the other."""

    library = "onnxruntime"
    streams = lanes = 1

    def __init__(self, onnxruntime: Any, graph: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin between calls take the cores that the server and the tokenizer need
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4  # what goes wrong is raised; the log would only repeat it
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])

    def run(self, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        """The answers to each batch, in order."""
        return [self._session.run(["answer"], batch)[0] for batch in batches]

    run_beside = run


class OpenVinoSession:
    """Several batches side by side, a thread each; a batch that comes alone gets all threads."""

    library = "openvino"

    def __init__(self, openvino: Any, graph: Path, threads: int) -> None:
        core = openvino.Core()
        # It fills a table at its first call: two threads that begin there together wait for each other for ever
        openvino.Type.f32.to_dtype()
        model = core.read_model(str(graph))
        # Without the hint OpenVINO would go down to bf16 by itself where the CPU has it
        common = {"INFERENCE_PRECISION_HINT": _PRECISION, "INFERENCE_NUM_THREADS": threads, **_NOT_PINNED}
        self.streams, self.lanes = threads, min(_LANES, threads)
        self._alone = core.compile_model(model, "CPU", {**common, "NUM_STREAMS": 1}).create_infer_request()
        self._queue = None
        if threads > 1:
            streams = core.compile_model(model, "CPU", {**common, "NUM_STREAMS": threads})
            self._queue = openvino.AsyncInferQueue(streams, threads)
            self._queue.set_callback(_keep)
            self._parts = [_Part(openvino, streams, threads // self.lanes) for _ in range(self.lanes)]

    def run(self, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        """The answers to each batch, in order."""
        if self._queue is None or len(batches) < 2:
            return [self._alone.infer(batch, share_inputs=True)[0].copy() for batch in batches]
        return _run_all(self._queue, batches)

    def run_beside(self, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        """The same in one of the lanes; as many threads may be in here at a time."""
        part = self._parts.pop()
        try:
            return part.run(batches)
        finally:
            self._parts.append(part)


class _Part:
    """Some of the streams."""

    def __init__(self, openvino: Any, model: Any, streams: int) -> None:
        self._one = model.create_infer_request() if streams == 1 else None
        self._many = None if streams == 1 else openvino.AsyncInferQueue(model, streams)
        if self._many is not None:
            self._many.set_callback(_keep)

    def run(self, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        if self._one is not None:
            return [self._one.infer(batch, share_inputs=True)[0].copy() for batch in batches]
        return _run_all(self._many, batches)


def _run_all(queue: Any, batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
    answers: list[Any] = [None] * len(batches)
    for number, batch in enumerate(batches):
        queue.start_async(batch, (answers, number), share_inputs=True)
    queue.wait_all()
    return answers


def _keep(request: Any, place: tuple[list[Any], int]) -> None:
    answers, number = place
    answers[number] = request.get_output_tensor(0).data.copy()  # the tensor is used again by the next batch


def _has_avx512() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return " avx512f" in flags
