"""The program that tests start: that of the sources which the tests import, wherever another one is installed."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import twoshift
from twoshift.cli import main

__all__ = ["PROGRAM", "command", "environment", "python_path"]

_LEAN = str(Path(__file__).with_name("lean"))  # where pandas is not
PROGRAM = str(Path(sys.executable).with_name("twoshift"))


def python_path(*folders: str, lean: bool = True) -> str:
    """PYTHONPATH with these folders before the sources under test; `lean`: without pandas."""
    return os.pathsep.join((*folders, *([_LEAN] if lean else []), str(Path(twoshift.__file__).parents[1])))


def environment(home: Path, **more: str) -> dict[str, str]:
    """All that a started program knows of this one's environment."""
    path = os.environ.get("PATH", "")
    return {"TWOSHIFT_HOME": str(home), "PATH": path, "PYTHONPATH": python_path(), **more}


def command(
    *words: str, env: Mapping[str, str] = {}, cwd: Path | None = None, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command does, in this process: a program each time would take the machine. Workers of a job are forks.

    `given` is what it reads from its standard input.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for name, value in env.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        if given is not None:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8"))
        if words[:1] == ("run",):
            from forked_pool import ForkedPool  # Arrow comes with it

            patch.setattr("twoshift.wiring.job_workers.LocalPool", ForkedPool)
        code = main(words)
    said, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # pyright: ignore[reportAttributeAccessIssue]
    return subprocess.CompletedProcess(words, code, said, told)
