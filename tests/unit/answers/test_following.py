"""A table is replaced whole while it is served, and what is half there, damaged or gone is told and not served."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from twoshift.answers.following import FollowedAnswers
from twoshift.answers.generations import (
    Generation,
    Pointer,
    build_generation,
    current,
    file_location,
    is_switched,
    switch,
    table_place,
)
from twoshift.answers.keys import KeyKind
from twoshift.answers.layout import ColumnLayout
from twoshift.answers.writing import SUPERSEDED
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import TryLater

BLOBS = LocalBlobs()


def asked(name: str, key: str = "id") -> Generation:
    return Generation(
        name=name, key=key, kind=KeyKind.TEXT, columns=(ColumnLayout("score", "<f8"),), model="m", checksum="c",
        precision="fp32", too_long="cut", prompt_name=None, text=None, output="out",
    )  # fmt: skip


def put(place: Path, name: str, rows: dict[bytes, bytes], key: str = "id") -> Generation:
    made = build_generation(BLOBS, str(place), asked(name, key), lambda writer: writer.add(rows.items(), 7.0))
    switch(BLOBS, str(place), name)
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "answers"


def following(place: Path, build: object = None, key: str = "id") -> FollowedAnswers:
    return FollowedAnswers(str(place), key, lambda _: BLOBS, build)  # type: ignore[arg-type]


def value(followed: FollowedAnswers, key: bytes) -> bytes | None:
    now = followed.now()
    record = None if now is None else now.table.find(key)
    return None if record is None else record.data[record.at :]


def test_a_new_generation_is_used_whole_and_requests_keep_the_one_that_they_began_with(place: Path) -> None:
    put(place, "first", {b"a": b"1", b"b": b"1"})
    followed = following(place)
    followed.look()
    held = followed.now()
    put(place, "second", {b"a": b"2"})
    followed.look()
    assert (value(followed, b"a"), value(followed, b"b")) == (b"2", None)
    assert held is not None
    assert held.table.find(b"b") is not None
    assert followed.counts.swaps == 2


def test_files_of_the_generation_before_stay_and_older_ones_go(place: Path) -> None:
    for name in ("first", "second", "third"):
        put(place, name, {b"a": b"1"})
    assert sorted(path.name for path in (place / "generations").iterdir() if any(path.rglob("*.bin"))) == [
        "second",
        "third",
    ]


def test_a_job_that_is_resumed_late_does_not_switch_back(place: Path) -> None:
    put(place, "first", {b"a": b"1"})
    put(place, "second", {b"a": b"2"})
    put(place, "first", {b"a": b"1"})
    assert is_switched(BLOBS, str(place), "first")
    assert current(BLOBS, str(place)) == Pointer("second", 2)


def test_answers_that_are_deleted_are_not_served_and_come_back(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(place, "first", {b"a": b"1"})
    followed = following(place)
    followed.look()
    shutil.rmtree(place)
    followed.look()
    followed.look()
    assert followed.now() is None
    assert [each.message for each in caplog.records if "no longer served" in each.message] == [followed.why_none]
    put(place, "again", {b"a": b"3"})
    followed.look()
    assert value(followed, b"a") == b"3"
    assert followed.counts.problems == 2


@pytest.mark.parametrize("what", ["file cut", "file gone", "no manifest", "manifest damaged", "pointer damaged"])
def test_what_is_half_there_is_told_once_and_the_one_before_answers(
    place: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(place, "first", {b"a": b"1"})
    followed = following(place)
    followed.look()
    made = put(place, "second", {b"a": b"2"})
    rows = Path(file_location(str(place), "second", next(name for name in made.files if name.endswith("rows.bin"))))
    manifest = Path(file_location(str(place), "second", "table.json"))
    match what:
        case "file cut":
            rows.write_bytes(rows.read_bytes()[:-1])
        case "file gone":
            rows.unlink()
        case "no manifest":
            manifest.unlink()
        case "manifest damaged":
            manifest.write_bytes(manifest.read_bytes()[:40])
        case _:
            (place / "current-000002.json").write_bytes(b'{"gen')
    caplog.set_level(logging.WARNING)
    followed.look()
    followed.look()
    assert value(followed, b"a") == b"1"
    assert len([each for each in caplog.records if "cannot be used" in each.message]) == 1
    assert followed.counts.problems == 2


def test_answers_by_another_key_are_refused_with_the_option_to_change(place: Path) -> None:
    put(place, "first", {b"a": b"1"}, key="sku")
    followed = following(place)
    followed.look()
    assert followed.now() is None
    assert "--key sku" in followed.why_none


def test_superseded_rows_are_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rows = [(b"a", b"1"), (b"a", b"2")]
    made = build_generation(BLOBS, str(place), asked("first"), lambda writer: writer.add(rows, 1.0))
    switch(BLOBS, str(place), "first")
    following(place).look()
    assert made.left_out == {SUPERSEDED: 1}
    assert f"rows left out: 1 {SUPERSEDED}" in caplog.text


class _Job:
    """An output folder whose table is built by the server."""

    def __init__(self, output: Path) -> None:
        self.output, self.builds = output, 0
        (output / "_twoshift").mkdir(parents=True)

    def ends(self, plan: str) -> None:
        (self.output / "_twoshift" / "plan.json").write_text(plan)
        (self.output / "_SUCCESS").write_text("")

    def build(self, output: str, key: str, at: str) -> None:
        self.builds += 1
        plan = (self.output / "_twoshift" / "plan.json").read_text()
        put(Path(at), f"of-{plan}", {b"a": plan.encode()}, key)


def test_an_output_without_a_table_is_built_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    job = _Job(tmp_path / "out")
    job.ends("one")
    followed = following(job.output, job.build)
    followed.look()
    followed.look()
    assert (value(followed, b"a"), job.builds) == (b"one", 1)
    assert Path(table_place(str(job.output), "id"), "current-000001.json").exists()
    followed._next_build_s = 0.0  # the pause between builds is over
    job.ends("another")
    followed.look()
    assert (value(followed, b"a"), job.builds) == (b"another", 2)


def test_an_output_that_is_written_again_is_served_as_it_was_until_it_is_whole(tmp_path: Path) -> None:
    job = _Job(tmp_path / "out")
    job.ends("one")
    followed = following(job.output, job.build)
    followed.look()
    followed._next_build_s = 0.0
    (job.output / "_SUCCESS").unlink()
    (job.output / "part-000000.parquet").write_bytes(b"")

    def not_ended(*_: object) -> None:
        raise TryLater("the job has not ended", 1.0)

    followed._build = not_ended
    followed.look()
    assert value(followed, b"a") == b"one"
    assert "has not ended" in followed.why_none


def test_what_finds_the_rows_is_checked_and_a_copy_that_is_restored_answers_again(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = put(place, "first", {b"a": b"1", b"b": b"2"})
    shutil.copytree(place, tmp_path / "copy")
    followed = following(place)
    followed.look()
    slots = next(Path(file_location(str(place), "first", name)) for name in made.files if name.endswith("slots.bin"))
    slots.write_bytes(bytes(each ^ 1 for each in slots.read_bytes()))
    for _ in range(2):
        followed.look()
        assert followed.now() is None  # and not a table without these keys
    assert caplog.text.count(f"{slots} is damaged") == 1
    assert followed.counts.problems == 2
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place)
    followed.look()
    assert value(followed, b"b") == b"2"
