"""The log of answers that were computed live: several processes append, some are killed amid a row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.answers.kept_rows import KeptKey, input_digest, pack_kept, unpack_kept
from twoshift.answers.written_log import WrittenLog, frame_of
from twoshift.errors import Broken

LIMIT_BYTES = 1 << 20


def key(name: str, text: str = "x", version: str = "v1") -> KeptKey:
    digest = input_digest(version, text)
    assert digest is not None
    return KeptKey(name.encode(), digest)


def frame(name: str, value: float = 1.0, made_unix_s: float = 5.0, text: str = "x") -> bytes:
    row = pack_kept(key(name, text), made_unix_s, {"score": np.array([value])})
    assert row is not None
    made = frame_of(row)
    assert made is not None
    return made


def value(log: WrittenLog, name: str, text: str = "x") -> float | None:
    found = log.find(key(name, text))
    return None if found is None else float(found.columns["score"][0])


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "v1.log", LIMIT_BYTES)


def test_every_process_finds_what_one_has_kept_and_the_newest_of_a_key_counts(log: WrittenLog) -> None:
    other = WrittenLog(log.path, LIMIT_BYTES)
    log.append([frame("a", 1.0), frame("b", 2.0)])
    other.append([frame("a", 3.0)])
    for each in (log, other):
        each.follow()
        assert (value(each, "a"), value(each, "b"), value(each, "c")) == (3.0, 2.0, None)
    assert value(WrittenLog(log.path, LIMIT_BYTES), "a") == 3.0  # after a restart


def test_another_input_or_version_is_another_row(log: WrittenLog) -> None:
    log.append([frame("a", 1.0, text="x")])
    log.follow()
    assert (value(log, "a", "x"), value(log, "a", "y")) == (1.0, None)
    assert log.find(key("a", "x", version="v2")) is None


@given(cut=st.integers(1, 80), after=st.booleans())
def test_a_row_that_is_cut_short_is_passed_over_and_those_behind_it_are_found(
    tmp_path_factory: pytest.TempPathFactory, cut: int, after: bool
) -> None:
    log = WrittenLog(tmp_path_factory.mktemp("log") / "v1.log", LIMIT_BYTES)
    torn = frame("torn", 7.0)
    log.append([frame("a", 1.0), torn[: min(cut, len(torn) - 1)]])  # as a disk that was full leaves it
    log.follow()
    if after:
        log.append([frame("b", 2.0)])
        log.follow()
    assert (value(log, "a"), value(log, "torn"), value(log, "b")) == (1.0, None, 2.0 if after else None)
    assert value(WrittenLog(log.path, LIMIT_BYTES), "b") == (2.0 if after else None)


def test_a_row_that_is_being_written_is_found_once_it_is_whole(log: WrittenLog) -> None:
    made = frame("a", 1.0)
    for piece in (made[:3], made[3:20], made[20:]):
        assert value(log, "a") is None
        log.append([piece])
        log.follow()
    assert value(log, "a") == 1.0


def test_a_bit_that_has_changed_is_no_answer(log: WrittenLog) -> None:
    log.append([frame("a", 1.0)])
    log.follow()
    data = bytearray(log.path.read_bytes())
    data[-3] ^= 1
    with log.path.open("r+b") as file:
        file.write(data)
    with pytest.raises(Broken):
        log.find(key("a"))
    assert value(WrittenLog(log.path, LIMIT_BYTES), "a") is None


def test_a_full_log_keeps_the_newest_and_what_is_wanted_and_the_others_follow_it(tmp_path: Path) -> None:
    log, other = (WrittenLog(tmp_path / "v1.log", 4_000) for _ in range(2))
    for number in range(60):
        log.append([frame(f"k{number}", float(number))])
    log.follow()
    assert log.is_full
    assert log.compact(lambda row: row.key.key != b"k59")
    assert not log.is_full
    assert log.path.stat().st_size <= 2_000
    assert (value(log, "k0"), value(log, "k58"), value(log, "k59")) == (None, 58.0, None)
    other.append([frame("new", 1.0)])  # to the new file, which it had not seen
    log.follow()
    other.follow()
    assert (value(log, "new"), value(other, "k58")) == (1.0, 58.0)
    assert not other.path.with_suffix(f".{os.getpid()}.tmp").exists()


def test_a_log_that_somebody_deletes_or_cuts_begins_anew(log: WrittenLog) -> None:
    for harm in (log.path.unlink, lambda: os.truncate(log.path, 0)):
        log.append([frame("a", 1.0)])
        log.follow()
        harm()
        log.follow()
        assert value(log, "a") is None
    log.append([frame("a", 2.0)])
    log.follow()
    assert value(log, "a") == 2.0


def test_logs_of_versions_that_are_served_no_more_are_deleted(tmp_path: Path) -> None:
    for number in range(6):
        WrittenLog(tmp_path / f"v{number}.log", LIMIT_BYTES)
        os.utime(tmp_path / f"v{number}.log", (number, number))
    assert sorted(each.stem for each in tmp_path.glob("*.log")) == ["v2", "v3", "v4", "v5"]


WRITER = """
import sys
from pathlib import Path
from test_written_log import frame
from twoshift.answers.written_log import WrittenLog
log = WrittenLog(Path(sys.argv[1]), 1 << 30)
print("ready", flush=True)
number = 0
while True:
    log.append([frame(f"{sys.argv[2]}-{number}", float(number), text="x" * 3)])
    number += 1
