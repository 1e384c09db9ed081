"""An MLflow model folder as an artifact: what its MLmodel file says, without importing MLflow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.registry.artifact import Artifact, ArtifactFile, files_below
from twoshift.registry.records import is_inside

__all__ = ["MLMODEL", "is_registry_uri", "mlflow_artifact", "mlflow_download"]

MLMODEL = "MLmodel"
_MOST_BYTES = 10 << 20  # of an MLmodel file: some hold a signature of thousands of columns
_FILE_FLAVOURS = ("xgboost", "lightgbm", "catboost", "onnx", "sklearn")
_FOLDER_FLAVOURS = {"sentence_transformers": "model.sentence_transformer", "transformers": "model"}
_SUFFIXES = {".cb": ".cbm"}
_PYFUNC = "python_function"
_WRAPPER = "twoshift_pyfunc.py"


def is_registry_uri(source: str) -> bool:
    """Whether it is a model of an MLflow registry or run: models:/name@alias, runs:/..."""
    return source.startswith(("models:/", "runs:/"))


def mlflow_download(source: str, folder: Path) -> Path:
    """The model's folder, which MLflow itself downloads; raises NotInstalled, InvalidInput."""
    try:
        mlflow = needed("mlflow", "mlflow", source, "SOURCE")
        return Path(mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=str(folder)))
    except (InvalidInput, ImportError):
        raise
    except Exception as error:  # MLflow and its stores raise errors of many kinds
        told = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise InvalidInput("SOURCE", source, f"a model URI that MLflow can resolve ({told})") from error


def mlflow_artifact(folder: Path, source: str, trust_pickle: bool, scratch: Path) -> Artifact:
    """The folder's model; raises InvalidInput where it has no flavour that runs here, Broken where it is damaged.

    A flavour of a library comes before pyfunc, which runs code from the folder.
    """
    flavours = _flavours(folder)
    for name in _FILE_FLAVOURS:
        if name in flavours:
            return _file_artifact(folder, name, flavours[name], source)
    for name, usual in _FOLDER_FLAVOURS.items():
        if name in flavours:
            return _folder_artifact(folder, _place(folder, flavours[name], usual), source)
    if _PYFUNC not in flavours:
        accepted = f"a model with the flavour {', '.join((*_FILE_FLAVOURS, *_FOLDER_FLAVOURS))} or pyfunc"
        raise InvalidInput("SOURCE", source, f"{accepted}; the flavours of this model: {', '.join(flavours) or 'none'}")
    if not trust_pickle:
        accepted = "--trust-pickle for a pyfunc model, if you trust the author: loading the model runs its code"
        raise InvalidInput("SOURCE", source, accepted)
    return _pyfunc_artifact(folder, source, scratch)


def _flavours(folder: Path) -> dict[str, Any]:
    yaml = needed("yaml", "mlflow", str(folder), "SOURCE")
    path = folder / MLMODEL
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Broken(f"{path} is too large; expected a YAML file of at most {_MOST_BYTES:,} bytes")
        found = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise Broken(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise Broken(f"{path} is not valid YAML ({str(error).partition(chr(10))[0]})") from error
    flavours = found.get("flavors") if isinstance(found, dict) else None
    if not isinstance(flavours, dict):
        raise Broken(f"{path} has no valid `flavors`; expected a mapping from the name of each flavor to its settings")
    return {str(name): each if isinstance(each, dict) else {} for name, each in flavours.items()}


def _place(folder: Path, flavour: dict[str, Any], usual: str) -> Path:
    """Where a flavour keeps its model; raises Broken where that is not in the folder."""
    named = next((flavour[key] for key in ("pickled_model", "data", "model_binary") if flavour.get(key)), usual)
    path = folder / str(named)
    if not is_inside(str(named)) or not path.exists():
        raise Broken(f"{folder / MLMODEL} names {str(named)[:80]!r}, which is not a file or folder in the same folder")
    return path


def _file_artifact(folder: Path, name: str, flavour: dict[str, Any], source: str) -> Artifact:
    path = _place(folder, flavour, "model.onnx" if name == "onnx" else "model.pkl")
    if path.is_dir():  # xgboost and lightgbm of old, ONNX with its weights beside it
        inside = [each for each in files_below(path) if each.source.suffix in (".onnx", ".xgb", ".lgb", ".ubj")]
        if len(inside) != 1:
            raise Broken(f"{path} contains {len(inside)} model files; expected exactly one")
        path = inside[0].source
    entry = _xgboost_name(path) if name == "xgboost" else f"{path.stem}{_SUFFIXES.get(path.suffix, path.suffix)}"
    beside = [each for each in files_below(path.parent) if each.source != path] if name == "onnx" else []
    kept = [each for each in beside if "/" not in each.path and each.path not in _ABOUT]
    return Artifact(entry, (ArtifactFile(entry, path), *kept), source)


_ABOUT = (MLMODEL, "conda.yaml", "python_env.yaml", "requirements.txt", "input_example.json")


def _xgboost_name(path: Path) -> str:
    """As XGBoost's own suffixes tell the formats: MLflow calls them all model.xgb."""
    with path.open("rb") as file:
        begin = file.read(64)
    if begin[:1] != b"{":
        accepted = "a model saved by XGBoost 2.1 or newer: load the model with that version and save it as model.ubj"
        raise InvalidInput("SOURCE", str(path), accepted)
    return f"{path.stem}.json" if begin[1:].lstrip()[:1] == b'"' else f"{path.stem}.ubj"


def _folder_artifact(folder: Path, model: Path, source: str) -> Artifact:
    """The model's folder with its tokenizer, which MLflow keeps beside it."""
    files = {each.path: each for each in files_below(model)}
    tokenizer = folder / "components" / "tokenizer"
    if tokenizer.is_dir():
        files = {**{each.path: each for each in files_below(tokenizer)}, **files}
    return Artifact(".", tuple(files.values()), source)


def _pyfunc_artifact(folder: Path, source: str, scratch: Path) -> Artifact:
    with tempfile.NamedTemporaryFile("w", dir=scratch, suffix=".py", delete=False) as made:
        made.write(_SOURCE)
    files = [ArtifactFile(f"mlflow/{each.path}", each.source) for each in files_below(folder)]
    wrapper = ArtifactFile(_WRAPPER, Path(made.name))
    return Artifact(f"{_WRAPPER}:PyFunc", (wrapper, *files), source, needs_trust=True)


_SOURCE = '''"""Runs the MLflow model beside this file; written by `twoshift models push`."""

from pathlib import Path

import numpy as np


class PyFunc:
    outputs = ("prediction",)

    def load(self):
        from mlflow import pyfunc

        self.model = pyfunc.load_model(str(Path(__file__).parent / "mlflow"))

    def predict(self, batch):
        import pandas as pd

        found = self.model.predict(pd.DataFrame({name: list(values) for name, values in batch.items()}))
        return {"prediction": np.asarray(found)}
'''
