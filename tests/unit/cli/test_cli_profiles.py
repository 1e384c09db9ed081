from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twoshift.errors import Broken, InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan import RowSize
from twoshift.policy.profile import Profile
from twoshift.policy.threads import ThreadPlan, ThreadStep
from twoshift.store.profiles import FileProfiles

Run = Callable[[str], Any]
HINGE = CallCost(0.0001, 5e-7, 0.0006, ratios=(0.9, 1.0, 1.2))


def _profile(name: str = "encoder") -> Profile:
    return Profile(name, HINGE, "2026-01-01T00:00:00+00:00", 12, RowSize(170, 200), "bert", "onnx", "H200", "bf16")


def test_a_profile_comes_back_as_it_was_put(tmp_path: Path) -> None:
    store = FileProfiles(tmp_path / "deep" / "profiles")
    assert store.names() == []
    store.put(_profile())
    store.put(_profile("b.2_x"))
    assert store.get("encoder") == _profile()
    assert store.names() == ["b.2_x", "encoder"]


def test_the_choice_of_threads_comes_back_and_older_profiles_have_none(tmp_path: Path) -> None:
    store = FileProfiles(tmp_path)
    chosen = replace(_profile(), threads=ThreadPlan((ThreadStep(1, 1), ThreadStep(512, 2))))
    store.put(chosen)
    assert store.get("encoder") == chosen
    path = tmp_path / "encoder.json"
    older = {name: value for name, value in json.loads(path.read_text()).items() if name != "threads"}
    path.write_text(json.dumps(older | {"format": 3}))
    assert store.get("encoder") == _profile()


@pytest.mark.parametrize("threads", [[], [[1, 2], [4, 1]], [[0, 1]], [[1]], "2"])
def test_a_choice_of_threads_that_makes_no_sense_is_damage(tmp_path: Path, threads: Any) -> None:
    store = FileProfiles(tmp_path)
    store.put(_profile())
    path = tmp_path / "encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"threads": threads}))
    with pytest.raises(Broken, match="damaged"):
        store.get("encoder")


def test_a_write_leaves_nothing_but_the_profile(tmp_path: Path) -> None:
    store = FileProfiles(tmp_path)
    store.put(_profile())
    store.put(_profile())
    assert [p.name for p in tmp_path.iterdir()] == ["encoder.json"]


def test_a_failed_write_leaves_the_old_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileProfiles(tmp_path)
    store.put(_profile())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Broken, match="No space left"):
        store.put(_profile())
    assert store.get("encoder") == _profile()
    assert [p.name for p in tmp_path.iterdir()] == ["encoder.json"]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", ".hidden", "a b", "x" * 101, "a\0b", "é"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="profile"):
        FileProfiles(tmp_path).get(name)


def test_a_missing_profile_names_the_known_ones(tmp_path: Path) -> None:
    store = FileProfiles(tmp_path)
    store.put(_profile("one"))
    store.put(_profile("two"))
    with pytest.raises(InvalidInput, match=r"one, two"):
        store.get("three")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"format": 1}',
        b'{"format": 1, "name": "x", "created_at": "", "samples": 1, "cost": {}}',
    ],
)
def test_a_damaged_profile_is_broken_and_not_a_guess(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(Broken, match=r"x\.json is damaged"):
        FileProfiles(tmp_path).get("x")


def test_a_saved_fit_is_used_by_sweep_cost_and_cap(twoshift: Run, samples: Path) -> None:
    saved = twoshift("plan fit samples.csv --save encoder --device 'H200 [sxm]' --json")
    assert (saved.code, saved.json["profile"]) == (0, "encoder")
    assert "Saved as profile encoder" in saved.err
    assert twoshift("plan sweep --profile encoder --slo-ms 50 --json").json["knee"] == 512
    assert twoshift("plan cap --profile encoder --slo-ms 100 --share 0.4 --json").json["batch"] == pytest.approx(
        189, abs=2
    )
    rows = twoshift("plan cost --profile encoder --batch 1 --json").json["rows"]
    assert rows[0]["item_ms"] == pytest.approx(6.18, rel=0.01)
    assert "H200 [sxm]" in twoshift("plan cost --profile encoder --batch 1").out


def test_a_damaged_profile_stops_the_command_without_a_traceback(twoshift: Run, folder: Path) -> None:
    (folder / "home" / "profiles").mkdir(parents=True)
    (folder / "home" / "profiles" / "x.json").write_text("{")
    ran = twoshift("plan cap --profile x --slo-ms 50")
    assert ran.code == 1
    assert "x.json is damaged" in ran.err


def test_a_home_that_cannot_be_written_is_said(
    twoshift: Run, samples: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(samples / "home"))
    ran = twoshift("plan fit samples.csv --save x")
    assert ran.code == 1
    assert "cannot be written" in ran.err
