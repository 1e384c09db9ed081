"""What `models push` takes: anything that runs here, an entry of Hugging Face's cache, an MLflow model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from twoshift.errors import Broken, Inapplicable, InvalidInput, NotInstalled, UnusableModel
from twoshift.registry.artifact import Artifact, ArtifactFile, files_below
from twoshift.registry.hub_cache import cached_snapshot, wanted_files
from twoshift.registry.mlflow_folder import MLMODEL, is_registry_uri, mlflow_artifact, mlflow_download
from twoshift.runtime.encoder.exported import is_exported_encoder, text_folder
from twoshift.runtime.encoder.folder import MINILM, find_minilm
from twoshift.runtime.llm import is_llm, llm_folder
from twoshift.runtime.llm.remote import is_address
from twoshift.runtime.llm.smollm import SMOLLM, smollm_folder
from twoshift.runtime.load import check_named
from twoshift.runtime.onnx_file import read_onnx
from twoshift.runtime.python_source import is_python_model
from twoshift.wiring.registered_models import found_version, local_model
from twoshift.wiring.trial_load import LoadedFacts

__all__ = ["artifact_of", "checked"]

_COPIED_BYTES = 1 << 20  # of a file that is tried: larger ones are links
_WEIGHTS = (".onnx", ".safetensors", ".bin", ".h5", ".msgpack", ".pt", ".pth", ".onnx_data", ".data")


def artifact_of(
    source: str, scratch: Path, *, trust_pickle: bool = False, also: Sequence[str] = (), registry: str | None = None
) -> Artifact:
    """The files of a model, and what of them is loaded; raises InvalidInput. `scratch` is for files that are made."""
    made = _artifact(source, scratch, trust_pickle, registry)
    return replace(made, files=(*made.files, *_more_files(also, source))) if also else made


def _artifact(source: str, scratch: Path, trust_pickle: bool, registry: str | None) -> Artifact:
    if is_registry_uri(source):
        return _folder(mlflow_download(source, scratch), source, trust_pickle, scratch)
    if is_address(source):
        raise InvalidInput("SOURCE", source, "a model that consists of files: this model runs on another server")
    if source in (MINILM, SMOLLM):
        return _folder(find_minilm() if source == MINILM else smollm_folder(), source, trust_pickle, scratch)
    if (snapshot := cached_snapshot(source)) is not None:
        return _folder(snapshot, source, trust_pickle, scratch)
    if (version := found_version(source, registry)) is not None:
        folder = local_model(source, registry, trust_pickle=True).folder
        assert folder is not None  # noqa: S101 - it is a registered one
        files = tuple(files_below(folder))
        return Artifact(version.entry, files, source, version.ref, version.needs_trust)
    if is_python_model(source):
        return _python(source)
    path = Path(source).expanduser()
    if not path.is_dir():
        _check(source)
        return _onnx(path, source) if path.suffix.lower() == ".onnx" else _file(path, source)
    return _folder(path, source, trust_pickle, scratch)


def _check(source: str) -> None:
    try:
        check_named(source)
    except InvalidInput as error:
        raise error.renamed("SOURCE") from None


def _folder(path: Path, source: str, trust_pickle: bool, scratch: Path) -> Artifact:
    if (path / MLMODEL).is_file():
        return mlflow_artifact(path, source, trust_pickle, scratch)
    files = {each.path: each for each in files_below(path)}
    return Artifact(".", tuple(files[name] for name in wanted_files(list(files))), source)


def _file(path: Path, source: str) -> Artifact:
    return Artifact(path.name, (ArtifactFile(path.name, path),), source)


def _python(source: str) -> Artifact:
    file, _, name = source.rpartition(":")
    if not file.endswith(".py"):
        raise InvalidInput(
            "SOURCE", source, "a class in a file (file.py:Class), because the registry does not copy installed packages"
        )
    _check(source)
    path = Path(file).expanduser()
    return Artifact(f"{path.name}:{name}", (ArtifactFile(path.name, path),), source)


def _onnx(path: Path, source: str) -> Artifact:
    """The graph, its weights in other files, and its tokenizer's folder."""
    root, weights = path.absolute().parent, read_onnx(path).files
    small = list[ArtifactFile]()
    if is_exported_encoder(path):
        root = text_folder(path) or root
        small = [each for each in files_below(root) if each.source.suffix not in _WEIGHTS]
    files = {each.path: each for each in small}
    for each in weights:
        name = Path(os.path.relpath(each.absolute(), root)).as_posix()
        files[name] = ArtifactFile(name, each)
    return Artifact(path.absolute().relative_to(root).as_posix(), tuple(files.values()), source)


def _more_files(also: Sequence[str], source: str) -> list[ArtifactFile]:
    """Files and folders that the model needs, by their names beside it."""
    beside = Path(source.rpartition(":")[0] if is_python_model(source) else source).expanduser().absolute().parent
    found = list[ArtifactFile]()
    for each in also:
        path = Path(each).expanduser().absolute()
        if not path.exists() or not path.is_relative_to(beside):
            raise InvalidInput("--with", each, f"an existing file or folder in {beside}, the folder of the model")
        name = path.relative_to(beside).as_posix()
        found += files_below(path, f"{name}/") if path.is_dir() else [ArtifactFile(name, path)]
    return found


def checked(artifact: Artifact, scratch: Path, load: Callable[[str], LoadedFacts] | None) -> Artifact:
    """The artifact with what is known of it once it was loaded, from its own files alone; raises what loading raises.

    A language model's folder is read and not loaded. Without `load`, only what kind it is.
    """
    folder = scratch / "checked"
    for file in artifact.files:
        _laid_out(file, folder / file.path)
    word = str(folder) if artifact.entry == "." else str(folder / artifact.entry)
    artifact = replace(artifact, is_llm=is_llm(word))
    if load is None:
        return artifact
    try:
        if artifact.is_llm:
            llm_folder(word)
            return artifact
        found = load(word)
    except InvalidInput as error:
        accepted = error.accepted.replace(str(folder), _place(artifact))
        accepted += " (--no-check pushes the model without this check)"
        if str(folder) in error.field:  # a place in a file of the model
            raise InvalidInput(error.field.replace(str(folder), _place(artifact)), error.value, accepted) from error
        kind = type(error) if isinstance(error, Inapplicable | NotInstalled | UnusableModel) else InvalidInput
        raise kind("SOURCE", artifact.source, accepted) from error
    except Broken as error:
        raise type(error)(str(error).replace(str(folder), _place(artifact))) from error
    return replace(artifact, runtime=found.runtime, outputs=found.outputs, model_checksum=found.checksum)


def _place(artifact: Artifact) -> str:
    """Where the user has the files: the folder of a file or of a class, else the source itself."""
    file = Path(artifact.source.rpartition(":")[0] or artifact.source)
    return str(file.parent) if file.is_file() else artifact.source


def _laid_out(file: ArtifactFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.source.stat().st_size <= _COPIED_BYTES:  # a class that is a link would find its neighbours
        shutil.copyfile(file.source, target)
    else:
        target.symlink_to(file.source.resolve())
