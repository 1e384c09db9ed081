"""A process that is killed at any change of the registry leaves it whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from registry_files import DyingBlobs, Killed, artifact, contents

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import TryLater, TwoshiftError
from twoshift.registry import cleaning, leases
from twoshift.registry.leases import Lease
from twoshift.registry.store import Registry

AFTER = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


def whole(root: Path) -> dict[int, dict[str, str]]:
    """Every version that anybody can see, each read and compared."""
    registry = Registry(str(root), LocalBlobs())
    return {number: contents(registry, "m", number) for number in registry.versions("m")}


@AFTER
def test_a_push_that_is_killed_at_any_change_is_whole_or_not_there(tmp_path: Path, after: bool) -> None:
    one = artifact(tmp_path / "one", a_txt="shared", b_txt="first")
    two = artifact(tmp_path / "two", a_txt="shared", b_txt="second", c_txt="third")
    changes = 0
    for changes in range(1, 100):
        root = tmp_path / f"registry-{changes}"
        Registry(str(root), LocalBlobs()).push("m", one)
        blobs = DyingBlobs(changes, after)
        try:
            Registry(str(root), blobs).push("m", two)
        except Killed:
            pass
        else:
            break
        seen = whole(root)
        assert list(seen) in ([1], [1, 2])
        assert seen[1]["b.txt"] == "first"
        again = Registry(str(root), LocalBlobs()).push("m", two)
        assert again.version == len(seen) + 1
        assert whole(root)[again.version] == {"a.txt": "shared", "b.txt": "second", "c.txt": "third"}
    assert changes > 5


@AFTER
def test_a_removal_that_is_killed_at_any_change_can_be_done_again_and_harms_no_other(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", -1.0)  # whoever cleaned is known to be dead
    one = artifact(tmp_path / "one", a_txt="shared", b_txt="first")
    two = artifact(tmp_path / "two", a_txt="shared", b_txt="second")
    changes = 0
    for changes in range(1, 100):
        root = tmp_path / f"registry-{changes}"
        registry = Registry(str(root), LocalBlobs())
        for each in (one, two):
            registry.push("m", each)
        try:
            Registry(str(root), DyingBlobs(changes, after)).remove("m", 1)
        except Killed:
            pass
        else:
            break
        seen = whole(root)
        assert list(seen) in ([1, 2], [2])
        if 1 in seen:
            registry.remove("m", 1)
        assert registry.push("m", one).version == 3  # a number is never used again
        assert whole(root) == {2: {"a.txt": "shared", "b.txt": "second"}, 3: {"a.txt": "shared", "b.txt": "first"}}
    assert changes > 3


@AFTER
def test_an_alias_that_is_moved_by_a_process_that_is_killed_points_to_the_old_or_the_new_version(
    tmp_path: Path, after: bool
) -> None:
    registry = Registry(str(tmp_path / "registry"), LocalBlobs())
    for name in ("one", "two"):
        registry.push("m", artifact(tmp_path / name, a_txt=name))
    registry.alias("m", "prod", 1)
    with pytest.raises(Killed):
        Registry(registry.root, DyingBlobs(1, after)).alias("m", "prod", 2)
    found = registry.aliases.current("m", "prod")
    assert found is not None
    assert found.version == (2 if after else 1)


def test_files_of_a_push_that_was_killed_go_with_the_next_removal_once_it_is_known_to_be_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(str(tmp_path / "registry"), LocalBlobs())
    for name in ("one", "two"):
        registry.push("m", artifact(tmp_path / name, a_txt=name))
    with pytest.raises(Killed):
        Registry(registry.root, DyingBlobs(3, after=True)).push("m", artifact(tmp_path / "three", a_txt="left behind"))
    left = registry.layout.blob("0").rpartition("/")[0].rpartition("/")[0]
    assert len(registry.blobs.list(left)) == 3
    assert registry.remove("m", 1) == 0  # it may be alive
    monkeypatch.setattr(leases, "LEASE_S", -1.0)
    registry.push("m", artifact(tmp_path / "four", a_txt="four"))
    assert registry.remove("m", 3) > 0
    assert [blob.size_bytes for blob in registry.blobs.list(left)] == [3]


KILLED = """
import os, signal, sys
from pathlib import Path
from twoshift.blobs.local import LocalBlobs
from twoshift.registry import artifact, store

