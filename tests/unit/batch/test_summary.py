"""A finished job in numbers, over every part and every run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from twoshift.batch.finish import read_runs, read_summary, write_run
from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.parity_report import ParityReport
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, PlannedModel, RowFigures
from twoshift.batch.run_record import RunRecord
from twoshift.batch.settings import JobSettings
from twoshift.batch.summary import Summary, dollars, parity_words, summary_page
from twoshift.blobs.local import LocalBlobs
from twoshift.llm_ports import QualityReport
from twoshift.units import counted

MODEL = PlannedModel("<b>model</b>", "abc", "fp32", ("y",))


def plan(shards: int) -> Plan:
    settings = JobSettings(inputs=("in",), output="out", model="m")
    pieces = tuple((Piece(0, k, k + 1, 1, 10),) for k in range(shards))
    schema = pa.schema([pa.field("error", pa.string())])
    return Plan.make(settings, MODEL, (InputFile("in", 1, "1", "parquet"),), pieces, schema, RowFigures(0.1))


def part(shard: int, errors: int = 0) -> PartStats:
    return PartStats(shard, 10, errors, 100, 1, 2.0 + shard, 1.0, "w", {"null": errors} if errors else {})


def run(usd: float | None = None, elapsed_s: float = 10.0) -> RunRecord:
    points = ((1.0, 10, 0.5), (2.0, 30, 1.5))
    return RunRecord(
        began_unix_s=0.0, elapsed_s=elapsed_s, workers=2, worker_s=2 * elapsed_s, rows=15, errors=1, busy_s=10.0,
        tokens=90, padding_tokens=10, failed_calls=1, out_of_memory=1, max_tokens=512, retries=2, speculated=3,
        deaths=("killed by SIGKILL",), failures={"<script>": 1}, timeline=points, usd=usd,
    )  # fmt: skip


def test_a_summary_sums_parts_and_runs() -> None:
    parity = ParityReport(32, 0.99999, None, 0)
    later = msgspec.structs.replace(run(2.0), began_unix_s=10.0)
    made = Summary.of(plan(3), [part(0), part(1, errors=2), part(2)], [run(1.0), later], parity)
    assert (made.rows, made.errors, made.error_kinds, made.truncated) == (30, 2, {"null": 2}, 3)
    assert (made.elapsed_s, made.rows_per_s, made.busy, made.padding) == (20.0, 1.5, 0.5, 0.1)
    assert (made.usd, made.usd_per_million) == (3.0, 1e5)
    assert (made.retries, made.speculated, made.failed_calls, len(made.deaths)) == (4, 6, 2, 2)
    assert (made.device_s, made.wasted_s) == (3.0, 17.0)
    assert made.shard_seconds == {"p10": 2.0, "p50": 3.0, "p90": 4.0, "longest": 4.0}


def test_runs_of_pieces_at_the_same_time_are_counted_once() -> None:
    began = {100.0: 10.0, 105.0: 10.0, 106.0: 2.0, 200.0: 5.0}
    runs = [msgspec.structs.replace(run(elapsed_s=each), began_unix_s=at_s) for at_s, each in began.items()]
    assert Summary.of(plan(1), [part(0)], runs, None).elapsed_s == 20.0


def test_a_job_lasts_from_the_beginning_of_its_first_run_to_the_end_of_its_last() -> None:
    later = msgspec.structs.replace(run(), began_unix_s=1000.0)
    assert Summary.of(plan(1), [part(0)], [run(), later], None).span_s == 1010.0
    assert Summary.of(plan(1), [part(0)], [], None).span_s == 0.0


@pytest.mark.parametrize(
    ("usd", "written"),
    [(0.0, "$0.00"), (0.0044, "$0.0044"), (0.000012, "$0.000012"), (0.5, "$0.50"), (1234.5, "$1,234.50")],
)
def test_less_than_a_cent_is_not_nothing(usd: float, written: str) -> None:
    assert dollars(usd) == written


def test_one_of_a_thing_has_no_plural() -> None:
    assert [counted(1, "row"), counted(2000, "row"), counted(0, "copy", "copies")] == [
        "1 row",
        "2,000 rows",
        "0 copies",
    ]


def test_a_page_says_what_ran() -> None:
    page = summary_page(Summary.of(plan(1), [part(0)], [run(), run()], None), [part(0)])
    for told in (
        "in fp32 over 10 rows",
        "in to out",
        "started 1970-01-01 00:00 UTC",
        "2 runs with 2 workers",
        "1 shard<",
    ):
        assert told in page, told


def test_a_page_leaves_out_what_says_nothing() -> None:
    quiet = msgspec.structs.replace(run(), padding_tokens=0)
    few = summary_page(Summary.of(plan(2), [part(0), part(1)], [quiet], None), [part(0), part(1)])
    assert "padding<" not in few
    assert "<figure" not in few
    points = tuple((float(k), 10 * k, 0.5 * k) for k in range(4))
    long = msgspec.structs.replace(run(), timeline=points)
    stats = [part(k) for k in range(3)]
    assert summary_page(Summary.of(plan(3), stats, [long], None), stats).count("<figure") == 3


@pytest.mark.parametrize(
    ("parity", "is_told"),
    [
        (ParityReport(9, 1.0, 0.0, 0), False),
        (ParityReport(9, 1.0, 0.0, 1), True),
        (ParityReport(9, None, None, 0), True),
    ],
)
def test_only_a_model_with_labels_is_told_of_other_labels(parity: ParityReport, is_told: bool) -> None:
    page = summary_page(Summary.of(plan(1), [part(0)], [run()], parity), [part(0)])
    assert ("with a different label" in page) is is_told


def test_other_answers_of_a_language_model_never_read_as_passed() -> None:
    parity = ParityReport(4, None, 12.0, 4, tokens=400, agreeing_tokens=100)
    told = " ".join(parity_words(parity))
    assert "Parity NOT reached: 4 rows scored again" in told
    assert "4 rows with a different answer, 25% of 400 tokens are equal, counted up to the first" in told
    assert "--batch-invariant" in told
    assert "largest difference" not in told  # of how long they are: nobody wants to know
    same = " ".join(parity_words(ParityReport(4, None, 0.0, 0, tokens=400, agreeing_tokens=400)))
    assert same.startswith("Parity: 4 rows")
    assert "--batch-invariant" not in same


def test_tokens_have_the_price_of_the_time_that_they_took() -> None:
    spoke = msgspec.structs.replace(part(0), output_tokens=50, cached_tokens=20)
    half = msgspec.structs.replace(run(2.0), output_s=7.5)  # of ten busy seconds
    made = Summary.of(plan(1), [spoke], [half], None)
    assert made.usd_per_million_output == pytest.approx(1e6 * 1.5 / 50)
    assert made.usd_per_million_input == pytest.approx(1e6 * 0.5 / 100)
    assert "per million input tokens" in summary_page(made, [spoke])
    assert Summary.of(plan(1), [part(0)], [half], None).usd_per_million_output is None


def test_what_let_a_language_model_start_is_in_the_report_and_in_the_plan() -> None:
    quality = QualityReport("rouge on e.jsonl", 0.8125, 0.8, 40)
    begun = msgspec.structs.replace(plan(1), model=msgspec.structs.replace(MODEL, quality=quality))
    again = msgspec.json.decode(msgspec.json.encode(begun), type=Plan)
    made = Summary.of(again, [part(0)], [run()], None)
    assert made.quality == quality
    page = summary_page(made, [part(0)])
    assert "0.8125 (rouge on e.jsonl, 40 rows; at least 0.8 was required)" in page
    assert msgspec.json.decode(msgspec.json.encode(made), type=Summary).quality == quality


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
        write_run(blobs, folder, f"{number:06d}", run(elapsed_s=float(number)))
    (tmp_path / "_twoshift" / "runs" / "000001.json").write_bytes(b"{")
    assert [each.elapsed_s for each in read_runs(blobs, folder)] == [0.0, 2.0]


def test_the_summary_of_a_job_that_is_done_can_be_read_again(tmp_path: Path) -> None:
    blobs, folder = LocalBlobs(), str(tmp_path)
    made = Summary.of(plan(1), [part(0)], [run()], ParityReport(1, None, 0.0, 0))
    assert read_summary(blobs, folder) is None
    blobs.write(f"{folder}/_twoshift/report.json", msgspec.json.encode(made))
    assert read_summary(blobs, folder) is None  # not done
    blobs.create(f"{folder}/_SUCCESS", b"")
    assert read_summary(blobs, folder) == made
    blobs.write(f"{folder}/_twoshift/report.json", b"{")
    assert read_summary(blobs, folder) is None
