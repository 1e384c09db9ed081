"""Which files of a folder are pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from twoshift.errors import InvalidInput
from twoshift.registry.artifact import files_below


def test_links_are_followed_and_hidden_files_left_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/w.bin").write_bytes(b"w")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "a").symlink_to(tmp_path / "outside")
    (folder / "b").symlink_to(tmp_path / "outside")
    assert [each.path for each in files_below(folder)] == ["a/w.bin", "b/w.bin"]


@pytest.mark.parametrize("target", [".", ".."])
def test_a_link_to_a_folder_that_contains_it_is_refused(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "model/deep"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(target)
    with pytest.raises(InvalidInput, match="loop"):
        list(files_below(tmp_path / "model"))


def test_a_link_to_nothing_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "w.bin").symlink_to("/nowhere/w.bin")
    with pytest.raises(InvalidInput, match=r"w\.bin.*/nowhere/w\.bin"):
        list(files_below(tmp_path))
