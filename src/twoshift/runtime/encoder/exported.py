"""An encoder that somebody exported to ONNX, with its tokenizer in its folder: texts in, the graph run as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.runtime.artifacts import checksum_of_files
from twoshift.runtime.devices import usable_threads
from twoshift.runtime.encoder.answers import encoder_info
from twoshift.runtime.encoder.architecture import Architecture, exported_architecture
from twoshift.runtime.encoder.exported_graph import TOKEN_INPUTS, ExportedGraph
from twoshift.runtime.encoder.fields import Fields
from twoshift.runtime.encoder.folder import ModelFolder, checksum_of_folder, max_tokens
from twoshift.runtime.encoder.onnx_encoder import OnnxEncoder
from twoshift.runtime.encoder.pooling import Pooler, activated
from twoshift.runtime.encoder.prompts import read_prompts
from twoshift.runtime.encoder.sessions import Batch
from twoshift.runtime.encoder.task import (
    ClassificationTask,
    EmbeddingTask,
    RegressionTask,
    RerankingTask,
    Task,
    is_classifier,
    read_classifier,
    read_embedding,
    truncate_dim,
)
from twoshift.runtime.encoder.tokens import TextTokenizer
from twoshift.runtime.onnx_file import OnnxFile, read_onnx
from twoshift.runtime.onnx_model import open_graph

__all__ = ["is_exported_encoder", "load_exported_encoder", "text_folder"]

Floats = NDArray[np.float32]
Finish = Callable[[Floats, Batch], Floats]  # the graph's output and its input -> the task's answer


def text_folder(path: Path) -> Path | None:
    """The folder with the file's tokenizer: its own, or the one above as in `onnx/model.onnx`.

    One that says how to pool comes first: exports leave a copy of the tokenizer beside the file, and not the modules.
    """
    own = path.absolute().parent
    found = [folder for folder in (own, own.parent) if (folder / "tokenizer.json").is_file()]
    return next((folder for folder in found if (folder / "modules.json").is_file()), found[0] if found else None)


def is_exported_encoder(path: Path) -> bool:
    """Whether an .onnx file takes tokens and has its tokenizer with it; anything else runs on plain tensors."""
    if text_folder(path) is None:
        return False
    inputs = set(read_onnx(path).inputs)
    return "input_ids" in inputs and inputs <= set(TOKEN_INPUTS)


def load_exported_encoder(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> OnnxEncoder:
    """The graph in onnxruntime behind its tokenizer; raises InvalidInput, Broken."""
    file = read_onnx(path)
    file.check_precision(precision)
    folder = text_folder(path) or path.parent
    session, ran_on = open_graph(path, device, usable_threads(threads), may_spin=False)
    config = Fields.read_if_there(folder / "config.json")
    architecture = exported_architecture(config, 0 if "pad_token_id" in config else _pad_id(folder))
    graph = ExportedGraph(session, path, architecture)
    task, finish = _task(folder, config, graph)
    described = _described(folder, file, architecture, task, graph)
    info = encoder_info(described, str(path), "onnxruntime", ran_on, file.precision)
    tokenizer = TextTokenizer(described, graph.asks_types)
    return OnnxEncoder(info, described, tokenizer, ExportedSession(graph, finish))


class ExportedSession:
    """A Session: the graph, and in numpy what it leaves to be done."""

    library = "onnxruntime"
    streams = lanes = 1  # all threads on one batch after the other

    def __init__(self, graph: ExportedGraph, finish: Finish) -> None:
        self._graph = graph
        self._finish = finish

    def run(self, batches: Sequence[Batch]) -> list[Floats]:
        """The answers to each batch, in order."""
        return [self._finish(self._graph(batch), batch) for batch in batches]

    run_beside = run


def _described(
    folder: Path, file: OnnxFile, architecture: Architecture, task: Task, graph: ExportedGraph
) -> ModelFolder:
    sentence = Fields.read_if_there(folder / "sentence_bert_config.json")
    most_tokens = max_tokens(folder, architecture, sentence)
    weights_checksum = checksum_of_files(file.files)
    return ModelFolder(
        path=folder,
        architecture=dataclasses.replace(architecture, hidden=graph.width),
        task=task,
        max_tokens=min(most_tokens, graph.tokens or most_tokens),
        do_lower_case=sentence.flag("do_lower_case"),
        weights=file.files,
        weights_checksum=weights_checksum,
        checksum=checksum_of_folder(folder, task, weights_checksum),
        prompts=read_prompts(folder),
    )


def _task(folder: Path, config: Fields, graph: ExportedGraph) -> tuple[Task, Finish]:
    """What the output is, by its name and axes, and what is still to be done with it."""
    if graph.axes == 3 and graph.output != "logits":
        pooled = read_embedding(folder)
        return pooled, Pooler(pooled, graph.width)
    if graph.axes != 2:
        accepted = (
            "an output sentence_embedding [rows, width], last_hidden_state [rows, tokens, width] or "
            "logits [rows, labels]"
        )
        raise InvalidInput(f"{graph.path}: output", f"{graph.output} with {graph.axes} axes", accepted)
    if graph.output == "logits" or (is_classifier(config) and graph.output != "sentence_embedding"):
        labelled = _labelled(folder, config, graph)
        return labelled, partial(_scores, labelled)
    most = truncate_dim(folder)
    return EmbeddingTask(("mean",), truncate_dim=most), partial(_cut, most)


def _labelled(
    folder: Path, config: Fields, graph: ExportedGraph
) -> ClassificationTask | RerankingTask | RegressionTask:
    named = config if config.items() else Fields(config.path, {"num_labels": graph.width})
    task = read_classifier(folder, named)
    labels = len(task.labels) if isinstance(task, ClassificationTask) else 1
    if labels != graph.width:
        raise InvalidInput(f"{config.path}: id2label", labels, f"{graph.width} labels, as many as the graph has logits")
    return task


def _cut(truncate_dim: int | None, given: Floats, _batch: Batch) -> Floats:
    return given[:, :truncate_dim]


def _scores(task: ClassificationTask | RerankingTask | RegressionTask, logits: Floats, _batch: Batch) -> Floats:
    if isinstance(task, RegressionTask):
        return logits
    if isinstance(task, RerankingTask):
        return activated(task.activation, logits)
    if task.multi_label:
        return activated("sigmoid", logits)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))  # the largest is 1: nothing overflows
    return raised / raised.sum(axis=1, keepdims=True)


def _pad_id(folder: Path) -> int:
    """The tokenizer's own padding, for a folder without config.json: some graphs count positions by it."""
    return Fields.read(folder / "tokenizer.json").inner("padding").count("pad_id", 0, 0)
