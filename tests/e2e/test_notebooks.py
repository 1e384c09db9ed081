"""The notebooks of the documentation, run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the test extra is not installed")
pytest.importorskip("ipykernel", reason="the test extra is not installed")
pytest.importorskip("usearch", reason="the index extra is not installed")
pytest.importorskip("sqlalchemy", reason="the fleet extra is not installed")

import twoshift

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_notebooks_run_and_print_what_they_show(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "run_notebooks.py"), "--check"]
    env = {**os.environ, "PYTHONPATH": str(Path(twoshift.__file__).parents[1]), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=170)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: `make notebooks` stores what they print today"
