"""Whatever can be pushed answers from the registry as it does from where it was."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_runtime_contract import CASES, Case, package

from twoshift.errors import Broken, InvalidInput, TwoshiftError
from twoshift.registry.records import Version
from twoshift.wiring.model_loading import is_llm, load_model
from twoshift.wiring.model_sources import artifact_of, checked
from twoshift.wiring.registered_models import registry_at
from twoshift.wiring.trial_load import loaded_alone, loaded_here


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "source").mkdir()
    return tmp_path / "home"


def pushed(source: str, folder: Path, trust_pickle: bool = False, loads: bool = True, **more: Any) -> Version:
    scratch = folder / "scratch"
    made = artifact_of(source, scratch, trust_pickle=trust_pickle, **more)
    load = partial(loaded_here, trust_pickle=trust_pickle)
    return registry_at().push("m", checked(made, scratch, load if loads else None))


def columns(model: str, rows: list[Any], **options: Any) -> dict[str, Any]:
    runtime = load_model(model, **options)
    try:
        return dict(runtime.launch([runtime.prepare(rows)]).wait())
    finally:
        runtime.close()


def assert_answers(model: str, source: str, rows: list[Any], **options: Any) -> None:
    ours, theirs = columns(model, rows, **options), columns(source, rows, **options)
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_version_answers_as_its_source_does(case: Case, tmp_path: Path) -> None:
    for needed in case.needs:
        package(needed)
    source = case.make(tmp_path / "source")
    version = pushed(source, tmp_path, **case.options)
    assert version.model_checksum == load_model(source, **case.options).info.checksum
    assert_answers("m:1", source, case.rows(), **case.options)
    assert load_model("m", **case.options).info.model == "m:1"


def test_a_pickle_needs_the_users_word_at_the_push_and_at_every_load(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"not": "an estimator"}))
    with pytest.raises(InvalidInput, match="--trust-pickle"):
        pushed("model.pkl", tmp_path)
    pushed("model.pkl", tmp_path, loads=False)
    with pytest.raises(InvalidInput, match="--trust-pickle"):
        load_model("m:1")


def test_a_class_comes_with_the_files_that_are_named_and_is_tried_without_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    (folder / "weights").mkdir()
    (folder / "weights" / "factor.txt").write_text("3")
    (folder / "unrelated.txt").write_text("x")
    (folder / "model.py").write_text(
        "from pathlib import Path\n\n\nclass Model:\n    outputs = ('y',)\n\n    def load(self):\n"
        "        self.factor = int((Path(__file__).parent / 'weights' / 'factor.txt').read_text())\n\n"
        "    def predict(self, batch):\n        return {'y': batch['x'] * self.factor}\n"
    )
    source = f"{folder / 'model.py'}:Model"
    with pytest.raises(InvalidInput, match=r"factor\.txt.*--no-check"):
        pushed(source, tmp_path)
    version = pushed(source, tmp_path, also=[str(folder / "weights")])
    assert [file.path for file in version.files] == ["model.py", "weights/factor.txt"]
    assert columns("m", [{"x": 2.0}])["y"].tolist() == [6.0]
    with pytest.raises(InvalidInput, match="--with"):
        pushed(source, tmp_path, also=[str(tmp_path / "scratch")])


def test_a_version_can_be_pushed_again_under_another_name_with_its_lineage(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("class M:\n    def load(self):\n        pass\n\n    predict = dict\n")
    first = pushed("model.py:M", tmp_path)
    again = registry_at().push("n", artifact_of("m:1", tmp_path / "scratch"))
    assert (again.parent, again.checksum, again.entry) == ("m:1", first.checksum, first.entry)


@pytest.mark.parametrize("source", ["http://host:8000/v1#m", "json:JSONDecoder", "no-such-file.onnx", "who/knows"])
def test_what_has_no_files_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(InvalidInput, match="SOURCE"):
        pushed(source, tmp_path)


# Hugging Face


def cached(hub: Path, folder: Path) -> Path:
    """An entry as huggingface_hub lays it out: links to blobs."""
    entry = hub / "models--org--tiny"
    snapshot = entry / "snapshots" / "abc123"
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        blob = entry / "blobs" / f"blob-{path.name}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(path.read_bytes())
        link = snapshot / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text("abc123")
    return entry


def test_a_model_in_hugging_faces_cache_is_pushed_without_weights_for_other_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_models import make_folder

    folder = make_folder(tmp_path / "source", "bert")
    (folder / "pytorch_model.bin").write_bytes(b"the same again")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"and again")
    entry = cached(tmp_path / "hub", folder)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    version = pushed("org/tiny", tmp_path)
    names = {file.path for file in version.files}
    assert "model.safetensors" in names
    assert not names & {"pytorch_model.bin", "onnx/model.onnx"}
    assert_answers("m:1", str(folder), ["a text", "and another"])
    assert artifact_of(str(entry), tmp_path / "scratch").files == artifact_of("org/tiny", tmp_path / "scratch").files
    (entry / "blobs" / "blob-model.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"model\.safetensors is missing"):
        pushed("org/tiny", tmp_path)


def test_a_language_model_is_known_as_one_without_being_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    assert pushed(str(folder), tmp_path, loads=False).is_llm
    assert is_llm("m:1")


# MLflow


def mlmodel(folder: Path, text: str) -> Path:
    package("yaml")
    (folder / "MLmodel").write_text(
        f"flavors:\n  python_function:\n    loader_module: x\n{text}mlflow_version: 3.1.0\n"
    )
    return folder


@pytest.mark.parametrize(
    ("case", "flavour", "file"),
    [
        ("skops", "  sklearn:\n    pickled_model: model.skops\n", "model.skops"),
        ("pickle-texts", "  sklearn:\n    pickled_model: model.pkl\n    code: null\n", "model.pkl"),
        ("xgboost-ubj", "  xgboost:\n    data: model.xgb\n    model_format: xgb\n", "model.xgb"),
        ("xgboost-json", "  xgboost:\n    data: model.xgb\n", "model.xgb"),
        ("lightgbm", "  lightgbm:\n    data: model.lgb\n", "model.lgb"),
        ("catboost", "  catboost:\n    data: model.cb\n", "model.cb"),
        ("onnx", "  onnx:\n    data: model.onnx\n", "model.onnx"),
    ],
)
def test_an_mlflow_folder_is_read_by_its_flavour(tmp_path: Path, case: str, flavour: str, file: str) -> None:
    found = next(each for each in CASES if each.name == case)
    for needed in found.needs:
        package(needed)
    source = Path(found.make(tmp_path / "source"))
    folder = tmp_path / "mlflow"
    folder.mkdir()
    (folder / file).write_bytes(source.read_bytes())
    (folder / "requirements.txt").write_text("scikit-learn\n")
    version = pushed(str(mlmodel(folder, flavour)), tmp_path, **found.options)
    assert len(version.files) == 1
    assert_answers("m:1", str(source), found.rows(), **found.options)


@pytest.mark.parametrize("flavour", ["sentence_transformers", "transformers"])
def test_an_mlflow_folder_of_an_encoder_comes_with_its_tokenizer(tmp_path: Path, flavour: str) -> None:
    from tiny_models import make_folder

    folder = make_folder(tmp_path / "source", "bert")
    model = tmp_path / "mlflow" / ("model" if flavour == "transformers" else "model.sentence_transformer")
    tokenizer = tmp_path / "mlflow" / "components" / "tokenizer" if flavour == "transformers" else model
    for target in (model, tokenizer):
        target.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        (tokenizer if "token" in path.name else model).joinpath(path.name).write_bytes(path.read_bytes())
    more = (
        "    components:\n    - tokenizer\n    model_binary: model\n"
        if flavour == "transformers"
        else "    code: null\n"
    )
    pushed(str(mlmodel(tmp_path / "mlflow", f"  {flavour}:\n{more}")), tmp_path)
    assert_answers("m:1", str(folder), ["a text", "and another"])


def test_a_pyfunc_needs_the_pickle_switch_at_the_push_and_at_every_load(tmp_path: Path) -> None:
    folder = mlmodel(tmp_path / "source", "")
    (folder / "python_model.pkl").write_bytes(b"anything")
    with pytest.raises(InvalidInput, match="--trust-pickle"):
        pushed(str(folder), tmp_path, loads=False)
    version = pushed(str(folder), tmp_path, trust_pickle=True, loads=False)
    assert {file.path for file in version.files} == {
        "twoshift_pyfunc.py",
        "mlflow/MLmodel",
        "mlflow/python_model.pkl",
    }
    with pytest.raises(InvalidInput, match=r"m:1.*--trust-pickle"):
        load_model("m:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flavors: [", "is not valid YAML"),
        ("a: 1", "has no valid `flavors`"),
        ("flavors:\n  sklearn:\n    pickled_model: ../../etc/passwd\n", "is not a file or folder in the same folder"),
        ("flavors:\n  sklearn:\n    pickled_model: gone.pkl\n", "is not a file or folder in the same folder"),
        ("flavors: !!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_a_damaged_mlmodel_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    package("yaml")
    (tmp_path / "source" / "MLmodel").write_text(text)
    with pytest.raises(Broken, match=message):
        pushed(str(tmp_path / "source"), tmp_path)


def test_a_flavour_that_does_not_run_here_is_named(tmp_path: Path) -> None:
    package("yaml")
    (tmp_path / "source" / "MLmodel").write_text("flavors:\n  spark:\n    model_data: sparkml\n")
    with pytest.raises(InvalidInput, match="the flavours of this model: spark"):
        pushed(str(tmp_path / "source"), tmp_path)


def test_a_model_of_mlflows_registry_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InvalidInput, match="pip install mlflow-skinny"):
        pushed("models:/m@champion", tmp_path)


def _class_in(path: Path, body: str) -> Path:
    predict = "    def predict(self, rows):\n        return rows\n"
    path.write_text(f"import os, time\nclass Model:\n    def load(self):\n        {body}\n{predict}")
    return path


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("os._exit(3)", "ended the process that loaded the model: the process exited with code 3"),
        ("os.kill(os.getpid(), 11)", "ended the process that loaded the model: the process was killed by SIGSEGV"),
        ("time.sleep(1e6)", r"did not load within .*--load-timeout"),
        ("raise RuntimeError('no weights')", "no weights"),
    ],
)
def test_a_model_that_ends_or_holds_up_its_process_is_refused_with_what_it_did(
    tmp_path: Path, body: str, told: str
) -> None:
    model = tmp_path / "source" / "bad.py"
    made = artifact_of(f"{_class_in(model, body)}:Model", tmp_path / "scratch")
    limit_s = 3.0 if "sleep" in body else 600.0
    with pytest.raises(TwoshiftError, match=told) as refused:
        checked(made, tmp_path / "scratch", lambda word: loaded_alone(word, False, limit_s))
    assert "scratch" not in str(refused.value)
    assert registry_at().versions("m") == []


def test_a_model_that_is_loaded_in_a_process_of_its_own_is_known_as_one_that_is_loaded_here(tmp_path: Path) -> None:
    model = tmp_path / "source" / "good.py"
    made = artifact_of(f"{_class_in(model, 'print(1)')}:Model", tmp_path / "scratch")
    alone = checked(made, tmp_path / "scratch", lambda word: loaded_alone(word, False, 600.0))
    assert alone == checked(made, tmp_path / "scratch", lambda word: loaded_here(word, False))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("source/bad.py:Model", r": source/bad\.py:\d+: RuntimeError: no weights"),
        ("source/encoder", r"^source/encoder/config\.json: hidden_size is missing; expected a whole number"),
    ],
)
def test_what_is_wrong_with_a_model_is_told_with_the_users_own_path(tmp_path: Path, source: str, told: str) -> None:
    _class_in(tmp_path / "source" / "bad.py", "raise RuntimeError('no weights')")
    (tmp_path / "source" / "encoder").mkdir()
    for name, text in (("config.json", '{"model_type": "bert"}'), ("tokenizer.json", "{}"), ("model.safetensors", "")):
        (tmp_path / "source" / "encoder" / name).write_text(text)
    made = artifact_of(source, tmp_path / "scratch")
    with pytest.raises(InvalidInput, match=told):
        checked(made, tmp_path / "scratch", lambda word: loaded_here(word, False))
