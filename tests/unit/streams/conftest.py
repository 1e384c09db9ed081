"""What tests of streams share."""

from __future__ import annotations

import pytest
from streaming import look_often


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)
