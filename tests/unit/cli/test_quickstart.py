"""Sample data in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoshift.quickstart import FILES

Run = Callable[[str], Any]


def test_every_file_is_written_and_named(twoshift: Run, folder: Path) -> None:
    ran = twoshift("quickstart new/tickets")
    assert ran.code == 0
    assert all(name in ran.out for name in FILES)
    assert {path.name for path in (folder / "new" / "tickets").iterdir()} == FILES.keys()
    rows = [json.loads(line) for line in (folder / "new" / "tickets" / "tickets.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [*range(1, 61)]


def test_a_changed_file_is_named_and_nothing_is_written(twoshift: Run, folder: Path) -> None:
    (folder / "quickstart").mkdir()
    (folder / "quickstart" / "job.toml").write_text("mine")
    ran = twoshift("quickstart")
    assert (ran.code, ran.out) == (2, "")
    assert "job.toml" in ran.err
    assert [path.name for path in (folder / "quickstart").iterdir()] == ["job.toml"]


@pytest.mark.parametrize("there", ["file", "file/below"])
def test_what_is_no_folder_is_told_so(twoshift: Run, folder: Path, there: str) -> None:
    (folder / "file").write_text("")
    ran = twoshift(f"quickstart {there}")
    assert ran.code == 2
    assert there in ran.err
    assert "folder that can be written" in ran.err
