"""The program run in-process, in an empty folder with a home of its own."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from twoshift.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out, parse_constant=_never)


def _never(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("twoshift.cli.progress._QUIET_S", math.inf)  # a slow machine would show progress
    return tmp_path


@pytest.fixture
def twoshift(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Ran]:
    def run(line: str) -> Ran:
        capsys.readouterr()
        code = main(shlex.split(line))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def samples(folder: Path) -> Path:
    """Calls of 6 ms + 0.18 ms per row, up to and including 1,024 rows."""
    path = folder / "samples.csv"
    lines = [f"{2**k},{6 + 0.18 * 2**k}" for k in range(11)]
    path.write_text("\n".join(["batch,ms", *lines]) + "\n")
    return path
