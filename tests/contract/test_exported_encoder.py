"""An exported .onnx with its tokenizer answers as sentence-transformers and transformers do with the folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import (
    CLASSIFIER,
    PAIRS,
    TEXTS,
    answers,
    assert_same,
    make_folder,
    onnx,
    sentence_transformers,
    st_modules,
    transformers,
)

from twoshift.ports import Runtime
from twoshift.runtime import load_model
from twoshift.runtime.encoder import graph, heads, onnx_encoder
from twoshift.runtime.encoder.folder import read_folder
from twoshift.runtime.encoder.nodes import GraphWriter
from twoshift.runtime.encoder.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
pytest.importorskip("onnxruntime", reason="the onnx extra is not installed")


def export(folder: Path, place: str, output: str) -> Path:
    """The folder's network as a file with the inputs and the one output that exporters write."""
    model, file = read_folder(folder), folder / place
    arch, typed = model.architecture, model.architecture.types > 1
    file.parent.mkdir(exist_ok=True)
    with (
        file.with_suffix(".weights").open("wb") as data,
        Weights.open(model.weights, "embeddings.word_embeddings.weight") as weights,
    ):
        writer = GraphWriter(data)
        hidden = graph._body(writer, arch, weights, typed)
        match output:
            case "last_hidden_state":
                source = hidden
            case "sentence_embedding":
                source = heads.answer(writer, arch, model.task, weights, hidden)
            case _:
                source = heads._logits(writer, arch, weights, hidden, labels_of(model.task))
        inputs = [("input_ids", 2), ("lengths", 1), *([("type_ids", 2)] if typed else [])]
        writer.write(file, inputs, [(output, source, 3 if output == "last_hidden_state" else 2)])
    take_masks(file, typed)
    return file


def labels_of(task: Any) -> int:
    return len(getattr(task, "labels", "1"))


def take_masks(file: Path, typed: bool) -> None:
    """Give the graph the inputs of transformers, in int64: a mask in place of lengths."""
    model, helper, proto = onnx.load(str(file), load_external_data=False), onnx.helper, onnx.TensorProto
    for node in model.graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = "ids" if name == "input_ids" else name
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=proto.INT32),
        helper.make_node("ReduceSum", ["attention_mask", "second_axis"], ["counts"], keepdims=0),
        helper.make_node("Cast", ["counts"], ["lengths"], to=proto.INT32),
    ]
    names = ["input_ids", "attention_mask"]
    if typed:
        nodes.append(helper.make_node("Cast", ["token_type_ids"], ["type_ids"], to=proto.INT32))
        names.append("token_type_ids")
    nodes += model.graph.node
    inputs = [helper.make_tensor_value_info(name, proto.INT64, ["batch", "sequence"]) for name in names]
    for field, values in ((model.graph.node, nodes), (model.graph.input, inputs)):
        del field[:]
        field.extend(values)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "second_axis"))
    onnx.save(model, str(file))


def load(file: Path) -> Runtime:
    return load_model(str(file), threads=1)


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
@pytest.mark.parametrize("style", ["bert", "roberta", "mpnet"])
def test_hidden_states_are_mean_pooled_where_nothing_says_how(
    style: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "model", style)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, batch_size=5)
    runtime = load(export(folder, place, "last_hidden_state"))
    assert (runtime.info.runtime, runtime.info.max_row_tokens) == ("onnxruntime", 64)
    assert_same(answers(runtime, TEXTS, "embedding"), theirs)
    monkeypatch.setattr(onnx_encoder, "_MAX_WASTE", 1.0)  # now all rows are padded to the longest
    assert_same(answers(runtime, TEXTS, "embedding"), theirs)


@pytest.fixture
def sentence_model(tmp_path: Path) -> Any:
    """A saved sentence-transformers model with all that may come after the network."""
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")), max_seq_length=20)
    pool = st_modules.Pooling(32, ("cls", "max"))
    modules = [body, pool, st_modules.Dense(64, 12), st_modules.Normalize()]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "model"))
    return model


@pytest.mark.parametrize("output", ["last_hidden_state", "sentence_embedding"])
def test_what_the_folder_says_is_done_once_with_what_the_graph_leaves(
    output: str, sentence_model: Any, tmp_path: Path
) -> None:
    file = export(tmp_path / "model", "onnx/model.onnx", output)
    shutil.copy(tmp_path / "model" / "tokenizer.json", file.parent)  # as exporters do; the modules stay above
    runtime = load(file)
    assert runtime.info.max_row_tokens == 20
    assert_same(answers(runtime, TEXTS, "embedding"), sentence_model.encode(TEXTS))


@pytest.mark.parametrize("style", ["bert", "roberta"])
def test_one_logit_scores_pairs_as_a_cross_encoder_does(style: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", style, CLASSIFIER, num_labels=1)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    ours = answers(load(export(folder, "model.onnx", "logits")), PAIRS, "score")
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert ours.std() > 0.01


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_logits_give_labels_and_scores_as_transformers_does(problem: str, tmp_path: Path) -> None:
    names = {0: "no", 1: "maybe", 2: "yes"}
    folder = make_folder(tmp_path / "model", "bert", CLASSIFIER, num_labels=3, id2label=names, problem_type=problem)
    classify = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)
    theirs = classify(TEXTS, truncation=True, max_length=64)
    runtime = load(export(folder, "onnx/model.onnx", "logits"))
    columns = runtime.launch([runtime.prepare(TEXTS)]).wait()
    assert columns["label"].tolist() == [found[0]["label"] for found in theirs]
    for number, name in names.items():
        expected = [next(each["score"] for each in found if each["label"] == name) for found in theirs]
        np.testing.assert_allclose(columns["scores"][:, number], expected, atol=2e-5)
