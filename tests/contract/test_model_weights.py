"""Every weight of a model comes from its file: what is missing, unknown or of another shape is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import CLASSIFIER, TEXTS, answers, assert_same, make_folder, sentence_transformers, torch

from twoshift.errors import UnusableModel
from twoshift.ports import Runtime
from twoshift.runtime.encoder.cuda import encoder as cuda_encoder
from twoshift.runtime.encoder.folder import read_folder
from twoshift.runtime.encoder.generic import load_generic_encoder
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
safetensors_torch = pytest.importorskip("safetensors.torch")


def by_graph(folder: Path, home: Path) -> Runtime:
    return load_onnx_encoder(read_folder(folder), str(folder), 1, "onnxruntime", home)


def by_transformers(folder: Path, home: Path) -> Runtime:
    return load_generic_encoder(read_folder(folder), str(folder), 1)


def packed(folder: Path, home: Path) -> Runtime:
    """As on a GPU, up to where the device is asked for its name."""
    loaded = cuda_encoder.load_packed_encoder(read_folder(folder), str(folder), torch.device("cpu"))
    assert loaded is not None
    return loaded


LOADERS = [by_graph, by_transformers, packed]
Load = Callable[[Path, Path], Runtime]


def set_config(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def set_tensors(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    tensors = safetensors_torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors_torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_the_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "bert")
    set_config(folder, model_type="distilbert", dim=32, n_layers=3, n_heads=4, hidden_dim=64)
    with pytest.raises(UnusableModel, match=r"48 weights missing \(transformer\.layer\.0\.attention\.k_lin\.bias, .*"):
        by_transformers(folder, tmp_path)


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("name", ["encoder.layer.1.output.dense.weight", "encoder.layer.2.output.LayerNorm.bias"])
def test_a_missing_weight_is_refused_by_name(load: Load, name: str, tmp_path: Path) -> None:
    folder = set_tensors(make_folder(tmp_path / "model", "bert"), lambda tensors: tensors.pop(name))
    with pytest.raises(UnusableModel, match=name.replace(".", r"\.")):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", LOADERS)
def test_missing_weights_are_counted_and_the_first_few_named(load: Load, tmp_path: Path) -> None:
    folder = set_config(make_folder(tmp_path / "model", "bert"), num_hidden_layers=5)  # it has 3
    with pytest.raises(UnusableModel, match=r": 32 weights missing \(encoder\.layer\.3\.attention\..*, \.\.\.\)"):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", [by_graph, packed])
def test_a_config_with_far_more_layers_than_the_file_is_refused_early(load: Load, tmp_path: Path) -> None:
    folder = set_config(make_folder(tmp_path / "model", "bert"), num_hidden_layers=1000)
    with pytest.raises(UnusableModel, match=r": at least \d+ weights missing \(encoder\.layer\."):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", LOADERS)
def test_layers_that_the_config_does_not_have_are_refused_by_name(load: Load, tmp_path: Path) -> None:
    folder = set_config(make_folder(tmp_path / "model", "bert"), num_hidden_layers=2)
    with pytest.raises(UnusableModel, match=r"16 weights unknown to the network \(encoder\.layer\.2\.attention"):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_weight_that_is_not_finite_is_refused_by_name(load: Load, value: float, tmp_path: Path) -> None:
    name = "encoder.layer.1.output.dense.weight"
    made = make_folder(tmp_path / "model", "bert")
    folder = set_tensors(made, lambda tensors: tensors[name].view(-1)[5:6].fill_(value))
    with pytest.raises(UnusableModel, match=rf"has weights that are not finite \({name}\)"):
        load(folder, tmp_path)


@pytest.mark.parametrize("load", LOADERS)
def test_a_weight_of_another_shape_is_refused_by_name(load: Load, tmp_path: Path) -> None:
    folder = set_config(make_folder(tmp_path / "model", "bert"), intermediate_size=48)
    with pytest.raises(UnusableModel, match=r"encoder\.layer\.0\.intermediate\.dense\.\w+ \[64.*\] instead of \[48"):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", LOADERS)
def test_a_layer_beside_the_network_is_refused_by_name(load: Load, tmp_path: Path) -> None:
    """ColBERT's projection, for one: without it the vectors are others."""
    folder = set_tensors(
        make_folder(tmp_path / "model", "bert"), lambda tensors: tensors.update({"linear.weight": torch.ones(8, 32)})
    )
    with pytest.raises(UnusableModel, match=r"1 weight unknown to the network \(linear\.weight\)"):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", [by_graph, by_transformers])
def test_a_missing_head_is_refused(load: Load, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "bert", CLASSIFIER, num_labels=3)
    set_tensors(folder, lambda tensors: tensors.pop("classifier.weight"))
    with pytest.raises(UnusableModel, match=r"classifier\.weight"):
        load(folder, tmp_path / "home")


@pytest.mark.parametrize("load", [by_graph, by_transformers])
@pytest.mark.parametrize("style", ["bert", "roberta", "mpnet", "modernbert"])
def test_the_head_of_the_training_task_may_stay_unread(load: Load, style: str, tmp_path: Path) -> None:
    """A masked language model's file has such a head, and no pooler."""
    folder = make_folder(tmp_path / "model", style, "AutoModelForMaskedLM")
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert_same(answers(load(folder, tmp_path / "home"), TEXTS, "embedding"), theirs)


@pytest.mark.parametrize("load", [by_graph, by_transformers])
def test_buffers_of_older_versions_may_stay_unread(load: Load, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "bert")
    theirs = answers(load(folder, tmp_path / "home"), TEXTS, "embedding")
    ids = torch.arange(64)[None]
    set_tensors(folder, lambda tensors: tensors.update({"embeddings.position_ids": ids}))
    np.testing.assert_array_equal(answers(load(folder, tmp_path / "home"), TEXTS, "embedding"), theirs)


@pytest.mark.parametrize("load", [by_graph, by_transformers])
def test_biases_of_modernbert_are_those_of_its_config(load: Load, tmp_path: Path) -> None:
    flags = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
    folder = make_folder(tmp_path / "model", "modernbert", **flags)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert_same(answers(load(folder, tmp_path / "home"), TEXTS, "embedding"), theirs)
    with pytest.raises(UnusableModel, match=r"unknown to the network \(layers\.0\.mlp\.Wi\.bias"):
        load(set_config(folder, mlp_bias=False), tmp_path / "home")
