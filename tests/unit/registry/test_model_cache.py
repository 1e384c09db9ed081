"""The verified cache: whole or not there, within its limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from registry_files import artifact

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput
from twoshift.registry.cache import ModelCache
from twoshift.registry.records import Version, VersionFile
from twoshift.registry.store import Registry
from twoshift.registry.transfer import Bytes, received


class Source:
    """A registry of which downloads are counted, and cut or damaged on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = Registry(str(folder / "registry"), LocalBlobs())
        self.received = list[str]()
        self.fault: Callable[[Path], None] | None = None

    def push(self, name: str, **files: str) -> Version:
        return self.registry.push(name, artifact(self.folder / name, **files))

    def receive(self, file: VersionFile, target: Path, seen: Bytes) -> None:
        self.received.append(file.path)
        if self.fault is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.fault(target)
        received(self.registry.blobs, self.registry.layout.blob(file.sha256), file, target, seen)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def cache_of(folder: Path, limit: float = 1e9) -> ModelCache:
    return ModelCache(folder / "cache", limit)


def fetch(cache: ModelCache, version: Version, source: Source) -> Path:
    return cache.fetch(version, source.receive, lambda _share: None)


def test_what_was_fetched_is_not_fetched_again(source: Source, tmp_path: Path) -> None:
    version = source.push("m", a_txt="one", b_txt="two")
    assert cache_of(tmp_path).folder(version) is None
    folder = fetch(cache_of(tmp_path), version, source)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a.txt": "one", "b.txt": "two"}
    assert cache_of(tmp_path).folder(version) == folder
    assert fetch(cache_of(tmp_path), version, source) == folder
    assert sorted(source.received) == ["a.txt", "b.txt"]


def test_a_download_that_is_cut_or_damaged_is_never_there(source: Source, tmp_path: Path) -> None:
    version = source.push("m", a_txt="one", b_txt="two")

    def cut(target: Path) -> None:
        target.write_text("on")
        raise ConnectionError("cut")

    source.fault = cut
    with pytest.raises((ConnectionError, InvalidInput)):
        fetch(cache_of(tmp_path), version, source)
    assert cache_of(tmp_path).folder(version) is None
    source.fault = None
    blob = Path(source.registry.layout.blob(version.files[0].sha256))
    blob.write_text("ano")
    with pytest.raises(Broken, match="damaged"):
        fetch(cache_of(tmp_path), version, source)
    assert cache_of(tmp_path).folder(version) is None
    blob.write_text("one")
    assert (fetch(cache_of(tmp_path), version, source) / "a.txt").read_text() == "one"
    assert list((tmp_path / "cache" / "incoming").iterdir()) == []


def test_what_a_killed_process_has_left_is_removed(source: Source, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "incoming" / "0123"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    fetch(cache_of(tmp_path), source.push("m", a_txt="one"), source)
    assert not left.exists()


@pytest.mark.parametrize("damage", ["shorter", "gone", "rewritten"])
def test_a_file_that_was_changed_since_is_fetched_again(source: Source, tmp_path: Path, damage: str) -> None:
    version = source.push("m", a_txt="one")
    path = fetch(cache_of(tmp_path), version, source) / "a.txt"
    path.chmod(0o644)
    match damage:
        case "gone":
            path.unlink()
        case "shorter":
            path.write_text("on")
        case _:
            path.write_text("eno")
            os.utime(path, ns=(1, 1))
    cache = cache_of(tmp_path)
    assert cache.folder(version) is None
    assert (fetch(cache, version, source) / "a.txt").read_text() == "one"


def test_a_bit_that_has_flipped_is_found_where_all_is_read(source: Source, tmp_path: Path) -> None:
    version = source.push("m", a_txt="one")
    cache = cache_of(tmp_path)
    assert cache.damaged(version) is None
    path = fetch(cache, version, source) / "a.txt"
    assert cache.damaged(version) == {}
    seen = path.stat()
    path.chmod(0o644)
    path.write_text("onf")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert list(cache.damaged(version) or ()) == ["a.txt"]


def test_files_that_another_version_has_are_not_received_again(source: Source, tmp_path: Path) -> None:
    one, two = source.push("m", a_txt="shared", b_txt="1"), source.push("n", a_txt="shared", c_txt="2")
    cache = cache_of(tmp_path)
    fetch(cache, one, source)
    folder = fetch(cache, two, source)
    assert sorted(source.received) == ["a.txt", "b.txt", "c.txt"]
    assert (folder / "a.txt").read_text() == "shared"


def test_what_was_not_used_for_longest_makes_room(source: Source, tmp_path: Path) -> None:
    versions = [source.push(f"m{number}", a_txt=f"{number}" * 100) for number in range(4)]
    for at, version in enumerate(versions[:3]):
        folder = fetch(cache_of(tmp_path, 300), version, source)  # each of its own: nothing stays in use
        os.utime(folder.parent / "used", (at, at))
    assert cache_of(tmp_path).folder(versions[0]) is not None  # used just now
    fetch(cache_of(tmp_path, 300), versions[3], source)
    here = [cache_of(tmp_path).folder(each) is not None for each in versions]
    assert here == [True, False, True, True]


def test_what_a_process_uses_stays_and_a_limit_that_is_too_small_says_so(source: Source, tmp_path: Path) -> None:
    used, other = source.push("m", a_txt="1" * 100), source.push("n", a_txt="2" * 100)
    cache = cache_of(tmp_path, 150)
    folder = fetch(cache, used, source)
    with pytest.raises(InvalidInput, match=r"TWOSHIFT_MODEL_CACHE.*at least 200 bytes"):
        fetch(cache_of(tmp_path, 150), other, source)
    assert folder.exists()
    with pytest.raises(InvalidInput, match="at least 100 bytes"):
        ModelCache(tmp_path / "small", 50).fetch(other, source.receive, lambda _: None)


def test_a_name_is_remembered_for_when_the_registry_does_not_answer(source: Source, tmp_path: Path) -> None:
    version = source.push("m", a_txt="one")
    cache = cache_of(tmp_path)
    assert cache.recall("s3://a", "m@prod") is None
    cache.remember("s3://a", "m@prod", version)
    assert cache.recall("s3://a", "m@prod") == version
    assert cache.recall("s3://b", "m@prod") is None


PROGRAM = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from test_model_cache import Source, cache_of, fetch
source = Source(Path(sys.argv[1]))
fetch(cache_of(Path(sys.argv[1])), source.registry.version("m", 1), source)
print(len(source.received), flush=True)
"""


@pytest.mark.slow
def test_several_processes_that_start_together_download_once(source: Source, tmp_path: Path) -> None:
    source.push("m", a_txt="x" * 1_000_000)
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), "-", str(Path(__file__).parent), *sys.path]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(process.communicate(timeout=100)[0].strip() for process in started) == ["0", "0", "1"]
