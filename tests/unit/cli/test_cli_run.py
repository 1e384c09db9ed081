"""What `twoshift run` says while it runs and at its end."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from twoshift.batch.coordinator import Ending
from twoshift.batch.job import JobResult
from twoshift.batch.progress import NOTHING_YET, JobSnapshot
from twoshift.batch.run_record import RunRecord
from twoshift.batch.settings import JobSettings
from twoshift.batch.summary import Summary
from twoshift.cli import run
from twoshift.cli.job_progress import JobProgress
from twoshift.cli.run_warning import failed_rows_warning
from twoshift.policy.deadline import Outlook, Verdict
from twoshift.runtime.devices import usable_threads

Run = Callable[[str], Any]
SETTINGS = JobSettings(inputs=("in",), output="out/", model="m", window="2h", price_usd_per_hour=1.0, max_errors="20")
NOW = JobSnapshot(
    elapsed_s=3600.0, shards=500, shards_done=418, share=0.836, share_before=0.0, rows=12_345_678,
    committed_rows=12_000_000, errors=1234, rows_per_s=123_456.0, tokens_per_s=1e6, padding=0.1, workers=2, usd=12.34,
    outlook=Outlook(Verdict.ON_TRACK, 1.0, 1.0, 1.0, 0.97, 1.0, 1),
)  # fmt: skip
MOST = ("12.3M rows", "123k rows/s", "418/500 shards", "12 min left", "97% likely in time", "$12.34", "1,234 errors")


def drawn(now: JobSnapshot, width: int) -> str:
    screen = io.StringIO()
    progress = JobProgress(SETTINGS)
    progress._start_bar(Console(file=screen, width=width, force_terminal=True, color_system=None, legacy_windows=False))
    progress.draw(now)
    console = Console(file=io.StringIO(), width=width)
    console.print(progress._bar)
    progress.__exit__(None, None, None)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("width", [80, 100])
def test_on_a_terminal_the_bar_stays_beside_all_that_matters(width: int) -> None:
    shown = drawn(NOW, width)
    assert "━" * 8 in shown
    assert "84 %" in shown
    assert [part for part in MOST if part not in shown] == []
    assert "tokens/s" not in shown
    assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize("width", [20, 40])
def test_on_a_narrow_terminal_the_bar_stays_and_the_last_things_go(width: int) -> None:
    shown = drawn(NOW, width)
    assert "━" * 8 in shown
    assert "84 %" in shown
    assert "errors" not in shown


def test_on_a_wide_terminal_there_is_room_for_the_rest() -> None:
    shown = drawn(NOW, 200)
    assert "1M tokens/s, 10.0% padding" in shown
    assert "tokens/s" not in drawn(replace(NOW, tokens_per_s=NOW.rows / NOW.elapsed_s), 200)  # it has none


def test_off_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 0.0
    monkeypatch.setattr("twoshift.cli.job_progress.time.monotonic", lambda: now_s)
    with JobProgress(SETTINGS) as progress:
        progress.loading()
        for step in range(30):
            now_s = step / 2
            progress.draw(replace(NOW, share=step / 100))
        progress.ended(replace(NOW, share=1.0))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Loading m", "4%", "24%", "100%"]
    assert "left" not in lines[-1]


def test_a_run_that_did_nothing_or_was_stopped_has_no_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with JobProgress(SETTINGS) as progress:
        progress.ended(replace(NOW, share=1.0, rows=0))
        progress.ended(NOW)
    assert capsys.readouterr().err == ""


# The end


def record(began_unix_s: float = 0.0) -> RunRecord:
    return RunRecord(
        began_unix_s=began_unix_s, elapsed_s=60.0, workers=1, worker_s=60.0, rows=1, errors=0, busy_s=1.0, tokens=1,
        padding_tokens=0, failed_calls=0, out_of_memory=0, max_tokens=0, retries=0, speculated=0, deaths=(),
        failures={}, timeline=(), usd=0.0044,
    )  # fmt: skip


def summary(*runs: RunRecord) -> Summary:
    return Summary(
        model="m", precision="fp32", shards=1, rows=1, errors=0, error_kinds={}, truncated=0, tokens=1, padding=0.0,
        elapsed_s=60.0, device_s=1.0, wasted_s=0.0, busy=0.5, rows_per_s=1.0, shard_seconds={}, retries=0, speculated=0,
        deaths=(), failures={}, failed_calls=0, out_of_memory=0, max_tokens=None, usd=0.0044, usd_per_million=4400.0,
        parity=None, precision_parity=None, runs=runs,
    )  # fmt: skip


def ended(ending: Ending, last: JobSnapshot = NOW, whole: Summary | None = None, **more: Any) -> JobResult:
    return JobResult(ending, last, whole, more.get("dead", {}), more.get("failures", {}))


def lines(result: JobResult) -> str:
    return "\n".join(run._lines(SETTINGS, result))


def test_a_job_that_is_done_says_where_its_parts_and_its_report_are() -> None:
    last = replace(NOW, shards=1, shards_done=1, committed_rows=1, errors=0, usd=0.0044)
    assert lines(ended(Ending.DONE, last, summary(record()))).splitlines() == [
        "Done: 1 row, no errors; out/ contains 1 part and _SUCCESS.",
        "Cost of the whole job: $0.0044.",
        "This run: 1 row in 3,600.0 s, no errors, $0.0044.",
        "The job ended within its window of 2h.",
        "Report: out/_twoshift/report.html",
    ]


def test_a_job_that_was_done_before_says_so() -> None:
    last = replace(NOW, shards=1, shards_done=1, committed_rows=0, errors=0)
    told = (
        "This run: nothing was left to do (only file sizes were compared; `twoshift verify out/` compares checksums)."
    )
    assert told in lines(ended(Ending.DONE, last, summary(record())))


def test_a_job_that_was_stopped_tells_this_run_from_the_whole() -> None:
    assert lines(ended(Ending.STOPPED)).splitlines() == [
        "Stopped. This run: 12,000,000 rows in 3,600.0 s, 1,234 with an error, $12.34.",
        "The whole job: 418 of 500 shards are done. Run the same command again to resume.",
        "Report so far: out/_twoshift/report.html",
    ]
    assert (
        lines(ended(Ending.STOPPED, NOTHING_YET))
        == "Stopped before the first shard. Run the same command again to resume."
    )


def test_too_many_errors_are_counted_beside_their_limit() -> None:
    told = lines(ended(Ending.TOO_MANY_ERRORS))
    assert "1,234 of 12,000,000 in this run; --max-errors allows 20." in told
    assert "with a higher --max-errors" in told


def test_too_many_errors_of_other_processes_are_counted_too() -> None:
    last = replace(NOW, committed_rows=0, errors=0, rows_before=50, errors_before=2).in_whole(rows=3000, errors=300)
    told = lines(ended(Ending.TOO_MANY_ERRORS, last))
    assert "too many rows failed: 300 of 3,000 in all runs, 0 of 0 in this run; --max-errors allows" in told


def test_dead_shards_are_named_the_first_of_them() -> None:
    told = lines(ended(Ending.DEAD_SHARDS, dead=dict.fromkeys(range(12), "why"), failures={"why": 48}))
    assert "Shard 9 failed: why\n2 more shards failed.\n" in told
    assert (
        "418 of 500 shards are committed. Run the same command again to retry the other shards.\n48 times: why" in told
    )


@pytest.mark.parametrize(
    ("result", "made", "report"),
    [
        (ended(Ending.DONE, NOW, summary(record())), True, "out/_twoshift/report.html"),
        (ended(Ending.DONE, NOW, summary(record(), record(7200.0))), False, "out/_twoshift/report.html"),
        (ended(Ending.STOPPED), None, "out/_twoshift/report.html"),
        (ended(Ending.STOPPED, replace(NOW, elapsed_s=7201.0)), False, "out/_twoshift/report.html"),
        (ended(Ending.STOPPED, NOTHING_YET), None, None),
    ],
)
def test_json_tells_of_the_window_and_of_the_report(result: JobResult, made: bool | None, report: str | None) -> None:
    data = run._data(SETTINGS, result)
    assert (data["window_s"], data["made_window"], data["report"]) == (7200.0, made, report)


def test_without_a_window_none_was_made() -> None:
    settings = JobSettings(inputs=("in",), output="out", model="m")
    data = run._data(settings, ended(Ending.DONE, NOW, summary(record())))
    assert (data["window_s"], data["made_window"]) == (None, None)


# Signals and options


STORM = """
import signal
from twoshift.cli import run

