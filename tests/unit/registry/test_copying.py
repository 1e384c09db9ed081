from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from twoshift.errors import InvalidInput
from twoshift.registry.copying import copied


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source" / "sub" / "a.txt").write_text("a")
    return tmp_path / "source"


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "empty"])
def test_a_folder_has_all_files_at_once(source: Path, tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "deep" / "out"
    if is_there:
        folder.mkdir(parents=True)
    copied(source, folder)
    assert (folder / "sub" / "a.txt").read_text() == "a"
    assert [each.name for each in folder.parent.iterdir()] == ["out"]


def test_a_copy_that_fails_leaves_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(InvalidInput, match="No space left"):
        copied(source, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_a_folder_that_somebody_fills_meanwhile_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "theirs").touch()
    with pytest.raises(InvalidInput, match="an empty or new folder"):
        copied(source, tmp_path / "out")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["theirs"]


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_writes_is_not(
    source: Path, tmp_path: Path
) -> None:
    host = socket.gethostname().replace(".", "-")
    gone, living = (tmp_path / f".out.{host}.{owner}.abc.twoshift-tmp" for owner in (2**22 + 1, os.getpid()))
    for each in (gone, living):
        each.mkdir()
    copied(source, tmp_path / "out")
    assert not gone.exists()
    assert living.exists()
