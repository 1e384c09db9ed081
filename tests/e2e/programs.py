"""The program that tests start: that of the sources which the tests import, wherever another one is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import twoshift

__all__ = ["PROGRAM", "environment", "python_path"]

PROGRAM = str(Path(sys.executable).with_name("twoshift"))


def python_path(*folders: str) -> str:
    """PYTHONPATH with these folders before the sources under test."""
    return os.pathsep.join((*folders, str(Path(twoshift.__file__).parents[1])))


def environment(home: Path, **more: str) -> dict[str, str]:
    """All that a started program knows of this one's environment."""
    path = os.environ.get("PATH", "")
    return {"TWOSHIFT_HOME": str(home), "PATH": path, "PYTHONPATH": python_path(), **more}