class Stoppable:
    def stop(self, now=False):
        print(now)

with run._signals(Stoppable()):
    for number in [signal.SIGTERM] * 5 + [signal.SIGINT] * 5 + [signal.SIGTERM] * 5:
        signal.raise_signal(number)
"""


def test_a_storm_of_signals_is_answered_once() -> None:
    # In a process of its own: what other tests have loaded into this one may have a hand in its signals
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["False", "True"]
    assert [line.partition(" after")[0] for line in done.stderr.splitlines()] == ["Stopping", "Stopping now."]


def test_no_grace_at_all_is_allowed(twoshift: Callable[[str], Any]) -> None:
    ran = twoshift("run none.parquet --model none.py:None -o out --grace 0")
    assert ran.code == 2
    assert "--grace" not in ran.err
    assert "none.py:None" in ran.err


def test_a_language_model_without_a_prompt_is_refused_before_it_is_loaded(twoshift: Run, tmp_path: Path) -> None:
    ran = twoshift(f"run people.parquet --model smollm --text bio -o {tmp_path}/out")
    assert ran.code == 2
    assert "--prompt is missing; expected --prompt with a column or a template instead of --text" in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("nope.csv --text body", "INPUTS: 'nope.csv' cannot be used; expected a file or folder that exists"),
        ("in.csv --text nobody", "--text: 'nobody' cannot be used; expected a column of in.csv (id, body)"),
        ("in.csv --text body --keep ids", "--keep: 'ids' cannot be used; expected a column of in.csv (id, body)"),
        ("in.csv --columns id,age", "--columns: 'age' cannot be used; expected a column of in.csv (id, body)"),
        ("in.csv --text body --columns id,body", "--columns: 'id,body' cannot be used with --text"),
        ("in.csv --text body -o nightly/{date}", "--output: 'nightly/{date}' cannot be used; expected a name without"),
    ],
)
def test_a_wrong_input_is_refused_by_its_option_before_the_model_is_loaded(
    twoshift: Run, options: str, said: str
) -> None:
    Path("in.csv").write_text("id,body\n1,one\n")
    ran = twoshift(f"run -o out --model minilm {options}")
    assert ran.code == 2
    assert ran.err.startswith(f"twoshift: {said}")  # and nothing of loading before it


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--on http://127.0.0.1:1 --precision int8",
            "--precision: 'int8' cannot be used with --on",
        ),
        (
            "--on http://127.0.0.1:1 --retry-errors o",
            "--retry-errors: 'o' cannot be used with --on",
        ),
        ("--max-live-load 30%", "--max-live-load: 0.3 cannot be used without --on"),
        ("--detach", "--detach cannot be used without --on"),
    ],
)
def test_an_option_of_a_job_on_a_server_or_of_one_here_is_refused_for_the_other(
    twoshift: Run, options: str, said: str
) -> None:
    ran = twoshift(f"run in.csv -o out --model m --text body {options}")
    assert (ran.code, ran.err.startswith(f"twoshift: {said}")) == (2, True)


def test_more_preparing_processes_than_cores_are_refused(twoshift: Run) -> None:
    ran = twoshift("run in.csv -o out --model minilm --text body --preparers 1000")
    told = f"--preparers: 1000 cannot be used; expected at most {usable_threads()}, the number of usable cores"
    assert (ran.code, told in ran.err) == (2, True)


def test_a_job_files_placeholder_is_named_as_the_file_does(twoshift: Run) -> None:
    Path("job.toml").write_text('inputs = "in/{date-1}/"\noutput = "out"\nmodel = "minilm"\ntext = "body"\n')
    assert "job.toml: inputs: 'in/{date-1}/' cannot be used" in twoshift("run job.toml").err


def test_most_rows_failed_is_said_with_the_most_frequent_error() -> None:
    warning = failed_rows_warning(29_969, 30_000, {"null": 3, "not valid": 29_966}, "out/")
    assert "29,969 of 30,000 rows failed, most often: not valid (29,966)." in warning
    assert "--max-errors" in warning
    assert "--retry-errors out/" in warning
    assert failed_rows_warning(15_000, 30_000, {"null": 15_000}, "out/") == ""


def test_a_warning_of_failed_rows_leaves_the_exit_code_and_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    whole = msgspec.structs.replace(summary(record()), errors=1, error_kinds={"null": 1})
    assert run._tell(SETTINGS, ended(Ending.DONE, NOW, whole), as_json=True) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["errors"] == 1
    assert captured.err.startswith("Warning: 1 of 1 rows failed, most often: null (1).")
