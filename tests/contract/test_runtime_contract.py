"""One suite for every Runtime adapter. To join: add a `Case` to CASES."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.errors import InvalidInput
from twoshift.ports import Columns, Runtime
from twoshift.runtime import load_model

ROWS = 24


@dataclass(frozen=True)
class Case:
    """A small real model, rows for it, and one that it must refuse."""

    name: str
    needs: tuple[str, ...]
    make: Callable[[Path], str]  # saves a model in the folder, and gives its name
    rows: Callable[[], list[Any]]
    bad_row: Any
    tolerance: float = 0.0  # how far a row's answer may move with what rides with it
    options: dict[str, Any] = field(default_factory=dict)


def package(name: str) -> Any:
    """An optional package; its absence skips the test."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def _random() -> np.random.Generator:
    return np.random.default_rng(7)


def _named_rows() -> list[Any]:
    return [{"a": float(a), "b": float(b), "c": float(c)} for a, b, c in _random().random((ROWS, 3))]


def _listed_rows() -> list[Any]:
    return [{"features": row.tolist()} for row in _random().random((ROWS, 3))]


def _train() -> tuple[np.ndarray, np.ndarray]:
    features = _random().random((60, 3))
    return features, (features[:, 0] > 0.5).astype(int)


def _make_python(folder: Path) -> str:
    (folder / "linear.py").write_text(
        "class Linear:\n"
        "    outputs = ('score', 'large')\n"
        "    def load(self):\n"
        "        self.weight = 3.0\n"
        "    def predict(self, batch):\n"
        "        score = batch['a'] * self.weight + batch['b']\n"
        "        return {'score': score, 'large': score > 1}\n"
    )
    return f"{folder}/linear.py:Linear"


def _make_python_tokens(folder: Path) -> str:
    (folder / "words.py").write_text(
        "import numpy as np\n"
        "class Words:\n"
        "    max_row_tokens = 50\n"
        "    def load(self): ...\n"
        "    def prepare(self, rows):\n"
        "        return {'text': np.array([row['text'].lower() for row in rows], object)}\n"
        "    def tokens(self, batch):\n"
        "        return [max(1, len(text.split())) for text in batch['text']]\n"
        "    def predict(self, batch):\n"
        "        return {'letters': np.array([len(text) for text in batch['text']])}\n"
    )
    return f"{folder}/words.py:Words"


def _make_skops(folder: Path) -> str:
    scaler = package("sklearn.preprocessing").StandardScaler()
    model = package("sklearn.pipeline").make_pipeline(scaler, package("sklearn.linear_model").LogisticRegression())
    package("skops.io").dump(model.fit(*_train()), folder / "pipeline.skops")
    return f"{folder}/pipeline.skops"


def _make_sklearn_frame(folder: Path) -> str:
    features, target = _train()
    frame = package("pandas").DataFrame({name: features[:, number] for number, name in enumerate("abc")})
    model = package("sklearn.linear_model").LinearRegression().fit(frame, target)
    package("skops.io").dump(model, folder / "frame.skops")
    return f"{folder}/frame.skops"


def _make_joblib(folder: Path) -> str:
    model = package("sklearn.ensemble").RandomForestClassifier(3, random_state=0).fit(*_train())
    package("joblib").dump(model, folder / "forest.joblib")
    return f"{folder}/forest.joblib"


def _make_text_pipeline(folder: Path) -> str:
    words = package("sklearn.feature_extraction.text").TfidfVectorizer()
    model = package("sklearn.pipeline").make_pipeline(words, package("sklearn.naive_bayes").MultinomialNB())
    texts, labels = ["good film", "bad film", "good plot", "bad plot"], ["up", "down", "up", "down"]
    (folder / "texts.pkl").write_bytes(pickle.dumps(model.fit(texts, labels)))
    return f"{folder}/texts.pkl"


