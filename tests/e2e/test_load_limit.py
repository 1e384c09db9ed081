"""A model that never finishes loading ends the program with a message that says where it hangs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import PROGRAM

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytestmark = pytest.mark.slow
FOREVER = 2**62


def graph_that_never_ends(path: Path, name: str, kind: int, axes: list[str]) -> Path:
    """A Loop whose condition stays true, around its input."""
    helper = onnx.helper
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["more"], ["again"]), helper.make_node("Sqrt", ["held"], ["next"])],
        "body",
        [
            value("turn", onnx.TensorProto.INT64, []),
            value("more", onnx.TensorProto.BOOL, []),
            value("held", onnx.TensorProto.FLOAT, None),
        ],
        [value("again", onnx.TensorProto.BOOL, []), value("next", onnx.TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Cast", [name], ["given"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Loop", ["turns", "go", "given"], ["last_hidden_state"], body=body),
    ]
    held = [
        onnx.numpy_helper.from_array(np.array(FOREVER), "turns"),
        onnx.numpy_helper.from_array(np.array(True), "go"),
    ]
    graph = helper.make_graph(
        nodes, "forever", [value(name, kind, axes)], [value("last_hidden_state", onnx.TensorProto.FLOAT, axes)], held
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(path))
    return path


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=240, check=False, **more)


def test_a_graph_that_never_ends_ends_embed_with_the_step_that_hangs(tmp_path: Path) -> None:
    path = graph_that_never_ends(tmp_path / "model.onnx", "input_ids", onnx.TensorProto.INT64, ["rows", "tokens"])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))  # noqa: S106
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ended = run("embed", str(path), "--load-timeout", "2s", input="a\n")
    assert ended.returncode == 1
    told = f"twoshift: {path} was not loaded within 2 s (last reported step: the first call of {path}); set a"
    assert told in ended.stderr


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_a_graph_that_never_ends_ends_a_server_that_loads_it(tmp_path: Path, replicas: str) -> None:
    path = graph_that_never_ends(tmp_path / "model.onnx", "x", onnx.TensorProto.FLOAT, ["rows", "width"])
    ended = run("serve", str(path), "--load-timeout", "2s", "--port", "0", "--replicas", replicas)
    assert ended.returncode != 0
    assert f"{path} was not loaded within 2 s (last reported step: the first call of the model)" in ended.stderr


def tokenizer_that_never_ends(folder: Path) -> Path:
    """Its regular expressions each take long over any text, but not so long that their library gives up."""
    from safetensors.numpy import save_file

    slow = tokenizers.normalizers.Replace(tokenizers.Regex(r".{0,30}.{0,30}.{0,30}.{0,30}\b\B"), "")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))  # noqa: S106
    made.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend("a" * 60), *[slow] * 20_000])
    made.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": np.ones((1, 4), np.float32)}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    return folder / "tokenizer.json"


@pytest.mark.parametrize("verb", ["embed", "run"])
def test_a_tokenizer_that_never_ends_ends_what_loads_it(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "model"
    path.mkdir()
    tokenizer = tokenizer_that_never_ends(path)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    job = ["run", str(tmp_path / "in.jsonl"), "--text", "text", "--model", str(path), "-o", str(tmp_path / "out")]
    words = ["embed", str(path)] if verb == "embed" else job
    ended = run(*words, "--load-timeout", "2s", input="a\n")
    assert ended.returncode == 1, ended.stderr
    assert f"{path} was not loaded within " in ended.stderr
    assert f"(last reported step: testing {tokenizer}); set a longer --load-timeout" in ended.stderr
    assert verb == "embed" or "workers died before the first shard" in ended.stderr
