"""What suites of several stores share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from twoshift.store.database import Database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty one of each kind; PostgreSQL is a real one."""
    from twoshift.store.database import Database  # sqlalchemy: an extra

    is_file = request.param == "sqlite"
    made = Database(f"sqlite:///{tmp_path}/state.db" if is_file else request.getfixturevalue("postgres").url())
    yield made
    made.close()