def _make_xgboost(suffix: str, names: list[str] | None, objective: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        xgboost = package("xgboost")
        features, target = _train()
        matrix = xgboost.DMatrix(features, label=target, feature_names=names)
        options = {"objective": objective, "nthread": 1} | ({"num_class": 2} if "multi" in objective else {})
        xgboost.train(options, matrix, 3).save_model(folder / f"boosted.{suffix}")
        return f"{folder}/boosted.{suffix}"

    return make


def _make_lightgbm(suffix: str, names: list[str] | None, objective: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        lightgbm = package("lightgbm")
        features, target = _train()
        data = lightgbm.Dataset(features, label=target, feature_name=names or "auto")
        options = {"objective": objective, "verbose": -1, "min_data_in_leaf": 2, "num_threads": 1, "seed": 1}
        options |= {"num_class": 2} if "multi" in objective else {}
        lightgbm.train(options, data, 3).save_model(folder / f"boosted.{suffix}")
        return f"{folder}/boosted.{suffix}"

    return make


def _make_catboost(kind: str, names: list[str] | None) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        catboost = package("catboost")
        features, target = _train()
        model = getattr(catboost, kind)(iterations=3, verbose=0, allow_writing_files=False, thread_count=1)
        model.fit(catboost.Pool(features, target, feature_names=names)).save_model(str(folder / "boosted.cbm"))
        return f"{folder}/boosted.cbm"

    return make


def _word_tokenizer() -> Any:
    tokenizers = package("tokenizers")
    known = tokenizers.models.WordLevel({"[UNK]": 0, "good": 1, "bad": 2, "film": 3, "plot": 4}, unk_token="[UNK]")  # noqa: S106
    tokenizer = tokenizers.Tokenizer(known)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return tokenizer


def _make_model2vec(folder: Path) -> str:
    vectors = _random().random((5, 6)).astype(np.float32)
    package("model2vec").StaticModel(vectors, _word_tokenizer(), normalize=True).save_pretrained(folder / "static")
    return f"{folder}/static"


def _make_static(folder: Path) -> str:
    reference = package("sentence_transformers")
    module = package("sentence_transformers.sentence_transformer.modules").StaticEmbedding(
        _word_tokenizer(), embedding_weights=_random().random((5, 6)).astype(np.float32)
    )
    reference.SentenceTransformer(modules=[module], device="cpu").save(str(folder / "static"))
    return f"{folder}/static"


def _make_onnx(rows: int | str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        onnx = package("onnx")
        helper, kind = onnx.helper, onnx.TensorProto.FLOAT
        weights = onnx.numpy_helper.from_array(_random().random((3, 2)).astype(np.float32), "weights")
        graph = helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "weights"], ["product"]),
                helper.make_node("Add", ["product", "shift"], ["moved"]),
            ],
            "tiny",
            [
                helper.make_tensor_value_info("x", kind, [rows, 3]),
                helper.make_tensor_value_info("shift", kind, [rows, 1]),
            ],
            [
                helper.make_tensor_value_info("product", kind, [rows, 2]),
                helper.make_tensor_value_info("moved", kind, [rows, 2]),
            ],
            [weights],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        onnx.save(model, str(folder / "tiny.onnx"))
        return f"{folder}/tiny.onnx"

    return make


