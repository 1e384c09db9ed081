"""Exported encoders: which file is one, what its graph is given, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.errors import Broken, InvalidInput
from twoshift.runtime import load_model
from twoshift.runtime.encoder.exported import text_folder

onnx, tokenizers = (pytest.importorskip(name, reason=f"{name} is not installed") for name in ("onnx", "tokenizers"))
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

WORDS = {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3, "c": 4}
TOKENS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def write_tokenizer(folder: Path, **padding: Any) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A", pair="$A:0 $B:1", special_tokens=[]
    )
    if padding:
        tokenizer.enable_padding(**padding)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_graph(
    file: Path,
    inputs: Sequence[str] = TOKENS,
    output: str = "last_hidden_state",
    axes: Sequence[Any] = ("rows", "tokens"),
    kind: str = "INT64",
    sum_over: int | None = None,
) -> Path:
    """A graph whose states are its inputs themselves, side by side; or their sums over an axis."""
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, parts = [], []
    for name in inputs:
        nodes.append(helper.make_node("Cast", [name], [f"{name}_float"], to=proto.FLOAT))
        nodes.append(helper.make_node("Unsqueeze", [f"{name}_float", "last"], [f"{name}_state"]))
        parts.append(f"{name}_state")
    nodes.append(helper.make_node("Concat", parts, ["states"], axis=-1))
    if sum_over is None:
        nodes.append(helper.make_node("Identity", ["states"], [output]))
    else:
        nodes.append(helper.make_node("ReduceSum", ["states", "over"], [output], keepdims=0))
    given = [helper.make_tensor_value_info(name, getattr(proto, kind), list(axes)) for name in inputs]
    constants = {"last": [-1], "over": [sum_over or 0]}
    weights = [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info(output, proto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(file))
    return file


def run(file: Path, rows: list[Any]) -> dict[str, Any]:
    runtime = load_model(str(file), threads=1)
    return dict(runtime.launch([runtime.prepare(rows)]).wait())


def refused(file: Path, kind: type[Exception] = InvalidInput, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        load_model(str(file), threads=1, **options)
    return str(caught.value)


class TestWhichFileIsOne:
    def test_the_tokenizer_may_lie_beside_the_file_or_above_it(self, tmp_path: Path) -> None:
        file = tmp_path / "onnx" / "model.onnx"
        assert text_folder(file) is None
        write_tokenizer(tmp_path)
        assert text_folder(file) == tmp_path
        write_tokenizer(tmp_path / "onnx")
        assert text_folder(file) == tmp_path / "onnx"
        (tmp_path / "modules.json").write_text("[]")
        assert text_folder(file) == tmp_path

    @pytest.mark.parametrize("inputs", [("x",), ("input_ids", "past_key_values.0"), ("attention_mask",)])
    def test_other_inputs_stay_plain_tensors_even_with_a_tokenizer(
        self, inputs: tuple[str, ...], tmp_path: Path
    ) -> None:
        write_tokenizer(tmp_path)
        file = write_graph(tmp_path / "model.onnx", inputs, output="y")
        columns = run(file, [{name: [1, 2] for name in inputs}])
        assert columns["y"].shape == (1, 2, len(inputs))

    def test_tokens_without_a_tokenizer_stay_plain_tensors(self, tmp_path: Path) -> None:
        columns = run(write_graph(tmp_path / "only" / "model.onnx", ["input_ids"]), [{"input_ids": [5, 7]}])
        assert columns["last_hidden_state"].tolist() == [[[5.0], [7.0]]]


class TestWhatTheGraphIsGiven:
    @pytest.mark.parametrize("kind", ["INT64", "INT32"])
    def test_inputs_go_by_name_and_padding_counts_nothing(self, kind: str, tmp_path: Path) -> None:
        write_tokenizer(tmp_path)
        file = write_graph(tmp_path / "model.onnx", TOKENS[::-1], kind=kind)
        found = run(file, ["a b c", "c", "c c b b a a"])["embedding"]
        # The means of position, type, mask and id over each row's own tokens
        assert found.tolist() == [[1.0, 0.0, 1.0, 3.0], [0.0, 0.0, 1.0, 4.0], [2.5, 0.0, 1.0, 3.0]]

    def test_the_positions_of_roberta_begin_after_the_paddings(self, tmp_path: Path) -> None:
        write_tokenizer(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta", "pad_token_id": 1}))
        assert run(write_graph(tmp_path / "model.onnx", TOKENS), ["a b c"])["embedding"].tolist() == [
            [3.0, 1.0, 0.0, 3.0]
        ]

    def test_rows_are_filled_up_to_a_fixed_length_and_cut_at_it(self, tmp_path: Path) -> None:
        write_tokenizer(tmp_path, pad_id=1)
        file = write_graph(tmp_path / "model.onnx", TOKENS[:2], "sentence_embedding", ("rows", 4), sum_over=1)
        runtime = load_model(str(file), threads=1)
        rows = runtime.prepare(["a", "a b c a b c"])
        assert (runtime.info.max_row_tokens, rows.truncated.tolist()) == (4, [False, True])
        # Without config.json the padding is the tokenizer's: id 1, three times
        assert runtime.launch([rows]).wait()["embedding"].tolist() == [[5.0, 1.0], [11.0, 4.0]]

    def test_pairs_say_which_text_a_token_is_of(self, tmp_path: Path) -> None:
        write_tokenizer(tmp_path)
        file = write_graph(tmp_path / "model.onnx", ["input_ids", "token_type_ids"], "logits", sum_over=1)
        scores = run(file, [("a", "a b"), ("c", "b")])["scores"]
        logits = np.array([[7.0, 2.0], [7.0, 1.0]])
        np.testing.assert_allclose(scores, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), rtol=1e-6)

    def test_the_default_prompt_comes_before_a_text_that_the_graph_pools_itself(self, tmp_path: Path) -> None:
        write_tokenizer(tmp_path)
        prompts = {"prompts": {"query": "b "}, "default_prompt_name": "query"}
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        file = write_graph(tmp_path / "model.onnx", ["input_ids"], "sentence_embedding", sum_over=1)
        assert run(file, ["a"])["embedding"].tolist() == [[5.0]]


class TestWhatIsRefused:
    @pytest.fixture(autouse=True)
    def _tokenizer(self, tmp_path: Path) -> None:
        write_tokenizer(tmp_path)

    def test_a_fixed_number_of_rows(self, tmp_path: Path) -> None:
        assert "dynamic axes" in refused(write_graph(tmp_path / "model.onnx", axes=(1, "tokens")))

    def test_tokens_that_are_no_integers(self, tmp_path: Path) -> None:
        assert "int64 or int32" in refused(write_graph(tmp_path / "model.onnx", kind="FLOAT"))

    def test_lengths_that_differ_between_the_inputs_do_not_load(self, tmp_path: Path) -> None:
        file = write_graph(tmp_path / "model.onnx", axes=("rows", 4))
        model = onnx.load(str(file))
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 8
        onnx.save(model, str(file))
        with pytest.raises((InvalidInput, Broken), match=r"model\.onnx"):
            load_model(str(file), threads=1)

    @pytest.mark.parametrize(("output", "over"), [("logits", None), ("last_hidden_state", 0)])
    def test_an_output_that_is_no_answer_to_a_text(self, output: str, over: int | None, tmp_path: Path) -> None:
        axes = ("rows", "tokens")
        message = refused(write_graph(tmp_path / "model.onnx", ["input_ids"], output, axes, sum_over=over))
        assert "sentence_embedding [rows, width]" in message or "one output row per input row" in message

    def test_labels_that_do_not_match_the_logits(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "no", "1": "yes", "2": "maybe"}}))
        file = write_graph(tmp_path / "model.onnx", TOKENS[:2], "logits", sum_over=1)
        assert "2 labels" in refused(file)

    def test_a_damaged_tokenizer(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"pad_token_id": 0}))
        (tmp_path / "tokenizer.json").write_text('{"half": ')
        assert "fast tokenizer" in refused(write_graph(tmp_path / "model.onnx"), Broken)

    def test_another_precision_and_another_device(self, tmp_path: Path) -> None:
        file = write_graph(tmp_path / "model.onnx")
        assert "precision" in refused(file, precision="int8")
        assert "device" in refused(file, device="tpu")

    def test_rows_that_are_no_texts(self, tmp_path: Path) -> None:
        runtime = load_model(str(write_graph(tmp_path / "model.onnx")), threads=1)
        with pytest.raises(InvalidInput, match=r"row 1.*a text"):
            runtime.prepare(["a", {"input_ids": [1, 2]}])
