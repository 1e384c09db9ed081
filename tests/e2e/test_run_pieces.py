"""`run --piece`: one process does the whole job if the others never come, and another job is refused by name."""

from __future__ import annotations

import json

import pytest
from job_runs import JobFolder

pytestmark = pytest.mark.slow


def test_one_process_ends_the_job_of_several_and_finds_it_ended(job: JobFolder) -> None:
    done = job.run("--piece", "1/3", "--json")
    job.check_squares(300)
    assert json.loads(done.out)["rows"] == 300
    again = job.run("--piece", "0/3")
    assert "other processes did the work" in " ".join(again.out.split())
    job.check_squares(300)
    (job.out / "part-000002.parquet").unlink()
    job.run("--piece", "2/3")
    job.check_squares(300)
    _refusals(job)


def _refusals(job: JobFolder) -> None:
    def refused(*more: str) -> str:
        return " ".join(job.run(*more, expect=2).err.split())

    assert "the number of pieces was 3, now 17" in refused("--piece", "3/17")
    assert "the number of pieces was 3, now not given" in refused()
    assert "shard_rows was 50, now 20" in refused("--piece", "0/3", "--shard-rows", "20")
    assert "0/3 to 2/3" in refused("--piece", "3/3")
    assert "with --fresh" in refused("--piece", "0/3", "--fresh")
    assert "with --retry-errors" in refused("--piece", "0/3", "--retry-errors", "old")
    assert "cannot be used with --on" in refused("--piece", "0/3", "--on", "http://127.0.0.1:1")
    job.parquet(files=4)
    assert "these input files are new: docs/003.parquet" in refused("--piece", "0/3")


BREAKS = "if 290 in x and os.path.exists('out/_twoshift/plan.json') and not os.path.exists('mended'): os._exit(9)"


def test_a_shard_that_cannot_be_done_is_tried_again_by_the_next_run(job: JobFolder) -> None:
    job.model(BREAKS)
    failed = job.run("--piece", "0/2", expect=5)
    assert "Shard 5 failed" in failed.out
    assert not (job.out / "_SUCCESS").exists()
    (job.path / "mended").touch()
    job.run("--piece", "0/2")
    job.check_squares(300)


def test_a_process_that_errors_of_others_stop_says_how_many_there_are(job: JobFolder) -> None:
    job.model("if (x >= 150).any(): raise ValueError('too large')")
    job.run("--piece", "0/2")
    (job.out / "_SUCCESS").unlink()
    for record in (job.out / "_twoshift" / "runs").iterdir():  # as if it had been killed: the parts tell
        record.unlink()
    stopped = " ".join(job.run("--piece", "1/2", "--max-errors", "20", expect=4).out.split())
    assert "too many rows failed: 150 of 300 in all runs, 0 of 0 in this run; --max-errors allows 20." in stopped
