"""A stream of the device: calls go in, one after the other, and answers come back into pinned memory.

A call of less than some 20,000 tokens is bound by its launches, not by its work, so it is replayed as a CUDA graph that
was recorded for its size class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twoshift.ports import Columns
from twoshift.runtime.encoder.answers import columns_of
from twoshift.runtime.encoder.cuda.shapes import CallShape, Model, coarse_class, coarse_classes, fine_class
from twoshift.runtime.encoder.task import Task
from twoshift.runtime.encoder.tokens import TokenRows
from twoshift.runtime.failures import device_failures

__all__ = ["CallLane", "OnDevice"]

_MOST_FINE = 64  # graphs of sizes that come again


@dataclass(slots=True)
class _Graph:
    """A recorded call from its buffer on the device to its answer there."""

    graph: torch.cuda.CUDAGraph
    given: Tensor
    answer: Tensor


@dataclass(slots=True)
class _WholeGraph:
    """A recorded call from host memory to host memory: one launch, for one call at a time."""

    graph: torch.cuda.CUDAGraph
    host: NDArray[np.int32]
    answer: Tensor
    done: torch.cuda.Event
    busy: bool = False


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A call that was launched."""

    task: Task
    rows: int
    answer: Tensor  # pinned; whole once `done`
    done: torch.cuda.Event
    given: Tensor | None = None  # pinned; must outlive its copy
    graph: _WholeGraph | None = None  # whose buffers it uses

    def wait(self) -> Columns:
        """Sleep until the answer is in host memory; polling would keep the interpreter from everybody else."""
        with device_failures():
            self.done.synchronize()
        answer = self.answer.numpy()[: self.rows].copy()
        if self.graph is not None:
            self.graph.busy = False
        return columns_of(self.task, answer)


class CallLane:
    """One thread launches into it. A live lane overtakes others and has the least to do for a call."""

    def __init__(self, model: Model, task: Task, typed: bool, device: torch.device, live: bool) -> None:
        self._model, self._task, self._typed, self._device = model, task, typed, device
        priority = -5 if live else 0  # PyTorch takes the nearest that the device has
        self._stream = torch.cuda.Stream(device, priority=priority)
        # Inputs travel beside the calls: the next call's are on the device before the current one ends
        self._inputs = torch.cuda.Stream(device, priority=priority)
        self._live = live
        self._pool = torch.cuda.graph_pool_handle()
        self._longest = 0  # of the rows that graphs were recorded for; 0: none were
        self._whole: dict[CallShape, _WholeGraph] = {}
        self._graphs: dict[CallShape, _Graph] = {}
        self._fine: dict[CallShape, _Graph | None] = {}  # by last use; None: seen once

    def launch(self, parts: Sequence[TokenRows]) -> OnDevice:
        """Begin a call; returns before it is done."""
        lengths = [part.lengths for part in parts]
        tokens, rows = sum(int(each.sum()) for each in lengths), sum(map(len, lengths))
        exact = CallShape(tokens, rows, max(int(each.max(initial=1)) for each in lengths), self._typed)
        shape = coarse_class(exact, self._longest)
        whole = self._whole.get(shape)
        if whole is not None and not whole.busy:
            return self._launch_whole(whole, shape, parts, rows)
        with torch.inference_mode(), torch.cuda.device(self._device):
            shape, graph = self._graph_of(exact, shape)
            host = torch.empty(shape.words, dtype=torch.int32, pin_memory=True)
            shape.fill(host.numpy(), parts)
            given = self._sent(host)
            with torch.cuda.stream(self._stream):
                answer = shape.run(self._model, given) if graph is None else _replayed(graph, given)
                result = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True)
                result.copy_(answer, non_blocking=True)
                done = torch.cuda.Event(blocking=True)
                done.record()
        return OnDevice(self._task, rows, result, done, host)

    def record(self, longest: int) -> None:
        """Record the graphs of small calls of rows of at most so many tokens."""
        self._longest = longest
        with torch.inference_mode(), torch.cuda.device(self._device):
            for shape in coarse_classes(longest, self._typed):
                if self._live:
                    self._whole[shape] = self._recorded_whole(shape)
                else:
                    self._graphs[shape] = self._recorded(shape)

    def close(self) -> None:
        """Let the graphs go once nothing runs."""
        self._stream.synchronize()
        for graphs in (self._whole, self._graphs, self._fine):
            graphs.clear()

    def _launch_whole(self, whole: _WholeGraph, shape: CallShape, parts: Sequence[TokenRows], rows: int) -> OnDevice:
        whole.busy = True
        shape.fill(whole.host, parts)
        with torch.cuda.stream(self._stream):
            whole.graph.replay()
            whole.done.record()
        return OnDevice(self._task, rows, whole.answer, whole.done, graph=whole)

    def _graph_of(self, exact: CallShape, coarse: CallShape) -> tuple[CallShape, _Graph | None]:
        """The class of a call and its graph; the call as it is where there is none."""
        if not self._live and self._longest:
            # Background calls are as large as a budget allows, so their sizes come again
            fine = fine_class(exact, self._longest)
            graph = self._fine_graph(fine) if fine else None
            if fine and graph:
                return fine, graph
        graph = self._graphs.get(coarse)
        return (coarse, graph) if graph else (exact, None)

    def _fine_graph(self, shape: CallShape) -> _Graph | None:
        """The graph of a size that came before; recorded the second time."""
        graph = None
        if shape in self._fine:
            graph = self._fine.pop(shape) or self._recorded(shape)
        self._fine[shape] = graph
        if len(self._fine) > _MOST_FINE:
            del self._fine[next(iter(self._fine))]
        return graph

    def _sent(self, host: Tensor) -> Tensor:
        with torch.cuda.stream(self._inputs):
            given = host.to(self._device, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        self._stream.wait_event(arrived)
        given.record_stream(self._stream)
        return given

    def _recorded(self, shape: CallShape) -> _Graph:
        given = self._tried(shape)
        graph = torch.cuda.CUDAGraph()
        with self._recording(graph):
            answer = shape.run(self._model, given)
        return _Graph(graph, given, answer)

    def _recorded_whole(self, shape: CallShape) -> _WholeGraph:
        given = self._tried(shape)
        host = torch.zeros(shape.words, dtype=torch.int32, pin_memory=True)
        width = shape.run(self._model, given).shape[1]
        result = torch.empty(shape.rows, width, pin_memory=True)
        graph = torch.cuda.CUDAGraph()
        with self._recording(graph):
            given.copy_(host, non_blocking=True)
            result.copy_(shape.run(self._model, given), non_blocking=True)
        return _WholeGraph(graph, host.numpy(), result, torch.cuda.Event(blocking=True))

    def _recording(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        # On the lane's own stream: graphs of two lanes that were recorded on one stream share its workspace
        return torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")

    def _tried(self, shape: CallShape) -> Tensor:
        """A buffer with one token in each row, that the model has run over once: libraries set themselves up."""
        with torch.cuda.stream(self._stream):
            given = torch.zeros(shape.words, dtype=torch.int32, device=self._device)
            given[shape.tokens : shape.tokens + shape.rows + 1] = torch.arange(shape.rows + 1, device=self._device)
            shape.run(self._model, given)
        self._stream.synchronize()
        return given


def _replayed(graph: _Graph, given: Tensor) -> Tensor:
    graph.given.copy_(given)
    graph.graph.replay()
    return graph.answer
