from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.errors import Broken, InvalidInput, TwoshiftError, UnusableModel
from twoshift.ports import Runtime
from twoshift.runtime import load_model

FEATURES = np.random.default_rng(3).random((40, 3))
LABELS = (FEATURES[:, 0] > 0.5).astype(int)


def package(name: str) -> Any:
    """An optional package; its absence skips the test."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def refused(model: Any, kind: type[TwoshiftError] = TwoshiftError, **options: Any) -> str:
    with pytest.raises(kind) as raised:
        load_model(str(model), **options)
    return str(raised.value)


def answers(runtime: Runtime, rows: list[Any]) -> dict[str, np.ndarray]:
    return dict(runtime.launch([runtime.prepare(rows)]).wait())


def sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


class TestNames:
    def test_an_unknown_name_suggests_the_nearest_known_one(self) -> None:
        assert "did you mean minilm?" in refused("minilmm", InvalidInput)

    def test_an_unknown_name_says_what_is_accepted(self) -> None:
        message = refused("zzz", InvalidInput)
        assert ".skops" in message
        assert "package.module:Class" in message

    @pytest.mark.parametrize("name", ["", "  "])
    def test_no_name_says_what_is_accepted(self, name: str) -> None:
        assert "minilm" in refused(name, InvalidInput)

    def test_a_missing_file_suggests_its_nearest_neighbour(self, tmp_path: Path) -> None:
        (tmp_path / "churn.ubj").write_bytes(b"x")
        message = refused(tmp_path / "chrun.ubj", InvalidInput)
        assert "exists" in message
        assert f"did you mean {tmp_path / 'churn.ubj'}?" in message

    def test_a_python_file_wants_its_class(self, tmp_path: Path) -> None:
        (tmp_path / "m.py").write_text("x = 1")
        assert "m.py:YourClass" in refused(tmp_path / "m.py", InvalidInput)

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("llama.gguf", "is a GGUF file"),
            ("net.keras", "is a Keras model"),
            ("net.h5", "is a Keras model"),
            ("graph.pb", "is a TensorFlow graph"),
            ("net.plan", "is a TensorRT engine"),
            ("net.engine", "is a TensorRT engine"),
            ("net.mlmodel", "is a Core ML model"),
            ("tree.pmml", "is a PMML file"),
            ("net.pth", "is a PyTorch pickle"),
        ],
    )
    def test_a_file_of_another_kind_is_refused_by_name(self, tmp_path: Path, name: str, told: str) -> None:
        (tmp_path / name).write_bytes(b"weights")
        assert told in refused(tmp_path / name, UnusableModel)

    def test_a_folder_of_tensorflow_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "saved_model.pb").write_bytes(b"weights")
        assert "is a TensorFlow SavedModel; convert it" in refused(tmp_path, UnusableModel)

    @pytest.mark.parametrize("name", ["model.safetensors", "model.pt", "pytorch_model.bin"])
    def test_bare_weights_want_their_folder(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"weights")
        assert "use the folder" in refused(tmp_path / name, InvalidInput)

    def test_a_file_of_another_kind_says_what_is_accepted(self, tmp_path: Path) -> None:
        (tmp_path / "notes.md").write_text("hello")
        assert ".onnx" in refused(tmp_path / "notes.md", InvalidInput)

    def test_a_folder_that_holds_a_model_file_names_it(self, tmp_path: Path) -> None:
        (tmp_path / "model.ubj").write_bytes(b"x")
        assert str(tmp_path / "model.ubj") in refused(tmp_path, InvalidInput)

    def test_an_empty_folder_says_what_it_should_hold(self, tmp_path: Path) -> None:
        assert "config.json" in refused(tmp_path, InvalidInput)

    @pytest.mark.parametrize("suffix", ["onnx", "json", "ubj", "skops", "pkl"])
    def test_an_empty_file_is_refused(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"model.{suffix}").touch()
        assert "empty" in refused(tmp_path / f"model.{suffix}", trust_pickle=True)

    @pytest.mark.parametrize(("option", "value"), [("device", "tpu"), ("device", "cuda:x"), ("threads", 0)])
    def test_an_option_that_cannot_be_used_is_named(self, tmp_path: Path, option: str, value: Any) -> None:
        (tmp_path / "m.py").write_text("class M:\n def load(self): ...\n def predict(self, batch): ...\n")
        assert refused(f"{tmp_path}/m.py:M", InvalidInput, **{option: value}).startswith(f"{option}: {value!r}")


@pytest.mark.slow
class TestXgboost:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        xgboost = package("xgboost")
        matrix = xgboost.DMatrix(FEATURES, label=LABELS, feature_names=["a", "b", "c"])
        booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, matrix, 3)
        for suffix in ("json", "ubj"):
            booster.save_model(tmp_path / f"m.{suffix}")
        return tmp_path

    @pytest.mark.parametrize("suffix", ["json", "ubj"])
    def test_it_predicts_what_the_booster_predicts(self, saved: Path, suffix: str) -> None:
        xgboost = package("xgboost")
        runtime = load_model(f"{saved}/m.{suffix}", threads=1)
        expected = xgboost.Booster(model_file=saved / f"m.{suffix}").inplace_predict(FEATURES, validate_features=False)
        rows = [dict(zip("cab", row[[2, 0, 1]].tolist(), strict=True)) for row in FEATURES]  # by name, in any order
        np.testing.assert_array_equal(answers(runtime, rows)["prediction"], expected)
        np.testing.assert_array_equal(answers(runtime, [row.tolist() for row in FEATURES])["prediction"], expected)
        assert runtime.info.checksum == sha256(saved / f"m.{suffix}")

    def test_a_missing_value_goes_the_way_the_trees_were_taught(self, saved: Path) -> None:
        runtime = load_model(f"{saved}/m.ubj")
        absent = answers(runtime, [{"a": None, "b": 0.1, "c": 0.1}])["prediction"]
        np.testing.assert_array_equal(absent, answers(runtime, [{"a": float("nan"), "b": 0.1, "c": 0.1}])["prediction"])

    def test_a_missing_field_is_not_a_missing_value(self, saved: Path) -> None:
        with pytest.raises(InvalidInput, match="row 0, field 'a'"):
            load_model(f"{saved}/m.ubj").prepare([{"b": 0.1, "c": 0.1}])

    def test_a_linear_booster_is_served_too(self, tmp_path: Path) -> None:
        xgboost = package("xgboost")
        matrix = xgboost.DMatrix(FEATURES, label=LABELS)
        try:
            booster = xgboost.train({"booster": "gblinear", "nthread": 1}, matrix, 2)
        except UserWarning:
            pytest.skip("this XGBoost has given gblinear up")
        booster.save_model(tmp_path / "line.ubj")
        found = answers(load_model(f"{tmp_path}/line.ubj"), [row.tolist() for row in FEATURES])
        np.testing.assert_allclose(found["prediction"], booster.predict(matrix), rtol=1e-6)

    def test_early_stopping_counts_as_it_does_in_the_estimator_that_saved_it(self, tmp_path: Path) -> None:
        xgboost = package("xgboost")
        package("sklearn")
        noise = np.random.default_rng(0).integers(0, 2, 40)
        model = xgboost.XGBClassifier(n_estimators=30, early_stopping_rounds=2, n_jobs=1)
        model.fit(FEATURES, LABELS, eval_set=[(FEATURES, noise)], verbose=False)
        model.save_model(tmp_path / "stopped.json")
        found = answers(load_model(f"{tmp_path}/stopped.json"), [row.tolist() for row in FEATURES])
        np.testing.assert_allclose(found["prediction"], model.predict_proba(FEATURES)[:, 1], rtol=1e-6)

    @pytest.mark.parametrize("suffix", ["json", "ubj"])
    def test_a_truncated_file_never_reaches_the_library(self, saved: Path, suffix: str) -> None:
        data = (saved / f"m.{suffix}").read_bytes()
        for size in (1, 2, 10, len(data) // 3, len(data) // 2, len(data) - 1):
            (saved / f"cut.{suffix}").write_bytes(data[:size])
            assert "saved with save_model" in refused(saved / f"cut.{suffix}", Broken)

    @pytest.mark.parametrize(
        ("name", "value", "what"),
        [
            ("left_children", 10**6, "outside the tree"),
            ("left_children", 0, "outside the tree"),
            ("right_children", 1, "two parents"),
            ("parents", -7, "parent"),
            ("split_indices", 99, "feature"),
            ("left_children", 1.5, "whole number"),
        ],
    )
    def test_a_tree_that_points_outside_itself_is_refused(self, saved: Path, name: str, value: Any, what: str) -> None:
        document = json.loads((saved / "m.json").read_bytes())
        document["learner"]["gradient_booster"]["model"]["trees"][1][name][0 if name != "parents" else 1] = value
        (saved / "hostile.json").write_text(json.dumps(document))
        message = refused(saved / "hostile.json", Broken)
        assert "tree 1" in message
        assert what in message

    @pytest.mark.parametrize(
        "text", ["{}", "[]", '{"learner": 3}', "hello", '{"model_type": "bert"}', '{"a": 1, "a": 2}']
    )
    def test_other_json_is_not_a_model(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config.json").write_text(text)
        message = refused(tmp_path / "config.json", Broken)
        assert "is not a valid XGBoost model" in message
        assert "use the path of the folder" in message

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (lambda it: it["attributes"].update(best_iteration="abc", scikit_learn="{}"), "best_iteration is 'abc'"),
            (
                lambda it: it["attributes"].update(best_iteration="99", scikit_learn="{}"),
                "expected a round from 0 to 2",
            ),
            (lambda it: it["learner_model_param"].update(base_score="[1,2,3,4,5]"), "base_score"),
            (lambda it: it["learner_model_param"].update(num_feature="2000000000"), "number of features"),
            (
                lambda it: it["objective"].update(
                    name="multi:softprob", softmax_multiclass_param={"num_class": "1000000"}
                ),
                "num_class",
            ),
        ],
    )
    def test_a_figure_that_cannot_be_is_broken_as_it_loads(
        self, saved: Path, change: Callable[[Any], None], what: str
    ) -> None:
        document = json.loads((saved / "m.json").read_bytes())
        change(document["learner"])
        (saved / "hostile.json").write_text(json.dumps(document))
        assert what in refused(saved / "hostile.json", Broken)

    def test_it_runs_on_the_cpu_in_its_own_precision(self, saved: Path) -> None:
        assert "runs only on the CPU" in refused(saved / "m.ubj", InvalidInput, device="cuda")
        assert "fp32" in refused(saved / "m.ubj", InvalidInput, precision="int8")


@pytest.mark.slow
class TestSklearn:
    @pytest.fixture
    def skops(self) -> Any:
        package("sklearn")
        return package("skops.io")

    def test_it_predicts_what_the_estimator_predicts(self, skops: Any, tmp_path: Path) -> None:
        regression = package("sklearn.linear_model").LogisticRegression
        model = regression().fit(FEATURES, np.array(["no", "yes"])[LABELS])
        skops.dump(model, tmp_path / "m.skops")
        runtime = load_model(f"{tmp_path}/m.skops")
        found = answers(runtime, [{"features": row.tolist()} for row in FEATURES])
        np.testing.assert_array_equal(found["prediction"], model.predict(FEATURES))
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(FEATURES))
        assert runtime.info.outputs == ("prediction", "probabilities")
        assert runtime.info.checksum == sha256(tmp_path / "m.skops")

    def test_a_transformer_transforms(self, skops: Any, tmp_path: Path) -> None:
        scaler = package("sklearn.preprocessing").StandardScaler
        model = scaler().fit(FEATURES)
        skops.dump(model, tmp_path / "m.skops")
        found = answers(load_model(f"{tmp_path}/m.skops"), [row.tolist() for row in FEATURES])
        np.testing.assert_allclose(found["transformed"], model.transform(FEATURES))

    def test_nan_is_refused_where_the_estimator_does_not_take_it(self, skops: Any, tmp_path: Path) -> None:
        regression = package("sklearn.linear_model").LogisticRegression
        skops.dump(regression().fit(FEATURES, LABELS), tmp_path / "m.skops")
        runtime = load_model(f"{tmp_path}/m.skops")
        for absent in (None, float("nan")):
            with pytest.raises(InvalidInput, match=r"row 1, field 'features'.*missing"):
                runtime.prepare([[1.0, 2.0, 3.0], [1.0, absent, 3.0]])

    def test_types_that_skops_does_not_vouch_for_are_named_in_the_refusal(self, skops: Any, tmp_path: Path) -> None:
        forest = package("sklearn.ensemble").RandomForestClassifier
        skops.dump(forest(2).fit(FEATURES, LABELS), tmp_path / "forest.skops")
        if not skops.get_untrusted_types(file=tmp_path / "forest.skops"):
            pytest.skip("this skops vouches for trees")
        message = refused(tmp_path / "forest.skops", InvalidInput)
        assert "sklearn.tree._tree.Tree" in message
        assert "--trust-pickle" in message
        assert load_model(f"{tmp_path}/forest.skops", trust_pickle=True).info.runtime == "sklearn"

    def test_a_hostile_type_is_not_loaded(self, skops: Any, tmp_path: Path) -> None:
        transformer = package("sklearn.preprocessing").FunctionTransformer
        skops.dump(transformer(subprocess.call), tmp_path / "hostile.skops")
        assert "subprocess.call" in refused(tmp_path / "hostile.skops", InvalidInput)

    def test_a_truncated_archive_is_broken(self, skops: Any, tmp_path: Path) -> None:
        scaler = package("sklearn.preprocessing").StandardScaler
        skops.dump(scaler().fit(FEATURES), tmp_path / "m.skops")
        data = (tmp_path / "m.skops").read_bytes()
        for size in (1, len(data) // 2, len(data) - 1):
            (tmp_path / "cut.skops").write_bytes(data[:size])
            assert "skops archive" in refused(tmp_path / "cut.skops", Broken)

    @pytest.mark.parametrize("entries", [{"a.txt": "x"}, {"schema.json": "{}"}, {"schema.json": "not json"}])
    def test_another_zip_is_not_an_estimator(self, skops: Any, tmp_path: Path, entries: dict[str, str]) -> None:
        with zipfile.ZipFile(tmp_path / "m.skops", "w") as archive:
            for name, text in entries.items():
                archive.writestr(name, text)
        assert "skops" in refused(tmp_path / "m.skops", Broken)

    def test_an_archive_that_would_swell_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("twoshift.runtime.sklearn_model._BOMB_BYTES", 1 << 20)
        with zipfile.ZipFile(tmp_path / "bomb.skops", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("schema.json", "{}")
            archive.writestr("zeros", bytes(4 << 20))
        assert "unpacks to" in refused(tmp_path / "bomb.skops", Broken)

    def test_an_estimator_that_was_not_fitted_is_refused(self, skops: Any, tmp_path: Path) -> None:
        regression = package("sklearn.linear_model").LogisticRegression
        skops.dump(regression(), tmp_path / "m.skops")
        assert "fitted" in refused(tmp_path / "m.skops", InvalidInput)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("n_features_in_", "abc"), ("n_features_in_", -5), ("feature_names_in_", 5), ("steps", 5), ("steps", [1])],
    )
    def test_an_estimator_whose_figures_cannot_be_is_broken(
        self, skops: Any, tmp_path: Path, name: str, value: Any
    ) -> None:
        model = package("sklearn.linear_model").LogisticRegression().fit(FEATURES, LABELS)
        setattr(model, name, value)
        skops.dump(model, tmp_path / "m.skops")
        message = refused(tmp_path / "m.skops", Broken)
        assert "expected a whole number" in message or "incomplete or not fitted" in message


class _Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


class TestPickles:
    @pytest.mark.parametrize("suffix", ["pkl", "pickle", "joblib"])
    def test_a_pickle_is_refused_unread_and_the_refusal_says_why(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"m.{suffix}").write_bytes(pickle.dumps(_Trap(tmp_path / "mark")))
        message = refused(tmp_path / f"m.{suffix}", InvalidInput)
        assert "can run any code" in message
        assert "skops" in message
        assert "--trust-pickle" in message
        assert not (tmp_path / "mark").exists()

    def test_a_trusted_pickle_without_an_estimator_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "m.pkl").write_bytes(pickle.dumps({"a": 1}))
        assert "the file holds a dict" in refused(tmp_path / "m.pkl", InvalidInput, trust_pickle=True)

    def test_a_truncated_pickle_is_broken(self, tmp_path: Path) -> None:
        (tmp_path / "m.pkl").write_bytes(pickle.dumps(list(range(1000)))[:50])
        assert "cannot be loaded as a pickled estimator" in refused(tmp_path / "m.pkl", Broken, trust_pickle=True)


class TestOnnx:
    @pytest.fixture
    def onnx(self) -> Any:
        package("onnxruntime")
        return package("onnx")

    @staticmethod
    def graph(onnx: Any, shape: list[Any], kind: str = "FLOAT", out: list[Any] | None = None) -> Any:
        weights = onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32) * 2, "w")
        value = onnx.helper.make_tensor_value_info
        nodes = [
            onnx.helper.make_node("Cast", ["x"], ["floats"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("MatMul", ["floats", "w"], ["y"]),
        ]
        tensor = getattr(onnx.TensorProto, kind)
        result = value("y", onnx.TensorProto.FLOAT, out or [shape[0], 3])
        graph = onnx.helper.make_graph(nodes, "g", [value("x", tensor, shape)], [result], [weights])
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)

    def test_one_input_takes_bare_lists_features_and_its_name(self, onnx: Any, tmp_path: Path) -> None:
        onnx.save(self.graph(onnx, ["n", 3]), str(tmp_path / "m.onnx"))
        runtime = load_model(f"{tmp_path}/m.onnx")
        for row in ([1, 2, 3], {"features": [1, 2, 3]}, {"x": [1, 2, 3]}, {"x": np.array([1, 2, 3])}):
            assert answers(runtime, [row])["y"].tolist() == [[2.0, 4.0, 6.0]]
        assert runtime.info.outputs == ("y",)
        assert runtime.info.precision == "fp32"
        assert runtime.info.checksum == sha256(tmp_path / "m.onnx")

    @pytest.mark.parametrize("row", [[1.0], [[1.0, 2.0, 3.0]], 1.0, "text", {"y": [1]}, {"x": None}, [1, 2, None]])
    def test_a_row_that_does_not_fit_the_graph_is_named(self, onnx: Any, tmp_path: Path, row: Any) -> None:
        onnx.save(self.graph(onnx, ["n", 3]), str(tmp_path / "m.onnx"))
        runtime = load_model(f"{tmp_path}/m.onnx")
        with pytest.raises(InvalidInput, match="row 1"):
            runtime.prepare([[1, 2, 3], row])
        with pytest.raises(InvalidInput, match="row 0"):
            runtime.prepare([row])

    def test_a_whole_number_input_takes_whole_numbers(self, onnx: Any, tmp_path: Path) -> None:
        onnx.save(self.graph(onnx, ["n", 3], "INT32"), str(tmp_path / "m.onnx"))
        runtime = load_model(f"{tmp_path}/m.onnx")
        assert answers(runtime, [[1.0, 2, 3]])["y"].tolist() == [[2.0, 4.0, 6.0]]
        with pytest.raises(InvalidInput, match=r"row 1, field 'x'.*int32"):
            runtime.prepare([[1, 2, 3], [1, 2, 3.5]])

    def test_a_fixed_number_of_rows_is_filled_up(self, onnx: Any, tmp_path: Path) -> None:
        onnx.save(self.graph(onnx, [4, 3]), str(tmp_path / "m.onnx"))
        runtime = load_model(f"{tmp_path}/m.onnx")
        for rows in (1, 3, 4, 5, 9):
            found = answers(runtime, [row.tolist() for row in FEATURES[:rows]])["y"]
            np.testing.assert_allclose(found, FEATURES[:rows].astype(np.float32) * 2, rtol=1e-6)

    def test_an_input_without_rows_is_refused(self, onnx: Any, tmp_path: Path) -> None:
        value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
        kind = onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            [node("Identity", ["x"], ["y"])], "g", [value("x", kind, [])], [value("y", kind, [])]
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
        onnx.save(model, str(tmp_path / "m.onnx"))
        assert "'x' has no axes" in refused(tmp_path / "m.onnx", InvalidInput)

    def test_weights_in_a_file_beside_it_are_part_of_the_checksum(self, onnx: Any, tmp_path: Path) -> None:
        model = self.graph(onnx, ["n", 3])
        onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="w.data", size_threshold=0)
        first = load_model(f"{tmp_path}/m.onnx").info.checksum
        data = bytearray((tmp_path / "w.data").read_bytes())
        data[3] ^= 1
        (tmp_path / "w.data").write_bytes(data)
        assert load_model(f"{tmp_path}/m.onnx").info.checksum != first

    def test_weights_of_a_type_that_onnx_does_not_have_are_broken(self, onnx: Any, tmp_path: Path) -> None:
        model = self.graph(onnx, ["n", 3])
        model.graph.initializer[0].data_type = 999
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        assert "weights of type 999, which is not a data type of ONNX" in refused(tmp_path / "m.onnx", Broken)

    @pytest.mark.parametrize(
        "place", ["../secret.data", "{folder}/secret.data", "link.data", "gone.data", "a\0b", "x" * 5000]
    )
    def test_weights_outside_the_models_folder_are_refused(self, onnx: Any, tmp_path: Path, place: str) -> None:
        folder = tmp_path / "model"
        folder.mkdir()
        model = self.graph(onnx, ["n", 3])
        onnx.save(model, str(folder / "m.onnx"), save_as_external_data=True, location="w.data", size_threshold=0)
        (folder / "w.data").rename(tmp_path / "secret.data")
        (folder / "link.data").symlink_to(tmp_path / "secret.data")
        model = onnx.load(str(folder / "m.onnx"), load_external_data=False)
        for entry in model.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = place.format(folder=tmp_path)
        (folder / "m.onnx").write_bytes(model.SerializeToString())
        message = refused(folder / "m.onnx", Broken)
        assert "keeps weights in" in message

    def test_a_truncated_or_foreign_file_is_broken(self, onnx: Any, tmp_path: Path) -> None:
        data = self.graph(onnx, ["n", 3]).SerializeToString()
        for content in (data[:10], data[: len(data) // 2], data[:-1], b"hello, this is text", b"\x00" * 100):
            (tmp_path / "m.onnx").write_bytes(content)
            assert "m.onnx" in refused(tmp_path / "m.onnx", Broken)

    def test_an_operator_that_nobody_knows_is_broken(self, onnx: Any, tmp_path: Path) -> None:
        model = self.graph(onnx, ["n", 3])
        model.graph.node[1].op_type = "NoSuchOperator"
        onnx.save(model, str(tmp_path / "m.onnx"))
        assert "onnxruntime" in refused(tmp_path / "m.onnx", Broken)

    def test_another_precision_than_the_files_is_refused(self, onnx: Any, tmp_path: Path) -> None:
        onnx.save(self.graph(onnx, ["n", 3]), str(tmp_path / "m.onnx"))
        assert "fp32" in refused(tmp_path / "m.onnx", InvalidInput, precision="int8")

    def test_cuda_is_refused_where_there_is_none(self, onnx: Any, tmp_path: Path) -> None:
        if "CUDAExecutionProvider" in package("onnxruntime").get_available_providers():
            pytest.skip("there is a CUDA provider here")
        onnx.save(self.graph(onnx, ["n", 3]), str(tmp_path / "m.onnx"))
        assert "CUDA" in refused(tmp_path / "m.onnx", InvalidInput, device="cuda")


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("m.onnx", "onnx", "onnx"), ("m.ubj", "xgboost", "xgboost"), ("m.skops", "sklearn", "scikit-learn")],
)
def test_a_missing_package_is_named_as_pip_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("twoshift.runtime.xgboost_model.check_xgboost_file", lambda data: None)
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("schema.json", "{}")
    message = refused(tmp_path / name, InvalidInput)
    assert f"pip install {package}" in message


def test_the_runtimes_import_without_any_optional_package() -> None:
    code = (
        "import sys\n"
        "import twoshift.runtime, twoshift.runtime.onnx_model, twoshift.runtime.sklearn_model\n"
        "import twoshift.runtime.python_model, twoshift.runtime.xgboost_model\n"
        "heavy = {'onnx', 'onnxruntime', 'sklearn', 'skops', 'xgboost', 'joblib', 'pandas', 'torch', 'typer', 'ray'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(("axes", "named"), [(["rows", 2**40], "axis 1"), ([2**40, 3], "axis 0")])
def test_an_axis_that_no_memory_holds_is_refused_by_name(axes: list[Any], named: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    given, found = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, axes) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "large", [given], [found])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(tmp_path / "large.onnx"))
    told = refused(tmp_path / "large.onnx", UnusableModel)
    assert f"has the input 'x' with 1,099,511,627,776 numbers on {named}" in told
