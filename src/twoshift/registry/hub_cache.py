"""Models that Hugging Face's libraries have downloaded: entries of their cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from twoshift.errors import InvalidInput

__all__ = ["cached_snapshot", "is_cache_entry", "wanted_files"]

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_OTHER_WEIGHTS = re.compile(
    r"(pytorch_model|tf_model|flax_model|rust_model|consolidated|training_args|optimizer|scheduler).*"
    r"\.(bin|h5|msgpack|ot|pt|pth|index\.json)"
)
_OTHER_FOLDERS = ("onnx", "openvino", "coreml", "original")


def is_cache_entry(folder: Path) -> bool:
    """Whether it is the folder of a repository in the cache: models--organisation--name."""
    return folder.name.startswith("models--") and (folder / "snapshots").is_dir()


def cached_snapshot(source: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The newest snapshot of `organisation/name`, or of an entry's folder; None where the cache has none.

    Nothing is downloaded. Raises InvalidInput for an entry without a whole snapshot.
    """
    entry = Path(source).expanduser()
    if not is_cache_entry(entry):
        if not _HUB_NAME.fullmatch(source) or entry.exists():
            return None
        entry = _cache(environment) / f"models--{source.replace('/', '--')}"
        if not is_cache_entry(entry):
            return None
    main = entry / "refs" / "main"
    revision = main.read_text().strip() if main.is_file() else ""
    snapshots = [path for path in (entry / "snapshots").iterdir() if path.is_dir()]
    named = [path for path in snapshots if path.name == revision]
    found = named or sorted(snapshots, key=lambda path: path.stat().st_mtime)[-1:]
    if not found:
        accepted = "a downloaded model; the Hugging Face cache has no snapshot of this model: download the model again"
        raise InvalidInput("SOURCE", source, accepted)
    if gone := next((path for path in found[0].rglob("*") if path.is_symlink() and not path.exists()), None):
        raise InvalidInput("SOURCE", source, f"a complete download: {gone.name} is missing; download the model again")
    return found[0]


def wanted_files(names: list[str]) -> list[str]:
    """Of a folder with weights in safetensors: not the same weights for other libraries again."""
    if not any(name.endswith(".safetensors") and "/" not in name for name in names):
        return names
    return [
        name
        for name in names
        if not (name.partition("/")[0] in _OTHER_FOLDERS and "/" in name) and not _OTHER_WEIGHTS.fullmatch(name)
    ]


def _cache(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen).expanduser()
    if chosen := environment.get("HF_HOME"):
        return Path(chosen).expanduser() / "hub"
    return Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"
