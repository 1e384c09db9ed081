"""What a job's report says of its runs: gaps, marks, failed rows, and what was lost and expected."""

from __future__ import annotations

import msgspec
import pytest
from test_coordinator import FakePool, done, plan_of
from test_coordinator import run as run_job
from test_summary import part, plan, run

from twoshift.batch.impact import LiveImpact, Percentiles
from twoshift.batch.messages import WorkerHeartbeat
from twoshift.batch.part_stats import FailedRow
from twoshift.batch.pool import Died
from twoshift.batch.run_record import RunRecord
from twoshift.batch.summary import Summary, summary_page
from twoshift.batch.time_figures import time_figures

POINTS = tuple((float(k), 10 * k, 0.5 * k) for k in range(1, 6))


def runs() -> list[RunRecord]:
    """Two, an hour apart, the second one with a death and more workers."""
    first = msgspec.structs.replace(run(1.0), began_unix_s=100.0, timeline=POINTS)
    scaling, marks = (
        ((2.0, 4, "more workers are needed to finish in time"),),
        ((3.0, "worker died: killed by SIGKILL"),),
    )
    return [first, msgspec.structs.replace(first, began_unix_s=3700.0, scaling=scaling, marks=marks, lost_s=12.5)]


def test_runs_stand_where_they_were_with_what_happened_to_them() -> None:
    rates, busy = time_figures(runs())
    shown = str(rates)
    for words in ("run 1", "run 2", "resumed", "4 workers", "worker died: killed"):
        assert words in shown, words
    assert "run 2" in str(busy)


def test_one_run_alone_has_no_number_and_too_few_points_no_chart() -> None:
    (rates, _) = time_figures(runs()[:1])
    assert "run 1" not in str(rates)
    assert list(time_figures([run()])) == []
    assert list(time_figures([])) == []


def test_a_page_names_failed_rows_lost_time_and_what_was_expected() -> None:
    failed = msgspec.structs.replace(part(0, errors=2), failed=(FailedRow("id 7", "in.csv, row 8: <b>bad</b>"),))
    made = Summary.of(plan(2), [failed, part(1)], runs(), None)
    assert (made.lost_s, made.failed_rows) == (12.5, failed.failed)
    assert made.predicted_s == pytest.approx(20 * 0.1 * 20.0 / 40.0)  # rows, seconds each, on two workers
    page = summary_page(made, [failed, part(1)])
    for words in (
        "id 7",
        "row 8: &lt;b&gt;bad",
        "Workers lost 12.5 s",
        "the maximum was 4 workers",
        "a duration of 1.0 s",
    ):
        assert words in page, words


def test_live_latency_beside_the_job_is_held_against_the_objective() -> None:
    live = LiveImpact(Percentiles.of([0.02] * 98 + [0.2] * 2), Percentiles.of([0.01]), 0.1)
    beside = msgspec.structs.replace(run(), live=live)
    page = summary_page(Summary.of(plan(1), [part(0)], [beside], None), [part(0)])
    assert page.count("objective 100 ms; 10 ms without the job") == 2
    assert "200 ms" in page


def test_the_rows_that_are_named_are_few() -> None:
    many = [msgspec.structs.replace(part(k, 5), failed=(FailedRow("", "bad"),) * 5) for k in range(50)]
    assert len(Summary.of(plan(50), many, runs(), None).failed_rows) == 20


def test_the_time_of_a_worker_that_dies_is_lost() -> None:
    pool = FakePool(lambda worker, lease, shard: [(7.0, Died("killed"))] if worker == 0 else done(lease, shard))
    pool.reply(0, 1.5, WorkerHeartbeat(1, 1.0, 1, 0, 0, 0, 0))
    _, coordinator = run_job(pool, plan_of(3))
    record = coordinator.record(0.0)
    assert record.lost_s >= 7.0
    assert [what for _, what in record.marks] == ["worker died: killed"]
