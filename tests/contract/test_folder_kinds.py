"""Folders are what their files say they are: answered as the reference does, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TEXTS, answers, assert_same, make_folder, sentence_transformers, st_modules, torch

from twoshift.errors import UnusableModel
from twoshift.ports import Runtime
from twoshift.runtime.encoder.folder import read_folder
from twoshift.runtime.encoder.generic import load_generic_encoder
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
Load = Callable[[Path, Path], Runtime]


def by_graph(folder: Path, home: Path) -> Runtime:
    return load_onnx_encoder(read_folder(folder), str(folder), 1, "onnxruntime", home)


def by_transformers(folder: Path, home: Path) -> Runtime:
    return load_generic_encoder(read_folder(folder), str(folder), 1)


@pytest.mark.parametrize("load", [by_graph, by_transformers])
def test_the_modules_of_sentence_transformers_run_in_their_order(load: Load, tmp_path: Path) -> None:
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")))
    gelu = st_modules.Dense(32, 24, bias=False, activation_function=torch.nn.GELU())
    norm = st_modules.LayerNorm(24)
    torch.nn.init.normal_(norm.norm.weight)
    torch.nn.init.normal_(norm.norm.bias)
    last = st_modules.Dense(24, 16, activation_function=torch.nn.Sigmoid())
    steps = [gelu, norm, st_modules.Dropout(0.5), st_modules.Normalize(), last]
    modules = [body, st_modules.Pooling(32, "mean"), *steps]
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", truncate_dim=6)
    theirs.save(str(tmp_path / "model"))
    ours = answers(load(tmp_path / "model", tmp_path / "home"), TEXTS, "embedding")
    assert ours.shape == (len(TEXTS), 6)
    assert_same(ours, theirs.encode(TEXTS))


@pytest.mark.parametrize("load", [by_graph, by_transformers])
@pytest.mark.parametrize("dim", [8, 32, 99])
def test_truncate_dim_keeps_the_first_numbers(load: Load, dim: int, tmp_path: Path) -> None:
    """Of vectors that were normed before, as Matryoshka models are saved."""
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")))
    modules = [body, st_modules.Pooling(32, "cls"), st_modules.Normalize()]
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", truncate_dim=dim)
    theirs.save(str(tmp_path / "model"))
    ours = answers(load(tmp_path / "model", tmp_path / "home"), TEXTS, "embedding")
    assert ours.shape[1] == min(dim, 32)
    assert_same(ours, np.asarray(theirs.encode(TEXTS)))


def test_a_module_that_does_not_run_here_is_refused_by_name(tmp_path: Path) -> None:
    body = st_modules.Transformer(str(make_folder(tmp_path / "body", "bert")))
    modules = [body, st_modules.CNN(32, 16), st_modules.Pooling(48, "mean")]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    with pytest.raises(UnusableModel, match="modules Transformer, CNN, Pooling"):
        read_folder(tmp_path / "model")
