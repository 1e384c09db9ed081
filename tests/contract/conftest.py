"""What suites of several stores share."""

from __future__ import annotations

import os
import subprocess
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


@pytest.fixture
def often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams look often; and Kafka is asked at once, not after the half second for which it holds a request back."""
    from streaming import look_often  # Arrow comes with it

    look_often(monkeypatch)
    (tmp_path / "often.properties").write_text("fetch.wait.max.ms=10\n")
    monkeypatch.setenv("KAFKA_CONFIG", str(tmp_path / "often.properties"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds a megabyte."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], capture_output=True)
    if made.returncode:
        pytest.skip(f"no small disk here: {made.stderr.decode().strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)