class Dying(LocalBlobs):
    def write_unnamed(self, folder, chunks, location):
        def some():
            yield b"half of it"
            os.kill(os.getpid(), signal.SIGKILL)
        super().write_unnamed(folder, some(), location)

    def list(self, prefix):
        if sys.argv[2] == "clean":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().list(prefix)

registry = store.Registry(sys.argv[1], Dying())
if sys.argv[2] == "clean":
    registry.read_all = lambda refs: ([], {})
    registry.refs = lambda: []
    registry.clean()
path = Path(sys.argv[1], "..", "more.txt")
path.write_text("more")
registry.push("m", artifact.Artifact(".", (artifact.ArtifactFile("more.txt", path),), "here"))
"""


def _killed(root: Path, what: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(root), what], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize("by", ["push", "clean"])
def test_what_a_killed_push_has_left_is_removed_by_the_next_one_or_by_cleaning(tmp_path: Path, by: str) -> None:
    root = tmp_path / "registry"
    registry = Registry(str(root), LocalBlobs())
    registry.push("m", artifact(tmp_path / "one", a_txt="one"))
    _killed(root, "push")
    assert len(list(root.rglob("*.twoshift-tmp"))) == 1
    assert len(list((root / "pushes").iterdir())) == 1
    if by == "push":
        registry.push("m", artifact(tmp_path / "two", a_txt="two"))
    else:
        assert registry.clean() == (0, 1)
        assert list((root / "pushes").iterdir()) == []  # its process is known to be gone
    assert list(root.rglob("*.twoshift-tmp")) == []
    assert registry.damaged(registry.version("m", 1)) == {}


def test_a_cleaner_that_was_killed_does_not_refuse_a_push(tmp_path: Path) -> None:
    root = tmp_path / "registry"
    registry = Registry(str(root), LocalBlobs())
    registry.push("m", artifact(tmp_path / "one", a_txt="one"))
    _killed(root, "clean")
    assert len(list((root / "cleaners").iterdir())) == 1
    assert registry.push("m", artifact(tmp_path / "two", a_txt="two")).version == 2
    assert list((root / "cleaners").iterdir()) == []


def test_a_cleaner_on_another_machine_is_waited_for_until_its_lease_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(str(tmp_path / "registry"), LocalBlobs())
    stamp = tmp_path / "registry" / "cleaners" / "other.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text('{"machine": "another", "process": 1}')
    monkeypatch.setattr(cleaning, "_PATIENCE_S", 0.0)
    with pytest.raises(TryLater, match="is deleting the files of removed versions"):
        registry.push("m", artifact(tmp_path / "one", a_txt="one"))
    long_ago = stamp.stat().st_mtime - leases.LEASE_S - 60
    os.utime(stamp, (long_ago, long_ago))
    assert registry.push("m", artifact(tmp_path / "one", a_txt="one")).version == 1
    assert not stamp.exists()


def test_a_push_that_was_held_for_long_sends_again_what_was_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw a file of another version, was taken for gone, and that version was removed with its files."""
    registry = Registry(str(tmp_path / "registry"), LocalBlobs())
    made = artifact(tmp_path / "one", a_txt="one")
    registry.push("m", made)
    other = Registry(registry.root, LocalBlobs())
    create = other.blobs.create

    def held(location: str, data: bytes) -> bool:
        if "/versions/" in location:
            monkeypatch.setattr(leases, "LEASE_S", -1.0)
            assert registry.remove("m", 1) == len("one")
            monkeypatch.setattr(leases, "_LATE_S", -1.0)
        return create(location, data)

    monkeypatch.setattr(other.blobs, "create", held)
    assert other.push("m", made).version == 2
    assert contents(registry, "m", 2) == {"a.txt": "one"}


def test_a_lease_is_renewed_as_long_as_its_owner_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_RENEW_S", 0.01)
    folder = str(tmp_path / "pushes")
    with Lease(LocalBlobs(), folder) as lease:
        [stamp] = (tmp_path / "pushes").iterdir()
        until(lambda: json.loads(stamp.read_text())["renewals"] > 2)
        assert not lease.was_late
        with Lease(LocalBlobs(), folder) as other:
            assert other.has_company(folder)
        assert not lease.has_company(folder)
    assert list((tmp_path / "pushes").iterdir()) == []


def until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.01)


def test_a_registry_that_cannot_be_written_says_so_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("a file where a folder should be")
    with pytest.raises(TwoshiftError):
        Registry(str(tmp_path / "registry"), LocalBlobs()).push("m", artifact(tmp_path / "one", a_txt="x"))
