"""What a schedule may say, and what its runs are called."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from twoshift.errors import InvalidInput
from twoshift.triggers.spec import ScheduleSpec, run_of


def spec(output: str = "out/{date}", **more: Any) -> ScheduleSpec:
    job = {"inputs": ["in/{date-1}/*.parquet", "s3://b/{date}"], "output": output, "model": "m"}
    return ScheduleSpec(**{"name": "nightly", "job": job, "cron": "0 2 * * *", **more})


def test_placeholders_are_of_the_runs_own_time_in_its_zone() -> None:
    due_s = datetime.datetime(2026, 3, 29, 22, 30, tzinfo=datetime.UTC).timestamp()
    run = run_of("sch-1", "cron 1", due_s)
    made = spec("out/{date}/{time}/{run}", tz="Europe/Berlin").settings(run)
    assert made["inputs"] == ["in/2026-03-29/*.parquet", "s3://b/2026-03-30"]
    assert made["output"] == f"out/2026-03-30/003000/20260329T223000Z-{run.id[-6:]}"
    assert made["model"] == "m"


def test_the_same_schedule_and_key_are_the_same_run() -> None:
    assert run_of("a", "cron 1", 1.0).id == run_of("a", "cron 1", 2.0).id
    assert len({run_of(each, key, 1.0).id for each in "ab" for key in ("cron 1", "cron 2")}) == 4


@pytest.mark.parametrize(
    ("output", "more"),
    [
        ("out/{date}", {}),
        ("out/{run}", {"cron": "* * * * *"}),
        ("out/{date}-{time}", {"cron": "*/5 * * * *", "tz": "Europe/Berlin"}),
        ("out/{time}/{date}", {"cron": None, "after": "in/_SUCCESS"}),
        ("out/{date}", {"cron": "0 0 29 2 *"}),
    ],
)
def test_runs_with_folders_of_their_own_are_taken(output: str, more: dict[str, Any]) -> None:
    spec(output, **more).check()


@pytest.mark.parametrize(
    ("output", "more", "told"),
    [
        ("out/", {}, "two runs would write to out; add .date., .time. or .run., such as out/.run."),
        ("out/{time}", {}, "two runs would write to out/020000"),
        ("out/{date}", {"cron": "0 */6 * * *"}, "two runs would write to"),
        ("out/{time}", {"cron": "*/1 * * * *"}, "two runs would write to"),
        ("out/{time}", {"cron": "0 0 29 2 *"}, "two runs would write to out/000000"),
        ("out/{date}", {"cron": None, "after": "in/_SUCCESS"}, "two runs would write to"),
        ("out/{time}", {"cron": None, "after": "in/_SUCCESS"}, "two runs would write to"),
        ("out/{dat}", {}, "one of .date., .date-1."),
        ("out/{run-1}", {}, "one of .date."),
        ("out/{run}", {"cron": None}, "either a cron expression, or"),
        ("out/{run}", {"after": "x"}, "either a cron expression, or"),
        ("out/{run}", {"cron": "0 2 * *"}, "five fields"),
        ("out/{run}", {"tz": "Mars/Phobos"}, "a time zone such as"),
        ("out/{run}", {"tz": "../../etc/passwd"}, "a time zone such as"),
        ("out/{run}", {"tz": ""}, "a time zone such as"),
        ("out/{run}", {"name": "a/b"}, "letters, digits"),
        ("out/{run}", {"cron": None, "after": "in/{date}/_SUCCESS"}, "without placeholders"),
        ("out/{run}", {"every": "10ms"}, "at least 1s"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(output: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        spec(output, **more).check()


def test_a_job_without_an_output_is_refused() -> None:
    for output in (None, 3, ["a"]):
        with pytest.raises(InvalidInput, match="a folder with a placeholder"):
            ScheduleSpec(name="a", cron="@daily", job={"output": output, "inputs": 3}).check()
