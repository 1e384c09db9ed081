"""A process that is killed at any change of the registry leaves it whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from registry_files import DyingBlobs, Killed, artifact, contents

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import TwoshiftError
from twoshift.registry import cleaning
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
    monkeypatch.setattr(cleaning, "_ABANDONED_CLEANING_S", -1.0)  # whoever cleaned is known to be dead
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
    monkeypatch.setattr(cleaning, "_ABANDONED_PUSH_S", -1.0)
    registry.push("m", artifact(tmp_path / "four", a_txt="four"))
    assert registry.remove("m", 3) > 0
    assert [blob.size_bytes for blob in registry.blobs.list(left)] == [3]


def test_a_registry_that_cannot_be_written_says_so_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("a file where a folder should be")
    with pytest.raises(TwoshiftError):
        Registry(str(tmp_path / "registry"), LocalBlobs()).push("m", artifact(tmp_path / "one", a_txt="x"))
