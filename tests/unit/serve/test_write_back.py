"""What was computed live answers the same request the next time, of the same version, and nobody else's."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_precomputed import INFO, NOW_S, Live, Store, generation, model, scores

from twoshift.answers.written_log import WrittenLog
from twoshift.errors import InvalidInput
from twoshift.ports import RuntimeInfo
from twoshift.serve.keyed import Asked, RequestKeys, Rules
from twoshift.serve.model import Answer
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.precomputed import Precomputed
from twoshift.serve.write_back import WriteBack
from twoshift.serve.written_logs import WrittenLogs
from waiting import until


class Process:
    """A front: its own thread and memory, the machine's folder."""

    def __init__(self, folder: Path, limit_bytes: int = 1 << 20, **rules: Any) -> None:
        self.now_s, self.live, self.store, self.swaps = NOW_S, Live(), Store({"a": (1.0, 10)}), 0
        self.kept = dict[str, int]()
        self.dropped = set[bytes]()
        self.logs = WrittenLogs(
            folder, limit_bytes, lambda _info, row: row.key.key not in self.dropped, lambda: self.swaps
        )
        made = Rules("id", **rules)
        self.answers = Precomputed(made, self.store, lambda: self.now_s, WriteBack(made, self.logs))

    def ask(self, keys: list[Any], rows: list[Any], info: RuntimeInfo = INFO) -> Answer:
        deployed = model(info)
        deployed.metrics.written_back = self.kept
        asked = Asked(rows, RequestKeys(keys, "keys[{}]"), None, 0.0)
        answer = asyncio.run(self.answers.answer(self.live, deployed, asked))
        self.found = deployed.metrics.looked_up
        return answer

    def until_kept(self, keys: list[Any], rows: list[Any], info: RuntimeInfo = INFO) -> Answer:
        """The thread has its own time."""
        until(lambda: self.ask(keys, rows, info).source == "precomputed")
        return self.ask(keys, rows, info)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path, max_age_s=60.0)
    yield made
    made.answers.close()


def test_what_was_computed_answers_the_next_time_and_tells_its_age(process: Process) -> None:
    assert process.ask(["new"], [7]).source == "live"
    process.now_s += 30
    answer = process.until_kept(["new"], [7])
    assert (scores(answer), answer.tokens, process.found) == ([7.0], 0, {"written_back": 1})
    assert process.kept["kept"] >= 1
    process.now_s += 61
    assert process.ask(["new"], [7]).source == "live"  # too old


@pytest.mark.parametrize("key", ["", " ", "\0", "a\nb", "ключ", "e\u0301", "\U0001f98a" * 9, "x" * 70_000, "\ud800"])
def test_any_text_is_a_key(process: Process, key: str) -> None:
    process.ask([key], [7])
    assert scores(process.until_kept([key], [7])) == [7.0]
    assert process.ask([key + "x"], [7]).source == "live"


def test_other_processes_and_the_next_start_find_it(process: Process, tmp_path: Path) -> None:
    process.ask(["new"], [7])
    process.until_kept(["new"], [7])
    other = Process(tmp_path, max_age_s=60.0)
    assert scores(other.until_kept(["new"], [7])) == [7.0]
    other.answers.close()


def test_another_input_with_the_same_key_is_computed(process: Process) -> None:
    process.ask(["new"], [7])
    process.until_kept(["new"], [7])
    answer = process.ask(["new"], [8])
    assert (scores(answer), answer.source) == ([8.0], "live")


def test_another_version_never_gets_it(process: Process) -> None:
    process.ask(["new"], [7])
    process.until_kept(["new"], [7])
    for change in (
        {"checksum": "sha256:2"},
        {"precision": "int8"},
        {"default_prompt_name": "q", "prompts": {"q": "Q: "}},
    ):
        other = replace(INFO, **change)
        process.store.made = generation(checksum=other.checksum, precision=other.precision, prompt_name=None)
        asked = len(process.live.asked)
        assert process.ask(["new"], [7], other).source == "live"
        assert len(process.live.asked) == asked + 1


def test_rows_of_the_job_come_first_and_rows_without_a_key_are_not_kept(process: Process) -> None:
    for _ in range(2):
        answer = process.ask(["a", None], [5, 6])
        assert (scores(answer), answer.source) == ([1.0, 6.0], "mixed")
    assert not process.kept


def test_a_look_up_without_inputs_finds_rows_of_the_job_only(process: Process) -> None:
    process.ask(["new"], [7])
    process.until_kept(["new"], [7])
    looked = asyncio.run(process.answers.look_up(RequestKeys(["new", "a"], "keys[{}]"), None, model()))
    assert [each.found for each in looked] == ["miss", "hit"]


def test_a_new_run_drops_what_it_has_itself(process: Process, tmp_path: Path) -> None:
    for key in ("old", "new"):
        process.ask([key], [7])
        process.until_kept([key], [7])
    process.dropped, process.swaps = {b"old"}, 1
    (path,) = tmp_path.glob("*.log")
    until(lambda: b"old" not in path.read_bytes())
    assert b"new" in path.read_bytes()


def test_it_is_never_larger_than_it_may_be(tmp_path: Path) -> None:
    process = Process(tmp_path, limit_bytes=2_000)
    for number in range(100):
        process.ask([f"k{number}"], [number])
    process.until_kept(["k99"], [99])
    (path,) = tmp_path.glob("*.log")
    until(lambda: process.ask(["last"], [1]).source == "precomputed" and path.stat().st_size < 2_300)
    process.answers.close()


def test_a_full_disk_is_told_once_and_requests_are_answered(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_log: WrittenLog, _frames: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(WrittenLog, "append", full)
        for _ in range(3):
            assert scores(process.ask(["new"], [7])) == [7.0]
        until(lambda: process.kept.get("failed") == 3)
    told = [each.message for each in caplog.records if "cannot be written back" in each.message]
    assert len(told) == 1
    assert "No space left" in told[0]
    process.ask(["new"], [7])
    process.until_kept(["new"], [7])  # once there is space again


def test_a_burst_that_the_disk_does_not_take_is_dropped_and_counted(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.serve.written_logs._MOST_WAITING_BYTES", 10)
    assert scores(process.ask(["new"], [7])) == [7.0]
    assert process.kept == {"dropped": 1}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"write_back": True}, "write_back"),
        ({"write_back": True, "precomputed": "out", "key": "id", "on_miss": "error"}, "write_back"),
        ({"write_back_size": 1e6, "precomputed": "out", "key": "id"}, "write_back_size"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        ModelSettings(model="m", slo_ms=50, **given)
    assert raised.value.field == field
