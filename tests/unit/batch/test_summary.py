"""A finished job in numbers, over every part and every run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from twoshift.batch.finish import read_runs, read_summary, write_run
from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.part import PartStats
from twoshift.batch.plan import Plan, PlannedModel
from twoshift.batch.receipt import Receipt
from twoshift.batch.settings import JobSettings
from twoshift.batch.summary import RunRecord, Summary, summary_page
from twoshift.blobs.local import LocalBlobs

MODEL = PlannedModel("<b>model</b>", "abc", "fp32", ("y",))


def plan(shards: int) -> Plan:
    settings = JobSettings(inputs=("in",), output="out", model="m")
    pieces = tuple((Piece(0, k, k + 1, 1, 10),) for k in range(shards))
    schema = pa.schema([pa.field("error", pa.string())])
    return Plan.make(settings, MODEL, (InputFile("in", 1, "1", "parquet"),), pieces, schema, 0.1)


def part(shard: int, errors: int = 0) -> PartStats:
    return PartStats(shard, 10, errors, 100, 1, 2.0 + shard, 1.0, "w", {"null": errors} if errors else {})


def run(usd: float | None = None, elapsed_s: float = 10.0) -> RunRecord:
    points = ((1.0, 10, 0.5), (2.0, 30, 1.5))
    return RunRecord(
        0.0, elapsed_s, 2, 15, 1, 10.0, 90, 10, 1, 2, 3, ("killed by SIGKILL",), {"<script>": 1}, points, usd
    )


def test_a_summary_sums_parts_and_runs() -> None:
    parity = Receipt(32, 0.99999, None, 0)
    made = Summary.of(plan(3), [part(0), part(1, errors=2), part(2)], [run(1.0), run(2.0)], parity)
    assert (made.rows, made.errors, made.error_kinds, made.truncated) == (30, 2, {"null": 2}, 3)
    assert (made.elapsed_s, made.rows_per_s, made.busy, made.padding) == (20.0, 1.5, 0.5, 0.1)
    assert (made.usd, made.usd_per_million) == (3.0, 1e5)
    assert (made.retries, made.speculated, made.failed_calls, len(made.deaths)) == (4, 6, 2, 2)
    assert (made.device_s, made.wasted_s) == (3.0, 17.0)
    assert made.shard_seconds == (2.0, 3.0, 4.0, 4.0)


@pytest.mark.parametrize("shards", [0, 1])
def test_a_job_of_nothing_has_a_page_too(shards: int) -> None:
    stats = [part(k) for k in range(shards)]
    made = Summary.of(plan(shards), stats, [], None)
    assert made.usd_per_million is None
    assert "<html" in summary_page(made, stats)


def test_a_page_shows_what_others_wrote_as_text() -> None:
    page = summary_page(Summary.of(plan(1), [part(0, 1)], [run()], None), [part(0, 1)])
    assert "<b>model</b>" not in page
    assert "<script>" not in page.replace("<script></script>", "")


def test_records_of_runs_come_back_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    blobs, folder = LocalBlobs(), str(tmp_path)
    for number in range(3):
        write_run(blobs, folder, number, run(elapsed_s=float(number)))
    (tmp_path / "_twoshift" / "runs" / "000001.json").write_bytes(b"{")
    assert [each.elapsed_s for each in read_runs(blobs, folder)] == [0.0, 2.0]


def test_the_summary_of_a_job_that_is_done_can_be_read_again(tmp_path: Path) -> None:
    blobs, folder = LocalBlobs(), str(tmp_path)
    made = Summary.of(plan(1), [part(0)], [run()], Receipt(1, None, 0.0, 0))
    assert read_summary(blobs, folder) is None
    blobs.write(f"{folder}/_twoshift/report.json", msgspec.json.encode(made))
    assert read_summary(blobs, folder) is None  # not done
    blobs.create(f"{folder}/_SUCCESS", b"")
    assert read_summary(blobs, folder) == made
    blobs.write(f"{folder}/_twoshift/report.json", b"{")
    assert read_summary(blobs, folder) is None
