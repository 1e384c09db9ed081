"""A stream from a folder to committed parts: every row once, whatever happens on the way."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streaming import Streaming, running

from twoshift.batch.loading import load_parts
from twoshift.batch.verify import verify_output
from twoshift.blobs.local import LocalBlobs
from twoshift.cli.stream_progress import stream_figures, stream_lines
from twoshift.errors import Broken, InvalidInput
from twoshift.streams import folder_source
from twoshift.streams.commits import StreamOutput
from twoshift.streams.progress import StreamSnapshot
from waiting import until


@pytest.fixture
def streaming(tmp_path: Path) -> Streaming:
    return Streaming(tmp_path)


def test_files_that_come_later_are_committed_by_the_next_run_and_no_row_twice(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(10))
    assert streaming.run().rows == 10
    assert streaming.run().rows == 0
    streaming.put("b.jsonl", range(10, 25))
    assert streaming.run().rows == 15
    streaming.check_squares(25)
    assert streaming.parts() == ["part-000000.parquet", "part-000001.parquet"]


def test_a_stream_that_runs_takes_files_as_they_come(streaming: Streaming) -> None:
    stream = streaming.stream(once=False, fresh=0.2)
    with running(stream):
        for number in range(3):
            streaming.put(f"{number}.jsonl", range(number * 5, number * 5 + 5))
            until(lambda rows=5 * number + 5: stream.counts.snapshot.rows == rows)
    streaming.check_squares(15)
    last = stream.counts.snapshot
    assert last.windows >= 3
    assert last.fresh_p50_s is not None
    assert last.lag_rows == 0


def test_a_large_file_is_read_in_several_windows_and_a_restart_goes_on_inside_it(streaming: Streaming) -> None:
    ids = range(30_000)
    table = pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([float(k) for k in ids])})
    pq.write_table(table, streaming.inbox / "a.parquet")
    stream = streaming.stream(buffer=300_000.0, compact=0)
    stream.run(lambda now: stream.stop() if now.windows else None)
    assert 0 < len(streaming.ids()) < 30_000
    streaming.run(buffer=300_000.0, compact=0)
    assert streaming.ids() == list(ids)
    assert len(streaming.parts()) > 2


def test_a_line_that_is_no_json_is_a_dead_letter_and_others_are_scored(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(3), "no JSON", '{"id": 4, "x": "many"}')
    last = streaming.run()
    assert (last.rows, last.errors, last.dead_letters) == (5, 2, 2)
    assert [row["squared"] for row in streaming.rows()] == [0.0, 1.0, 4.0, None, None]
    first, second = streaming.letters()
    assert "a.jsonl, row 4: the line is not a JSON object" in first["error"]
    assert "row 5" in second["error"]


def test_a_folder_whose_first_rows_are_all_bad_is_refused_with_the_first_reason(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(0), "no JSON")
    with pytest.raises(InvalidInput, match="none of the first"):
        streaming.run()


def test_a_disk_that_is_full_for_a_while_delays_a_window_and_loses_nothing(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, failures = LocalBlobs.publish, [OSError(errno.ENOSPC, "No space left on device")] * 2

    def full(self: LocalBlobs, staged: Path, location: str) -> bool:
        if failures:
            raise failures.pop()
        return publish(self, staged, location)

    monkeypatch.setattr(LocalBlobs, "publish", full)
    streaming.put("a.jsonl", range(10))
    last = streaming.run()
    assert dict(last.problems) == {"full": 2}
    assert last.problem == ""
    streaming.check_squares(10)


def test_a_clock_that_jumps_loses_nothing_and_makes_no_negative_age(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, asked = time.time, itertools.count()

    def jumping() -> float:
        times = next(asked)
        return real() + (-1) ** times * (1e6 + 10 * times)  # no two looks find the same, whoever has asked between them

    monkeypatch.setattr(time, "time", jumping)
    for number in range(4):
        streaming.put(f"{number}.jsonl", range(number * 5, number * 5 + 5))
    last = streaming.run(buffer=3.0, compact=0)
    streaming.check_squares(20)
    assert last.fresh_p50_s is not None
    assert last.fresh_p50_s >= 0
    assert last.lag_s >= 0
    assert dict(last.problems)["clock"] > 0
    assert "clock has jumped by" in caplog.text


def test_what_it_takes_to_catch_up_is_told_while_rows_wait(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.streams.stream._BEHIND", 0.0)  # windows that may wait before it is told
    for number in range(6):
        streaming.put(f"{number}.jsonl", range(number * 5, number * 5 + 5))
    seen = list[StreamSnapshot]()
    last = streaming.run(report=seen.append, buffer=3.0, compact=0)
    told = [each for each in seen if each.catch_up is not None]
    assert told
    assert all(each.catch_up.seconds > 0 and each.catch_up.rows_per_s > 0 for each in told if each.catch_up)
    assert any("up to date in about" in "; ".join(stream_figures(each, 30.0)) for each in told)
    assert last.catch_up is None


def test_small_parts_are_merged_and_a_restart_knows_what_they_hold(streaming: Streaming) -> None:
    for number in range(9):
        streaming.put(f"{number}.jsonl", range(number * 5, number * 5 + 5))
    last = streaming.run(buffer=3.0, compact=3)
    assert last.windows == 9
    assert len(streaming.parts()) <= 5
    assert any(name.count("-") == 2 for name in streaming.parts())
    streaming.check_squares(45)
    assert streaming.run(compact=3).rows == 0
    streaming.put("9.jsonl", range(45, 50))
    assert streaming.run(compact=3).rows == 5
    streaming.check_squares(50)


def test_parts_that_a_merged_one_covers_are_removed_at_the_next_start(streaming: Streaming) -> None:
    for number in range(4):
        streaming.put(f"{number}.jsonl", range(number * 5, number * 5 + 5))
    streaming.run(buffer=3.0, compact=0)
    kept = {name: (streaming.out / name).read_bytes() for name in streaming.parts()}
    streaming.run(buffer=3.0, compact=2)
    streaming.put("4.jsonl", range(20, 25))
    streaming.run(buffer=3.0, compact=2)
    assert "part-000000.parquet" not in streaming.parts()
    (streaming.out / "part-000000.parquet").write_bytes(kept["part-000000.parquet"])  # as a kill leaves it
    assert streaming.run().rows == 0
    streaming.check_squares(25)


def test_a_part_that_is_missing_is_said_and_nothing_is_read(streaming: Streaming) -> None:
    for number in range(3):
        streaming.put(f"{number}.jsonl", range(number * 5, number * 5 + 5))
    streaming.run(buffer=3.0, compact=0)
    (streaming.out / "part-000001.parquet").unlink()
    with pytest.raises(Broken, match="part-000001 is missing in"):
        streaming.run()


def test_results_are_loaded_into_a_store_as_those_of_a_job_are(streaming: Streaming) -> None:
    store = streaming.path / "results.sqlite"
    streaming.put("a.jsonl", range(5))
    streaming.run(into=str(store), into_key="id")
    streaming.put("b.jsonl", range(3, 8))
    streaming.run(into=str(store), into_key="id")
    with sqlite3.connect(store) as session:
        found = session.execute("SELECT id, squared FROM results ORDER BY id").fetchall()
    session.close()
    assert found == [(row, float(row) ** 2) for row in range(8)]


def test_parts_that_a_killed_run_has_not_loaded_are_loaded_by_the_next(streaming: Streaming) -> None:
    store = streaming.path / "results.sqlite"
    streaming.put("a.jsonl", range(5))
    streaming.run()  # committed, and in no store
    streaming.put("b.jsonl", range(5, 8))
    streaming.run(into=str(store), into_key="id")
    with contextlib.closing(sqlite3.connect(store)) as session:
        assert session.execute("SELECT count(*) FROM results").fetchone() == (8,)


def test_a_damaged_part_that_is_to_be_loaded_ends_the_stream_while_it_runs(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_source, "_LOOK_EVERY_S", 0.25)  # seconds, not moments, until a hundredth window
    streaming.put("a.jsonl", range(5))
    streaming.run()
    part = streaming.out / "part-000000.parquet"
    part.write_bytes(part.read_bytes()[:-40] + b"\0" * 40)
    stream = streaming.stream(into=str(streaming.path / "results.sqlite"), once=False, fresh=0.05)

    def more(now: StreamSnapshot) -> None:
        assert now.windows < 100, "it goes on, and no row is loaded any more"
        streaming.put(f"b{time.monotonic_ns()}.jsonl", range(1))

    with pytest.raises(
        Broken, match=r"part-000000\.parquet is damaged: its checksum differs from the recorded checksum: restore it"
    ):
        stream.run(more)


def test_an_output_folder_that_is_deleted_meanwhile_ends_the_stream(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    stream = streaming.stream(once=False, fresh=0.05)

    def delete(now: StreamSnapshot) -> None:
        assert now.windows < 2
        if now.windows and not (streaming.inbox / "b.jsonl").exists():
            shutil.rmtree(streaming.out)
            streaming.put("b.jsonl", range(5, 8))

    with pytest.raises(Broken, match="was deleted or replaced"):
        stream.run(delete)
    streaming.run()
    assert streaming.ids() == list(range(8))


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"keep": []}, "keep"), ({"source": "elsewhere"}, "source"), ({"compression": "none"}, "compression")],
)
def test_a_stream_goes_on_only_as_it_was_begun(streaming: Streaming, changed: dict[str, Any], field: str) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.run()
    with pytest.raises(InvalidInput, match=field):
        streaming.run(**changed)


def test_another_model_and_somebody_elses_folder_are_refused(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.out.mkdir()
    (streaming.out / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="but no stream"):
        streaming.run()
    (streaming.out / "notes.txt").unlink()
    streaming.run()
    model = streaming.path / "m.py"
    model.write_text(model.read_text().replace("x * x", "x + x"))
    with pytest.raises(InvalidInput, match="checksum"):
        streaming.run()


def test_a_damaged_file_is_a_dead_letter_once_nobody_writes_to_it(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    streaming.put("a.jsonl", range(5))
    (streaming.inbox / "b.parquet").write_bytes(b"PAR1 and no more")
    monkeypatch.setattr(folder_source, "_GIVE_UP_S", 0.0)
    streaming.run(once=True)
    stream = streaming.stream(once=False, fresh=0.1)
    with running(stream):
        until(lambda: streaming.letters())
    (letter,) = streaming.letters()
    assert letter["source"].endswith("b.parquet")
    streaming.check_squares(5)
    pq.write_table(pa.table({"id": [5], "x": [5.0]}), streaming.inbox / "b.parquet")
    streaming.run()
    streaming.check_squares(6)


def test_a_file_that_changes_after_it_was_read_is_not_read_again(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.run()
    streaming.put("a.jsonl", range(9))
    assert "1 file has changed after being read" in streaming.run().notice
    streaming.check_squares(5)


def test_a_file_that_grows_is_not_read_before_it_has_settled(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(folder_source.time, "monotonic", lambda: now_s)
    source = folder_source.FolderSource(str(streaming.inbox), lambda _: LocalBlobs(), str(streaming.out), settle_s=2.0)
    source.begin([])
    streaming.put("a.jsonl", range(5))
    assert source.take(100, 10**6, 0.0) is None
    now_s += 1.5
    streaming.put("a.jsonl", range(7))
    assert source.take(100, 10**6, 0.0) is None
    now_s += 1.5
    assert source.take(100, 10**6, 0.0) is None  # it has changed since
    now_s += 2.0
    arrived = source.take(100, 10**6, 0.0)
    assert arrived is not None
    assert arrived.rows == 7


def test_hidden_files_other_suffixes_and_the_output_itself_are_no_input(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.put(".b.jsonl", range(5))
    streaming.put("_c.jsonl", range(5))
    streaming.put("d.jsonl.tmp", range(5))
    streaming.more["output"] = str(streaming.inbox / "out")
    streaming.run()
    streaming.run()
    (part,) = (streaming.inbox / "out").glob("part-*")
    assert pq.read_table(part).num_rows == 5


def test_a_part_of_another_writer_is_not_taken_for_ones_own(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.run()
    publish = LocalBlobs.publish

    def late(self: LocalBlobs, staged: Path, location: str) -> bool:
        if location.endswith("part-000001.parquet"):
            other = streaming.out / "part-000001.parquet"
            os.link(streaming.out / "part-000000.parquet", other)
            record = next((streaming.out / "_twoshift/parts").glob("part-000000-*"))
            os.link(record, record.with_name(record.name.replace("part-000000", "part-000001")))
        return publish(self, staged, location)

    monkeypatch.setattr(LocalBlobs, "publish", late)
    streaming.put("b.jsonl", range(5, 10))
    with pytest.raises(Broken, match="another stream"):
        streaming.run()


def test_the_offset_is_in_the_part_itself(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.run()
    output = StreamOutput(LocalBlobs(), str(streaming.out))
    (mark,) = output.marks(output.recover())
    assert (mark.first, mark.last) == (0, 0)
    assert [each[0] for each in mark.position["files"]] == [str(streaming.inbox / "a.jsonl")]
    metadata = pq.read_metadata(streaming.out / "part-000000.parquet").metadata or {}
    assert b"a.jsonl" in metadata[b"twoshift"]


def test_what_is_only_for_jobs_says_so_of_a_streams_folder(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    streaming.run()
    with pytest.raises(InvalidInput, match="not of a stream"):
        verify_output(LocalBlobs(), str(streaming.out), lambda _: None)
    with pytest.raises(InvalidInput, match="belongs to a stream, which loads its results"):
        load_parts(LocalBlobs(), str(streaming.out), {"into": "results.sqlite"}, lambda _: None)


def test_a_file_that_nobody_has_written_to_for_long_is_a_dead_letter_of_a_run_that_ends(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    (streaming.inbox / "b.parquet").write_bytes(b"PAR1 cut short")
    assert streaming.run().dead_letters == 0  # it may yet be written to
    os.utime(streaming.inbox / "b.parquet", (0, time.time() - 120))
    assert streaming.run().dead_letters == 1
    assert [each["source"] for each in streaming.letters()] == [str(streaming.inbox / "b.parquet")]


@pytest.mark.parametrize(
    ("suffix", "what", "unit"),
    [("parquet", "deleted", "row"), ("jsonl", "deleted", "byte"), ("jsonl", "replaced", "byte")],
)
def test_a_file_that_goes_after_it_was_read_in_part_is_a_dead_letter(
    streaming: Streaming, caplog: pytest.LogCaptureFixture, suffix: str, what: str, unit: str
) -> None:
    ids, path = range(20_000), streaming.inbox / f"a.{suffix}"
    table = pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([float(k) for k in ids])})
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        streaming.put(path.name, ids)
    stream = streaming.stream(buffer=300_000.0, compact=0)
    stream.run(lambda now: stream.stop() if now.windows else None)
    read = len(streaming.ids())
    assert 0 < read < 20_000
    path.rename(streaming.path / path.name)
    if what == "replaced":
        streaming.put("b.tmp", range(3))
        (streaming.inbox / "b.tmp").rename(path)
    assert streaming.run(compact=0).dead_letters == 1
    (letter,) = streaming.letters()
    assert letter["source"].startswith(f"{path} after {unit} ")
    assert f"was {what} after the stream had read it up to {unit} " in letter["error"]
    if unit == "row":
        assert f"up to row {read:,}" in letter["error"]
    assert letter["error"] in caplog.text
    assert streaming.run(compact=0).dead_letters == 0  # it is told once
    assert streaming.ids() == list(range(read))
    (streaming.path / path.name).rename(path)  # it comes back as it was
    streaming.run(compact=0)
    assert streaming.ids() == list(ids)


def test_a_file_that_goes_while_it_is_read_is_a_dead_letter_that_says_what_is_left_out(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(20_000))
    stream = streaming.stream(buffer=300_000.0, compact=0)
    stream.run(lambda now: (streaming.inbox / "a.jsonl").unlink(missing_ok=True) if now.windows else None)
    letters = streaming.letters()
    assert letters
    assert all("was deleted" in each["error"] and "skips this file from byte" in each["error"] for each in letters)
    assert stream.counts.snapshot.dead_letters == len(letters)


def test_a_folder_that_is_not_there_is_refused_by_a_run_that_ends_and_told_by_one_that_waits(
    streaming: Streaming,
) -> None:
    nowhere = streaming.path / "nothere"
    with pytest.raises(InvalidInput, match="a folder that exists"):
        streaming.run(source=str(nowhere))
    stream = streaming.stream(source=str(nowhere), once=False, fresh=0.1)
    with running(stream):
        until(lambda: "nothere/ does not exist" in stream.counts.snapshot.notice)
        assert any("does not exist" in line for line in stream_lines(stream.counts.snapshot, "out", 1.0))
        streaming.put("a.jsonl", range(5))
        streaming.inbox.rename(nowhere)
        until(lambda: stream.counts.snapshot.rows == 5)
    assert stream.counts.snapshot.notice == ""


def test_a_run_that_ends_says_which_file_it_could_not_read(streaming: Streaming) -> None:
    streaming.put("a.jsonl", range(5))
    (streaming.inbox / "b.parquet").write_bytes(b"PAR1 and no more")
    last = streaming.run()
    (said,) = [line for line in stream_lines(last, "out", 1.0) if "b.parquet" in line]
    assert said.startswith("1 file cannot be read yet: ")
