"""What tests of the real server share."""

from __future__ import annotations

from pathlib import Path

import pytest
from user_models import written


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TWOSHIFT_HOME with a user's classes in models.py."""
    pytest.importorskip("httptools")
    made = tmp_path_factory.mktemp("home")
    written(made)
    return made
