"""`models`: what is damaged is shown beside what is not, and what is changed is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoshift.wiring.registered_models import registry_at

Run = Callable[[str], Any]


@pytest.fixture
def registry(folder: Path, monkeypatch: pytest.MonkeyPatch, twoshift: Run) -> Path:
    monkeypatch.setenv("TWOSHIFT_REGISTRY", str(folder / "registry"))
    for number in (1, 2):
        (folder / "m").mkdir(exist_ok=True)
        (folder / "m" / "weights").write_text(f"weights {number}")
        assert twoshift("models push m m --no-check --json").json["version"] == number
    return folder / "registry"


def record(number: int) -> Path:
    return Path(registry_at().layout.version("m", number))


def test_a_damaged_record_is_shown_and_the_others_too(registry: Path, twoshift: Run) -> None:
    record(1).write_text("{")
    listed = twoshift("models list m")
    assert listed.code == 1
    assert "000001.json is damaged" in listed.out
    assert "weights" not in listed.err
    assert [each["version"] for each in twoshift("models list m --json").json["versions"]] == [2]
    assert twoshift("models list").code == 0  # the newest is whole
    verified = twoshift("models verify --json")
    assert verified.code == 1
    assert list(verified.json["damaged"]) == ["m:1"]
    assert "Undamaged: 1 of 2 versions" in twoshift("models verify m").out
    assert twoshift("models verify m:2").code == 0
    assert twoshift("models verify m:1").code == 1


def test_removing_goes_on_beside_a_damaged_record_and_says_so(registry: Path, twoshift: Run) -> None:
    record(1).write_text("{")
    removed = twoshift("models remove m:2")
    assert removed.code == 1
    assert "Removed m:2" in removed.out
    assert "No file is deleted while a record is damaged" in removed.err
    assert twoshift("models clean").code == 1
    assert twoshift("models remove m:1").code == 0
    assert twoshift("models list --json").json["versions"] == []


def test_an_alias_is_set_and_deleted(registry: Path, twoshift: Run) -> None:
    assert twoshift("models alias m@prod 1").out == "m@prod points to m:1.\n"
    assert twoshift("models alias m@prod --delete --note 'not needed'").out == "m@prod is deleted; it pointed to m:1.\n"
    history = twoshift("models history m@prod")
    assert "deleted" in history.out
    assert "not needed" in history.out
    assert twoshift("models alias m@prod").code == 2
    assert twoshift("models alias m@prod 1 --delete").code == 2
    assert "none yet" in twoshift("models alias m@prod --delete").err


def test_a_pull_fills_a_new_or_an_empty_folder_and_no_other(registry: Path, twoshift: Run, folder: Path) -> None:
    (folder / "empty").mkdir()
    for name in ("new", "empty"):
        assert twoshift(f"models pull m:1 -o {name}").code == 0
        assert (folder / name / "weights").read_text() == "weights 1"
    refused = twoshift("models pull m:2 -o new")
    assert refused.code == 2
    assert "this folder contains files" in refused.err
    assert "a folder, not a file" in twoshift("models pull m:2 -o new/weights").err
    assert sorted(each.name for each in folder.iterdir() if each.name.startswith(".")) == []


def test_a_push_heals_what_verify_has_found(registry: Path, twoshift: Run) -> None:
    [file] = registry_at().version("m", 2).files
    Path(registry_at().layout.blob(file.sha256)).write_text("weights X")
    verified = twoshift("models verify")
    assert verified.code == 1
    assert "push the same model again" in verified.out
    assert twoshift("models push m m --no-check").code == 0
    assert twoshift("models verify").code == 0


def test_a_version_without_known_outputs_is_shown_without_a_colon(registry: Path, twoshift: Run, folder: Path) -> None:
    (folder / "plain.py").write_text(
        "class Plain:\n    def load(self):\n        pass\n\n"
        "    def predict(self, batch):\n        return {'y': batch['x']}\n"
    )
    assert twoshift("models push plain plain.py:Plain").code == 0
    assert "with the runtime python\n" in twoshift("models show plain").out


def test_evaluations_are_shown(registry: Path, twoshift: Run) -> None:
    from twoshift.registry.names import ModelRef

    registry_at().evaluations.keep(ModelRef("m", 2), "against", "out/", "m:1", {"rows": 1200, "mean": 0.0125})
    assert "compared with m:1 over 1,200 rows: difference mean 0.0125; out/" in twoshift("models show m:2").out
    assert twoshift("models show m:2 --json").json["evaluations"][0]["against"] == "m:1"


def test_cleaning_says_what_it_did(registry: Path, twoshift: Run) -> None:
    (registry / "blobs" / "aa").mkdir()
    (registry / "blobs" / "aa" / "aa00").write_text("of no version")
    (registry / "blobs" / "aa" / ".x.twoshift-tmp").write_text("begun")
    cleaned = twoshift("models clean --json")
    assert (cleaned.code, cleaned.json["freed_bytes"], cleaned.json["leftovers"]) == (0, len("of no version"), 1)
    assert twoshift("models verify").code == 0
