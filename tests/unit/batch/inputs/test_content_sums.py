"""Checksums of an input, made while the model loads."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from twoshift.batch.inputs import ContentSums, resolve
from twoshift.blobs.local import LocalBlobs

SIZE = 3 << 20


def nothing() -> None:
    """Nobody has asked for the end."""


def test_one_byte_in_the_middle_of_a_large_file_is_another_content(tmp_path: Path) -> None:
    path, told = tmp_path / "a.jsonl", list[str]()
    path.write_bytes(b"a" * SIZE)
    files = resolve((str(path),), lambda _: LocalBlobs(), None)
    sums = ContentSums(lambda _: LocalBlobs(), told.append)
    sums.begin(files)
    (file,) = sums.filled(files, nothing)
    assert file.fingerprint == hashlib.sha256(str(SIZE).encode() + b"a" * SIZE).hexdigest()
    os.utime(path, ns=(1, 1))
    assert sums.of(file) == file.fingerprint
    with path.open("r+b") as changed:
        changed.seek(SIZE // 2 + 17)
        changed.write(b"b")
    assert sums.of(file) != file.fingerprint
    assert "its modification time has changed" in told[0]
    sums.close()


def test_who_has_to_stop_does_not_wait_for_checksums(tmp_path: Path) -> None:
    class SlowBlobs(LocalBlobs):
        def open(self, location: str) -> Any:
            while not stopped:
                os.sched_yield()
            return super().open(location)

    stopped = list[str]()

    def stop() -> None:
        stopped.append("now")
        raise KeyboardInterrupt

    (tmp_path / "a.jsonl").write_bytes(b"a")
    files = resolve((str(tmp_path / "a.jsonl"),), lambda _: LocalBlobs(), None)
    sums = ContentSums(lambda _: SlowBlobs(), lambda _: None)
    sums.begin(files)
    with pytest.raises(KeyboardInterrupt):
        sums.filled(files, stop)
    sums.close()
    assert stopped == ["now"]
