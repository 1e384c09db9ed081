"""Versions, aliases and what is refused."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_files import artifact, contents

from sampling import examples
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.registry.artifact import Artifact, ArtifactFile
from twoshift.registry.names import ModelRef, parse_ref
from twoshift.registry.store import Registry
from twoshift.registry.transfer import Bytes


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "registry"), LocalBlobs(), who="me@here")


def pushed(registry: Registry, folder: Path, count: int) -> None:
    for number in range(1, count + 1):
        registry.push("m", artifact(folder / f"v{number}", a_txt=f"version {number}"), f"note {number}")


def test_a_version_has_its_files_and_where_it_came_from(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 2)
    found = registry.find(ModelRef("m"))
    assert (found.ref, found.parent, found.note, found.created_by) == ("m:2", "m:1", "note 2", "me@here")
    assert contents(registry, "m", 1) == {"a.txt": "version 1"}
    assert registry.names() == ["m"]
    assert found.source == str(tmp_path / "v2")


def test_the_same_file_is_stored_once(registry: Registry, tmp_path: Path) -> None:
    first = registry.push("m", artifact(tmp_path / "one", a_txt="same", b_txt="other"))
    second = registry.push("n", artifact(tmp_path / "two", a_txt="same", c_txt="same"))
    assert len(registry.blobs.list(registry.layout.blobs)) == 2
    assert first.checksum != second.checksum
    assert registry.push("n", artifact(tmp_path / "two")).checksum == second.checksum


def test_names_that_are_not_there_are_answered_with_those_that_are(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="none yet"):
        registry.find(ModelRef("m"))
    pushed(registry, tmp_path, 2)
    with pytest.raises(NotFound, match="expected a version of m: 1, 2"):
        registry.find(ModelRef("m", 3))
    with pytest.raises(NotFound, match="none yet; `twoshift models alias m@prod VERSION`"):
        registry.find(ModelRef("m", alias="prod"))
    registry.alias("m", "staging", 1)
    with pytest.raises(NotFound, match="expected an alias of m: m@staging"):
        registry.find(ModelRef("m", alias="prod"))
    with pytest.raises(NotFound, match=r"a model in the registry .*: m"):
        registry.find(ModelRef("x", 1))
    with pytest.raises(NotFound, match="expected a version of m: 1, 2"):
        registry.alias("m", "prod", 7)


def test_a_rollback_is_one_step_and_a_second_one_goes_further_back(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 3)
    for number in (1, 2, 3):
        registry.alias("m", "prod", number)
    assert registry.rollback("m", "prod") == 2
    assert registry.rollback("m", "prod", "bad answers") == 1
    with pytest.raises(InvalidInput, match="the history of this alias has no earlier version"):
        registry.rollback("m", "prod")
    moves = registry.aliases.history("m", "prod")
    assert [(each.version, each.is_rollback) for each in moves] == [
        (1, False), (2, False), (3, False), (2, True), (1, True),
    ]  # fmt: skip
    assert (moves[-1].note, moves[-1].created_by) == ("bad answers", "me@here")


@pytest.fixture(scope="module")
def three_versions(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    folder = tmp_path_factory.mktemp("registry")
    registry = Registry(str(folder / "registry"), LocalBlobs())
    pushed(registry, folder, 3)
    return registry


@settings(max_examples=examples(20))  # each move waits for the disk
@given(st.lists(st.one_of(st.sampled_from([1, 2, 3]), st.none()), max_size=8))
def test_an_alias_behaves_like_a_stack_of_the_versions_it_was_set_to(
    three_versions: Registry, steps: list[int | None]
) -> None:
    registry, alias = three_versions, f"a{uuid.uuid4().hex}"
    stack = list[int]()
    for step in steps:
        if step is not None:
            registry.alias("m", alias, step)
            if stack[-1:] != [step]:
                stack.append(step)
        elif len(stack) > 1:
            stack.pop()
            assert registry.rollback("m", alias) == stack[-1]
        else:
            with pytest.raises(InvalidInput):
                registry.rollback("m", alias)
        found = registry.aliases.current("m", alias)
        assert (found and found.version) == (stack[-1] if stack else None)


def test_a_version_with_an_alias_or_a_server_is_not_removed(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 3)
    registry.alias("m", "prod", 2)
    with pytest.raises(InvalidInput, match="m@prod points to this version"):
        registry.remove("m", 2)
    assert contents(registry, "m", 2) == {"a.txt": "version 2"}
    use = registry.used_by(ModelRef("m", 3), "server", "host:1234 m")
    with pytest.raises(InvalidInput, match="host:1234 m uses this one"):
        registry.remove("m", 3)
    registry.blobs.delete(use)
    assert registry.remove("m", 3) == len("version 3")
    assert registry.versions("m") == [1, 2]


def test_a_server_that_was_killed_on_this_machine_serves_nothing(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 1)
    registry.used_by(ModelRef("m", 1), "job", "out")
    location = registry.used_by(ModelRef("m", 1), "server", "host:1234 m")
    assert {use.kind for use in registry.uses(ModelRef("m", 1))} == {"job", "server"}
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    entry = Path(location)
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "process": ended.pid}))
    assert [use.kind for use in registry.uses(ModelRef("m", 1))] == ["job"]


def test_a_rollback_to_a_version_that_was_removed_says_what_to_do(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 2)
    registry.alias("m", "prod", 1)
    registry.alias("m", "prod", 2)
    registry.remove("m", 1)
    with pytest.raises(InvalidInput, match=r"m:1 was removed.*twoshift models alias m@prod VERSION"):
        registry.rollback("m", "prod")


def test_a_file_that_changes_while_it_is_copied_makes_no_version(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = artifact(tmp_path / "one", a_txt="before")
    write = registry.blobs.write_unnamed

    def changed(folder: str, chunks: Iterator[bytes], location: Callable[[], str | None]) -> bool:
        first = next(chunks)
        (tmp_path / "one" / "a.txt").write_text("afterwards")
        return write(folder, itertools.chain([first], chunks), location)

    monkeypatch.setattr(registry.blobs, "write_unnamed", changed)
    with pytest.raises(Broken, match="was changed while it was pushed"):
        registry.push("m", made)
    assert registry.versions("m") == []


def test_a_file_that_changes_between_its_hash_and_its_upload_makes_no_version(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = artifact(tmp_path / "one", a_txt="before")
    create = registry.blobs.stat

    def changed(location: str) -> object:
        (tmp_path / "one" / "a.txt").write_text("after")
        return create(location)

    monkeypatch.setattr(registry.blobs, "stat", changed)
    monkeypatch.setattr(registry.blobs, "write_unnamed", lambda *_: False)  # as a bucket
    with pytest.raises(Broken, match="was changed while it was pushed"):
        registry.push("m", made)
    assert registry.versions("m") == []
    assert registry.blobs.names(registry.layout.blobs) == set()


def test_damage_is_found(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 1)
    version = registry.version("m", 1)
    blob = Path(registry.layout.blob(version.files[0].sha256))
    blob.write_text("version 9")
    assert "has another checksum" in registry.damaged(version)["a.txt"]
    blob.write_text("short")
    assert "instead of" in registry.damaged(version)["a.txt"]
    blob.unlink()
    assert "is missing" in registry.damaged(version)["a.txt"]


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a//b", "a/./b", "", "a\\b"])
def test_a_record_with_files_outside_its_folder_is_refused(registry: Registry, tmp_path: Path, path: str) -> None:
    pushed(registry, tmp_path, 1)
    record = Path(registry.layout.version("m", 1))
    data = json.loads(record.read_text())
    data["files"][0]["path"] = path
    record.write_text(json.dumps(data))
    with pytest.raises(Broken, match="damaged"):
        registry.version("m", 1)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a:1", "a@b", "minilm", "x" * 65, ".hidden", "a b"])
def test_a_name_that_is_none_is_refused_before_anything_is_written(
    registry: Registry, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidInput, match="NAME"):
        registry.push(name, artifact(tmp_path / "one", a_txt="x"))
    assert not Path(registry.root).exists()


@pytest.mark.parametrize(
    ("word", "ref"),
    [
        ("m", ModelRef("m")),
        ("m:3", ModelRef("m", 3)),
        ("m.v2@prod", ModelRef("m.v2", alias="prod")),
        ("minilm", None),
        ("file.py:Class", None),
        ("m:0", None),
        ("m:x", None),
        ("http://host:8000", None),
        ("a/b", None),
        ("", None),
    ],
)
def test_words_that_name_a_registered_model(word: str, ref: ModelRef | None) -> None:
    assert parse_ref(word) == ref
    assert ref is None or str(ref) == word


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="two files are called a"):
        Artifact(".", (ArtifactFile("a", tmp_path), ArtifactFile("a", tmp_path)), "source")


def test_a_profile_is_written_once_and_goes_with_its_version(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 1)
    ref = ModelRef("m", 1)
    assert registry.profiles.keep(ref, "on.cpu", b"first")
    assert not registry.profiles.keep(ref, "on.cpu", b"second")
    assert registry.profiles.get(ref, "on.cpu") == b"first"
    assert registry.profiles.names(registry.version("m", 1)) == ["on.cpu"]
    registry.remove("m", 1)
    assert registry.profiles.get(ref, "on.cpu") is None
    assert not registry.profiles.keep(ref, "on.cpu", b"third")


def test_a_damaged_record_is_named_and_the_others_are_as_they_were(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 3)
    record = Path(registry.layout.version("m", 2))
    record.write_text(record.read_text()[:40])
    versions, damaged = registry.read_all(registry.refs())
    assert [each.version for each in versions] == [1, 3]
    assert list(damaged) == ["m:2"]
    assert "is damaged" in damaged["m:2"]
    assert registry.remove("m", 1) == 0  # nobody knows which files the damaged one has
    assert registry.clean() == (0, 0)
    assert len(registry.blobs.list(registry.layout.blobs)) == 3
    assert registry.remove("m", 2) == 2 * len("version 1")
    assert registry.versions("m") == [3]
    assert contents(registry, "m", 3) == {"a.txt": "version 3"}


def test_a_push_writes_a_file_anew_that_was_found_damaged(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 1)
    version = registry.version("m", 1)
    blob = Path(registry.layout.blob(version.files[0].sha256))
    blob.write_text("version 9")  # of the same size
    assert registry.damaged(version) != {}
    registry.push("m", artifact(tmp_path / "v1", a_txt="version 1"))
    assert contents(registry, "m", 1) == contents(registry, "m", 2) == {"a.txt": "version 1"}
    assert registry.damage.marked() == set()


def test_a_damaged_file_is_marked_by_who_downloads_it_and_cleared_by_who_finds_it_whole(
    registry: Registry, tmp_path: Path
) -> None:
    pushed(registry, tmp_path, 1)
    [file] = registry.version("m", 1).files
    blob = Path(registry.layout.blob(file.sha256))
    blob.write_text("version 9")
    with pytest.raises(Broken, match="push the same model again"):
        registry.damage.receive(file, tmp_path / "received", Bytes(1, lambda _: None))
    assert registry.damage.marked() == {file.sha256}
    blob.write_text("version 1")
    assert registry.damaged(registry.version("m", 1)) == {}
    assert registry.damage.marked() == set()


def test_an_alias_is_deleted_and_its_history_stays(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 2)
    registry.alias("m", "prod", 1)
    registry.alias("m", "prod", 2)
    assert registry.delete_alias("m", "prod", "not needed") == 2
    with pytest.raises(NotFound, match="an alias of m: there is none yet"):
        registry.find(ModelRef("m", alias="prod"))
    with pytest.raises(NotFound):
        registry.delete_alias("m", "prod")
    with pytest.raises(NotFound):
        registry.rollback("m", "prod")
    moves = registry.aliases.history("m", "prod")
    assert [(each.version, each.is_deletion, each.note) for each in moves][-1] == (0, True, "not needed")
    assert registry.remove("m", 2) == len("version 2")
    registry.alias("m", "prod", 1)
    assert registry.find(ModelRef("m", alias="prod")).version == 1


def test_an_alias_of_a_version_that_is_gone_says_which_and_what_there_is(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 3)
    registry.alias("m", "prod", 2)
    Path(registry.layout.version("m", 2)).unlink()
    with pytest.raises(NotFound, match=r"m@prod.*points to m:2, which was removed; versions of m: 1, 3"):
        registry.find(ModelRef("m", alias="prod"))


def test_a_damaged_alias_is_set_again_and_no_version_is_removed_before(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 2)
    registry.alias("m", "prod", 1)
    Path(registry.layout.move("m", "prod", 1)).write_text("{")
    with pytest.raises(Broken, match="twoshift models alias m@prod VERSION"):
        registry.find(ModelRef("m", alias="prod"))
    with pytest.raises(InvalidInput, match="aliases that can be read"):
        registry.remove("m", 1)
    registry.alias("m", "prod", 2)
    assert registry.find(ModelRef("m", alias="prod")).version == 2
    assert registry.remove("m", 1) > 0


def test_an_evaluation_is_written_once_and_goes_with_its_version(registry: Registry, tmp_path: Path) -> None:
    pushed(registry, tmp_path, 2)
    ref = ModelRef("m", 2)
    assert registry.evaluations.keep(ref, "against", "out/", "m:1", {"rows": 10, "mean": 0.25})
    assert not registry.evaluations.keep(ref, "against", "out/", "m:1", {"rows": 10, "mean": 0.25})
    assert registry.evaluations.keep(ref, "against", "out/", "m:1", {"rows": 11, "mean": 0.25})
    found = registry.evaluations.of(registry.version("m", 2))
    assert sorted((each.against, each.figures["rows"], each.created_by) for each in found) == [
        ("m:1", 10, "me@here"), ("m:1", 11, "me@here"),
    ]  # fmt: skip
    registry.remove("m", 2)
    assert registry.evaluations.of(ref) == []
    with pytest.raises(NotFound):
        registry.evaluations.keep(ref, "against", "out/", "m:1", {})
