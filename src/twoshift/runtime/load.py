"""From what the user calls a model to a model on a device."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twoshift.errors import InvalidInput, UnusableModel
from twoshift.ports import Runtime
from twoshift.runtime.artifacts import full_file
from twoshift.runtime.encoder.kinds import check_file, check_folder
from twoshift.runtime.host_model import HostModel
from twoshift.runtime.llm import is_llm
from twoshift.runtime.python_source import existing_source, is_python_model

if TYPE_CHECKING:
    from twoshift.runtime.encoder.onnx_encoder import OnnxEncoder

__all__ = ["KNOWN_MODELS", "check_named", "load_model"]

KNOWN_MODELS = ("minilm", "smollm")
ACCEPTED = (
    "a built-in model (minilm, smollm), a model folder, an .onnx, .json, .ubj, .txt, .lgb, .cbm or .skops file, "
    "file.py:Class or package.module:Class"
)
_XGBOOST = (".json", ".ubj")
_LIGHTGBM = (".txt", ".lgb")
_CATBOOST = ".cbm"
_PICKLES = (".pkl", ".pickle", ".joblib")
_SUFFIXES = (".onnx", *_XGBOOST, *_LIGHTGBM, _CATBOOST, ".skops", *_PICKLES)
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def check_named(model: str) -> None:
    """Raises InvalidInput where no file, folder or model has this name; looks at names alone, and imports nothing."""
    if model in KNOWN_MODELS or is_llm(model):
        return
    if is_python_model(model):
        source = model.rpartition(":")[0]
        if source.endswith(".py"):
            existing_source(Path(source).expanduser(), model)
        return
    path = Path(model).expanduser()
    if model.strip() and not path.exists():
        raise InvalidInput("model", model, _nearest(model, path))


def load_model(
    model: str,
    *,
    device: str = "auto",
    precision: str | None = None,
    trust_pickle: bool = False,
    threads: int | None = None,
) -> Runtime:
    """The model that `model` names, on a device.

    Raises InvalidInput where the name, the kind of file or an option cannot be used, Broken where a file is damaged.
    Nothing in a model's folder is run, and no pickle is opened without `trust_pickle`.
    """
    options: dict[str, Any] = {"device": device, "precision": precision, "threads": threads}
    if not model.strip():
        raise InvalidInput("model", model, ACCEPTED)
    if is_llm(model):
        todo = "use the model with `twoshift run --prompt` or `twoshift serve`, or name a model that scores rows"
        raise UnusableModel("model", model, f"is a language model; {todo}")
    if model in KNOWN_MODELS:
        return _encoder(model, options)
    if is_python_model(model):
        from twoshift.runtime.python_model import load_python_model

        return load_python_model(model, **options)
    path = Path(model).expanduser()
    if not path.exists():
        raise InvalidInput("model", model, _nearest(model, path))
    if _is_encoder(path):
        return _encoder(str(path), options)
    if path.is_dir():
        check_folder(path)
        raise InvalidInput("model", model, _folder_hint(path))
    return _named(_load_file(full_file(path), options, trust_pickle), model)


def _load_file(path: Path, options: dict[str, Any], trust_pickle: bool) -> HostModel | OnnxEncoder:
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        return _load_onnx(path, options)
    if suffix in _XGBOOST:
        from twoshift.runtime.xgboost_model import load_xgboost

        return load_xgboost(path, **options)
    if suffix in _LIGHTGBM:
        from twoshift.runtime.lightgbm_model import load_lightgbm

        return load_lightgbm(path, **options)
    if suffix == _CATBOOST:
        from twoshift.runtime.catboost_model import load_catboost

        return load_catboost(path, **options)
    if suffix == ".skops" or suffix in _PICKLES:
        from twoshift.runtime.sklearn_model import load_pickle, load_skops

        load = load_skops if suffix == ".skops" else load_pickle
        return load(path, trust_pickle=trust_pickle, **options)
    check_file(path)
    raise InvalidInput(
        "model", str(path), f"a class after the file name: {path}:YourClass" if suffix == ".py" else ACCEPTED
    )


def _load_onnx(path: Path, options: dict[str, Any]) -> HostModel | OnnxEncoder:
    """A graph over texts where its tokenizer lies with it, over plain tensors elsewhere."""
    from twoshift.runtime.encoder.exported import is_exported_encoder, load_exported_encoder

    if is_exported_encoder(path):
        return load_exported_encoder(path, **options)
    from twoshift.runtime.onnx_model import load_onnx

    return load_onnx(path, **options)


def _named(runtime: HostModel | OnnxEncoder, model: str) -> Runtime:
    runtime.info = dataclasses.replace(runtime.info, model=model)  # as the user named it
    return runtime


def _encoder(name: str, options: dict[str, Any]) -> Runtime:
    return importlib.import_module("twoshift.runtime.encoder").load_encoder(name, **options)


def _is_encoder(path: Path) -> bool:
    """Whether it looks like an encoder's folder; the encoders know."""
    try:
        folder = importlib.import_module("twoshift.runtime.encoder.folder")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("twoshift."):
            return False
        raise
    return folder.is_encoder(path)


def _nearest(model: str, path: Path) -> str:
    """What was probably meant, for a name that is nothing here."""
    if _HUB_NAME.fullmatch(model) and path.suffix.lower() not in (*_SUFFIXES, ".py") and not path.parent.exists():
        known = next((name for name in KNOWN_MODELS if name in path.name.lower()), None)
        what = f"the name {known}, if you mean that model" if known else "the local folder of the downloaded model"
        return f"{what}: Twoshift does not download models from a model hub"
    if path.suffix.lower() in (*_SUFFIXES, ".py") or path.parent != Path():
        near = difflib.get_close_matches(path.name, _names_in(path.parent), 1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else f" (looked in {path.parent.absolute()})"
        return f"a file or folder that exists{hint}"
    near = difflib.get_close_matches(model, [*KNOWN_MODELS, *_names_in(Path())], 1)
    return f"{ACCEPTED}; did you mean {near[0]}?" if near else f"{ACCEPTED}; no file, folder or model has this name"


def _names_in(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []


def _folder_hint(path: Path) -> str:
    found = sorted(name for name in _names_in(path) if Path(name).suffix.lower() in _SUFFIXES)
    models = [name for name in found if Path(name).suffix.lower() not in (".json", ".txt")]
    if models:
        return f"the path of the model file: {', '.join(str(path / name) for name in models[:5])}"
    return "a folder with config.json, model.safetensors and tokenizer.json, or a model file"
