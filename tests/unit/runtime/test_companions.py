"""PyTorch's companions that do not fit."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from twoshift.runtime import companions


def test_one_that_does_not_load_is_as_if_it_were_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_misfit.py").write_text("raise OSError('a library of another build')")
    (tmp_path / "torch_fit.py").write_text("works = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(companions, "_COMPANIONS", ("torch_misfit", "torch_fit", "torch_missing"))
    with pytest.raises(OSError, match="another build"):
        importlib.import_module("torch_misfit")
    for _ in range(2):
        companions.hide_misfits()
        assert importlib.util.find_spec("torch_misfit") is None
        assert importlib.util.find_spec("torch_missing") is None
        assert importlib.import_module("torch_fit").works
    for name in ("torch_misfit", "torch_fit"):
        del sys.modules[name]