def _make_onnx_texts(folder: Path) -> str:
    """A graph over tokens in a folder of its own below the tokenizer's: `onnx/model.onnx`."""
    onnx, tokenizers = package("onnx"), package("tokenizers")
    known = tokenizers.models.WordLevel({"[UNK]": 0, "good": 1, "bad": 2, "film": 3, "plot": 4}, unk_token="[UNK]")  # noqa: S106
    tokenizer = tokenizers.Tokenizer(known)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    helper, axes = onnx.helper, ["rows", "tokens"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "tiny",
        [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, axes) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, [*axes, 6])],
        [onnx.numpy_helper.from_array(_random().random((5, 6)).astype(np.float32), "table")],
    )
    (folder / "onnx").mkdir(exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    return f"{folder}/onnx/model.onnx"


def _onnx_rows() -> list[Any]:
    return [{"x": row[:3].tolist(), "shift": float(row[3])} for row in _random().random((ROWS, 4))]


def _texts() -> list[Any]:
    words = ["good", "bad", "film", "plot"]
    return [{"text": " ".join(_random().permutation(words)[: 1 + number % 4])} for number in range(ROWS)]


def _bare_texts() -> list[Any]:
    return [row["text"] for row in _texts()]


SKLEARN = ("sklearn", "skops", "joblib")
TRUST = {"trust_pickle": True}
CASES = [
    Case("python", (), _make_python, _named_rows, {"a": "one", "b": 1.0, "c": 1.0}),
    Case("python-tokens", (), _make_python_tokens, _texts, {"text": None}),
    Case("skops", SKLEARN, _make_skops, _listed_rows, {"features": [1.0, 2.0]}, 1e-12),
    Case("skops-frame", (*SKLEARN, "pandas"), _make_sklearn_frame, _named_rows, {"a": 1.0, "b": 2.0}, 1e-12),
    Case("joblib", SKLEARN, _make_joblib, _listed_rows, {"features": [1.0, "x", 2.0]}, 1e-12, TRUST),
    Case("pickle-texts", SKLEARN, _make_text_pipeline, _texts, {"text": 3}, 1e-12, TRUST),
    Case(
        "xgboost-json",
        ("xgboost",),
        _make_xgboost("json", ["a", "b", "c"], "binary:logistic"),
        _named_rows,
        {"a": 1.0, "c": 2.0},
    ),
    Case("xgboost-ubj", ("xgboost",), _make_xgboost("ubj", None, "multi:softprob"), _listed_rows, {"features": [1.0]}),
    Case("lightgbm", ("lightgbm",), _make_lightgbm("txt", ["a", "b", "c"], "binary"), _named_rows, {"a": 1.0}),
    Case("lightgbm-lgb", ("lightgbm",), _make_lightgbm("lgb", None, "multiclass"), _listed_rows, {"features": [1.0]}),
    Case("catboost", ("catboost",), _make_catboost("CatBoostRegressor", ["a", "b", "c"]), _named_rows, {"a": 1.0}),
    Case("catboost-classes", ("catboost",), _make_catboost("CatBoostClassifier", None), _listed_rows, {"features": []}),
    Case("model2vec", ("model2vec", "tokenizers"), _make_model2vec, _bare_texts, 3, 1e-6),
    Case("static", ("sentence_transformers", "tokenizers"), _make_static, _bare_texts, 3, 1e-6),
    Case("onnx", ("onnx", "onnxruntime"), _make_onnx("rows"), _onnx_rows, {"x": [1.0], "shift": 1.0}, 1e-6),
    Case("onnx-texts", ("onnx", "onnxruntime", "tokenizers"), _make_onnx_texts, _bare_texts, 3, 1e-6),
    Case("onnx-fixed", ("onnx", "onnxruntime"), _make_onnx(5), _onnx_rows, {"x": [1.0], "shift": 1.0}, 1e-6),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    for needed in request.param.needs:
        package(needed)
    return request.param


@pytest.fixture
def runtime(case: Case, tmp_path: Path) -> Iterator[Runtime]:
    loaded = load_model(case.make(tmp_path), threads=1, **case.options)
    yield loaded
    loaded.close()


def run(runtime: Runtime, *parts: list[Any]) -> Columns:
    return runtime.launch([runtime.prepare(part) for part in parts]).wait()


def assert_same(actual: Columns, expected: Columns, case: Case) -> None:
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].shape == array.shape
        if array.dtype.kind == "f":
            np.testing.assert_allclose(actual[name], array, rtol=case.tolerance, atol=case.tolerance)
        else:
            np.testing.assert_array_equal(actual[name], array)


def rows_of(columns: Columns, chosen: Any) -> Columns:
    return {name: array[chosen] for name, array in columns.items()}


def test_every_row_has_one_answer_in_every_column(case: Case, runtime: Runtime) -> None:
    result = run(runtime, case.rows())
    assert result
    assert all(len(array) == ROWS for array in result.values())
    assert set(runtime.info.outputs) <= set(result)


def test_the_info_names_the_model_its_checksum_and_its_device(case: Case, tmp_path: Path) -> None:
    name = case.make(tmp_path)
    first = load_model(name, threads=1, **case.options)
    again = load_model(name, threads=1, **case.options)
    assert first.info == again.info
    assert first.info.model == name
    assert first.info.checksum.startswith("sha256:")
    assert first.info.device
    assert first.info.max_row_tokens >= 1


def test_prepared_rows_know_their_lengths_and_what_was_cut(case: Case, runtime: Runtime) -> None:
    prepared = runtime.prepare(case.rows())
    assert prepared.lengths.shape == prepared.truncated.shape == (ROWS,)
    assert prepared.lengths.dtype == np.int64
    assert prepared.truncated.dtype == np.bool_
    assert 1 <= prepared.lengths.min() <= prepared.lengths.max() <= runtime.info.max_row_tokens


def test_answers_come_in_the_order_of_the_rows(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    order = _random().permutation(ROWS)
    assert_same(run(runtime, [rows[number] for number in order]), rows_of(run(runtime, rows), order), case)


def test_rows_taken_in_another_order_give_what_the_whole_gives(case: Case, runtime: Runtime) -> None:
    prepared = runtime.prepare(case.rows())
    order = _random().permutation(ROWS)[: ROWS // 2]
    part = prepared.slice(0, ROWS).take(order)
    np.testing.assert_array_equal(part.lengths, prepared.lengths[order])
    assert_same(runtime.launch([part]).wait(), rows_of(runtime.launch([prepared]).wait(), order), case)


def test_slices_give_what_the_whole_gives(case: Case, runtime: Runtime) -> None:
    prepared = runtime.prepare(case.rows())
    whole = runtime.launch([prepared]).wait()
    for start, stop in ((0, 1), (3, 11), (11, ROWS), (ROWS - 1, ROWS)):
        part = prepared.slice(start, stop)
        np.testing.assert_array_equal(part.lengths, prepared.lengths[start:stop])
        assert_same(runtime.launch([part]).wait(), rows_of(whole, slice(start, stop)), case)


def test_a_slice_of_a_slice_counts_from_its_own_start(case: Case, runtime: Runtime) -> None:
    prepared = runtime.prepare(case.rows())
    whole = runtime.launch([prepared]).wait()
    part = prepared.slice(4, 20).slice(3, 9)
    assert_same(runtime.launch([part]).wait(), rows_of(whole, slice(7, 13)), case)


def test_parts_are_answered_one_after_the_other(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    assert_same(run(runtime, rows[:1], rows[1:9], rows[9:]), run(runtime, rows), case)


def test_slices_of_different_preparations_share_a_call(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    left, right = runtime.prepare(rows[:12]), runtime.prepare(rows[12:])
    together = runtime.launch([right.slice(2, 7), left.slice(0, 3)]).wait()
    expected = run(runtime, rows[14:19] + rows[:3])
    assert_same(together, expected, case)


def test_a_rows_answer_does_not_depend_on_what_rides_with_it(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    whole = run(runtime, rows)
    for number in (0, 5, ROWS - 1):
        assert_same(run(runtime, [rows[number]]), rows_of(whole, slice(number, number + 1)), case)


def test_a_live_call_answers_as_a_background_call_does(case: Case, runtime: Runtime) -> None:
    prepared = runtime.prepare(case.rows())
    live = runtime.launch([prepared], live=True).wait()
    assert_same(live, runtime.launch([prepared]).wait(), case)


def test_the_same_call_gives_the_same_answer_twice(case: Case, runtime: Runtime) -> None:
    prepared = runtime.prepare(case.rows())
    first = {name: array.copy() for name, array in runtime.launch([prepared]).wait().items()}
    assert_same(runtime.launch([prepared]).wait(), first, case)


def test_a_result_outlives_the_calls_after_it(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    early = runtime.launch([runtime.prepare(rows[:6])])
    late = runtime.launch([runtime.prepare(rows[6:12])])
    late.wait()
    assert_same(early.wait(), run(runtime, rows[:6]), case)


def test_no_rows_can_be_prepared(runtime: Runtime) -> None:
    assert len(runtime.prepare([]).lengths) == 0


def test_a_bad_row_is_named(case: Case, runtime: Runtime) -> None:
    rows = case.rows()[:6]
    with pytest.raises(InvalidInput, match=r"row 4\b"):
        runtime.prepare([*rows[:4], case.bad_row, *rows[4:]])


def test_a_bad_row_leaves_the_model_as_it_was(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    expected = run(runtime, rows)
    with pytest.raises(InvalidInput):
        runtime.prepare([*rows[:3], case.bad_row])
    assert_same(run(runtime, rows), expected, case)


def test_a_model_can_be_closed_twice(case: Case, tmp_path: Path) -> None:
    loaded = load_model(case.make(tmp_path), threads=1, **case.options)
    run(loaded, case.rows())
    loaded.close()
    loaded.close()


def test_prepare_may_be_called_from_several_threads(case: Case, runtime: Runtime) -> None:
    rows = case.rows()
    with ThreadPoolExecutor(4) as pool:
        prepared = list(pool.map(runtime.prepare, [rows] * 8))
    expected = run(runtime, rows)
    assert_same(runtime.launch([prepared[0]]).wait(), expected, case)
    assert_same(runtime.launch([prepared[-1]]).wait(), expected, case)
