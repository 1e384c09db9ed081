"""A registry that release 0.1 has written, and one of a newer release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from registry_files import artifact, contents

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken
from twoshift.registry.names import ModelRef
from twoshift.registry.store import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    shutil.copytree(Path(__file__).parent / "release_0_1", tmp_path / "registry")
    return Registry(str(tmp_path / "registry"), LocalBlobs())


def test_versions_aliases_and_files_of_release_0_1_are_as_they_were(registry: Registry) -> None:
    assert registry.exists
    assert (registry.names(), registry.versions("doubled")) == (["doubled"], [1, 2])
    found = registry.find(ModelRef("doubled", alias="prod"))
    assert (found.version, found.note, found.created_by) == (2, "three times", "ann@laptop")
    assert [move.version for move in registry.aliases.history("doubled", "prod")] == [1, 2]
    assert "2.0 * row" in contents(registry, "doubled", 1)["model.py"]
    assert "3.0 * row" in contents(registry, "doubled", 2)["model3.py"]


def test_this_release_goes_on_in_it(registry: Registry, tmp_path: Path) -> None:
    assert registry.rollback("doubled", "prod") == 1
    pushed = registry.push("doubled", artifact(tmp_path / "new", model_py="pass\n"))
    assert (pushed.version, pushed.parent) == (3, "doubled:2")
    assert contents(registry, "doubled", 3) == {"model.py": "pass\n"}


def _rewritten(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2, "files": "elsewhere"}))


def test_a_version_of_a_newer_release_is_told_from_damage(registry: Registry) -> None:
    _rewritten(Path(registry.layout.version("doubled", 2)))
    with pytest.raises(Broken, match=r"000002\.json was written by a newer version of Twoshift \(format 2; this vers"):
        registry.version("doubled", 2)
    assert registry.version("doubled", 1).version == 1


def test_nothing_is_pushed_into_a_registry_of_a_newer_release(registry: Registry, tmp_path: Path) -> None:
    _rewritten(Path(registry.layout.mark))
    with pytest.raises(Broken, match="newer version of Twoshift"):
        registry.push("doubled", artifact(tmp_path / "new", model_py="pass\n"))
    with pytest.raises(Broken, match="newer version of Twoshift"):
        _ = registry.exists
    assert registry.versions("doubled") == [1, 2]
