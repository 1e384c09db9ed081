"""PyTorch's companions, which transformers and vLLM import wherever they are installed, whether they fit or not."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from typing import Any

from twoshift.extras import needed

__all__ = ["hide_misfits", "needed_transformers"]

_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


def needed_transformers(extra: str, what: str) -> Any:
    """As `needed`."""
    hide_misfits()
    return needed("transformers", extra, what)


def hide_misfits() -> None:
    """Those that do not load beside this PyTorch are from now on as if they were not installed."""
    for name in _COMPANIONS:
        if name in sys.modules or importlib.util.find_spec(name) is None:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception:  # libraries of another build: each fails in its own way
            sys.modules[name] = None  # type: ignore[assignment] - as Python itself marks what is not to be imported