"""


@pytest.mark.slow
def test_two_that_are_killed_while_they_write_leave_whole_rows(tmp_path: Path) -> None:
    path, env = (
        tmp_path / "v1.log",
        {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    words = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*words, name], env=env, stdout=subprocess.PIPE) for name in ("a", "b")]
    log = WrittenLog(path, 1 << 30)
    for each in writers:
        assert each.stdout is not None
        each.stdout.readline()
    while not all(log.find(key(f"{name}-30", "xxx")) for name in ("a", "b")):
        log.follow()
    for each in writers:
        each.kill()
        each.communicate()
    log.append([frame("last", 9.0)])
    log.follow()
    assert value(log, "last") == 9.0
    assert [value(log, f"{name}-{number}", "xxx") for name in ("a", "b") for number in range(30)] == [
        float(number) for _ in range(2) for number in range(30)
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"embedding": np.arange(4, dtype=np.float32).reshape(1, 4), "label": np.array(["é\ud800"], object)},
        {"yes": np.array([True]), "count": np.array([3], ">i4"), "half": np.array([1.5], np.float16)},
    ],
    ids=["vectors and texts", "numbers"],
)
def test_rows_come_back_as_they_were(columns: dict[str, Any]) -> None:
    packed = pack_kept(key("a"), 5.0, columns)
    assert packed is not None
    row = unpack_kept(packed)
    assert (row.made_unix_s, row.key) == (5.0, key("a"))
    for name, wanted in columns.items():
        np.testing.assert_array_equal(row.columns[name], wanted)


def test_what_no_row_can_hold_is_not_kept() -> None:
    assert pack_kept(key("a"), 5.0, {"x": np.zeros((1, 2, 2))}) is None
    assert pack_kept(key("a"), 5.0, {"x": np.array([{}], object)}) is None
    assert pack_kept(key("a"), 5.0, {"x": np.array([[1.0, np.nan]])}) is None  # of a model that was broken
    assert frame_of(b"x" * (2 << 20)) is None
    assert input_digest("v1", {"x": object()}) is None


def test_inputs_are_told_apart_by_their_values_and_not_by_the_order_of_their_names() -> None:
    assert input_digest("v", {"a": 1, "b": 2}) == input_digest("v", {"b": 2, "a": 1})
    rows: list[Any] = [
        "a",
        b"a",
        ["a"],
        {"a": 1},
        {"a": 1.0},
        {"a": np.float32(2)},
        {"a": np.zeros(2)},
        {"a": np.zeros(3)},
    ]
    digests = [input_digest("v", row) for row in rows]
    assert len({*digests}) == len(rows)
    assert None not in digests
