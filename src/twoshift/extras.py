"""Packages that only some installations have."""

from __future__ import annotations

import importlib
from typing import Any

from twoshift.errors import InvalidInput

__all__ = ["needed"]


def needed(module: str, extra: str, what: str, field: str = "model") -> Any:
    """An optional package's module; raises InvalidInput that says which extra to install for `what`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise InvalidInput(
            field, what, f"the package {package}, which is not installed: pip install 'twoshift[{extra}]'"
        ) from error
