from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput, NotFound, TryLater


@pytest.fixture
def blobs() -> LocalBlobs:
    return LocalBlobs()


def staged(blobs: LocalBlobs, location: Path, data: bytes) -> Path:
    path = blobs.staging(str(location)) / "staged"
    path.write_bytes(data)
    return path


def failing(code: int) -> Any:
    def fail(*paths: object) -> None:
        raise OSError(code, os.strerror(code), str(paths[-1]))

    return fail


def test_the_file_is_on_the_disk_before_its_name_and_its_name_before_it_counts(
    blobs: LocalBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, done, link = tmp_path / "part", [], os.link
    path = staged(blobs, part, b"1")
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    monkeypatch.setattr(os, "link", lambda *paths: done.append("link") or link(*paths))
    assert blobs.publish(path, str(part))
    assert done == ["staged", "link", tmp_path.name]


def test_staging_lies_beside_the_part_under_a_name_that_readers_pass_over(blobs: LocalBlobs, tmp_path: Path) -> None:
    assert blobs.staging(f"{tmp_path}/out/part") == tmp_path / "out" / "_twoshift" / "staging"


def test_without_hard_links_a_part_is_renamed_but_never_over_another(
    blobs: LocalBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    part = tmp_path / "part"
    assert blobs.publish(staged(blobs, part, b"1"), str(part))
    second = staged(blobs, part, b"2")
    assert not blobs.publish(second, str(part))
    assert not second.exists()
    assert blobs.create(str(tmp_path / "created"), b"3")
    assert (part.read_bytes(), (tmp_path / "created").read_bytes()) == (b"1", b"3")


def test_a_filesystem_that_can_do_neither_is_refused(
    blobs: LocalBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    path = staged(blobs, tmp_path / "part", b"1")
    with pytest.raises(InvalidInput, match="a filesystem that supports hard links"):
        blobs.publish(path, str(tmp_path / "part"))
    assert path.exists()


def test_a_link_that_was_made_and_then_said_to_exist_is_ours(
    blobs: LocalBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def as_nfs_does(written: Path, path: Path) -> None:
        link(written, path)
        link(written, path)

    monkeypatch.setattr(os, "link", as_nfs_does)
    assert blobs.publish(staged(blobs, tmp_path / "part", b"1"), str(tmp_path / "part"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, TryLater),
        (errno.EDQUOT, TryLater),
        (errno.EXDEV, InvalidInput),
        (errno.EROFS, InvalidInput),
        (errno.EACCES, InvalidInput),
        (errno.EIO, Broken),
    ],
)
def test_what_the_system_says_becomes_what_to_do(
    blobs: LocalBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    path = staged(blobs, tmp_path / "part", b"1")
    monkeypatch.setattr(os, "link", failing(code))
    with pytest.raises(expected):
        blobs.publish(path, str(tmp_path / "part"))
    assert path.exists()


def test_links_are_followed_but_not_in_circles(blobs: LocalBlobs, tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "1").write_bytes(b"1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "2").write_bytes(b"22")
    (tmp_path / "data" / "sub" / "linked").symlink_to(tmp_path / "elsewhere" / "2")
    (tmp_path / "data" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "sub" / "up").symlink_to(tmp_path / "data")
    found = {
        blob.location.removeprefix(f"{tmp_path}/data/"): blob.size_bytes for blob in blobs.list(f"{tmp_path}/data")
    }
    assert found == {"1": 1, "folder/2": 2, "sub/linked": 2}


def test_a_link_that_leads_nowhere_is_no_file(blobs: LocalBlobs, tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"1")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    assert [blob.location for blob in blobs.list(str(tmp_path))] == [f"{tmp_path}/1"]


def test_only_a_folder_that_is_not_there_is_not_found(blobs: LocalBlobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "empty").mkdir()
    for nothing in ("none", "empty"):
        with pytest.raises(NotFound):
            blobs.list(str(tmp_path / nothing))
    with pytest.raises(InvalidInput, match="every parent is a folder") as caught:
        blobs.list(str(tmp_path / "file"))
    assert not isinstance(caught.value, NotFound)


def test_files_are_named_as_the_user_named_the_folder(
    blobs: LocalBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    for prefix, expected in {"": "a/b", ".": "./a/b", "./": "./a/b", "a": "a/b", "a//": "a/b"}.items():
        assert [blob.location for blob in blobs.list(prefix)] == [expected]
    assert (blobs.names("a"), blobs.names("")) == ({"b"}, set())
    assert blobs.create("c", b"2")
    assert blobs.names("") == {"c"}


def test_a_name_of_the_greatest_length_is_written(blobs: LocalBlobs, tmp_path: Path) -> None:
    blobs.write(f"{tmp_path}/{'x' * 255}", b"1")
    with pytest.raises(InvalidInput, match="a shorter file name"):
        blobs.write(f"{tmp_path}/{'x' * 256}", b"1")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_is_not_replaced_by_a_file(blobs: LocalBlobs, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for attempt in (blobs.write, lambda location, _: blobs.open(location), lambda location, _: blobs.read(location)):
        with pytest.raises(InvalidInput, match="a file, not a folder"):
            attempt(f"{tmp_path}/folder", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
