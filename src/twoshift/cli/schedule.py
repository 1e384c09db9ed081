"""`schedule`: jobs of a server that fire by the clock, or by a marker."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from twoshift import values
from twoshift.cli.commands import command
from twoshift.cli.jobs import shown_time
from twoshift.cli.output import show, table
from twoshift.cli.params import JsonFlag, given_of, whole, with_settings
from twoshift.cli.server import SERVER_FIELDS, On, server_at
from twoshift.declare import setting

__all__ = ["app"]

app = typer.Typer(help="Add, list, pause, resume, run and remove schedules of jobs on a server.", no_args_is_help=True)
_COLUMNS = ("<<schedule", "<when", "<state", "<next", "<model", "<output")
_RUN_COLUMNS = ("<<due", "<state", "<<job", "<job state", "<reason")
_ON = "--on http://127.0.0.1:8000"
Name = Annotated[str, typer.Argument(help="Name of the schedule.")]


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a job runs, and what becomes of runs that meet each other; the server has the defaults."""

    cron: Annotated[
        str | None,
        setting(
            "Cron expression: @daily, or minute, hour, day, month and weekday such as '0 2 * * *'.",
            values.text("EXPRESSION"),
        ),
    ] = None
    after: Annotated[
        str | None,
        setting(
            "Run the job whenever this file appears or is replaced: a path or an object in a bucket.",
            values.text("LOCATION"),
        ),
    ] = None
    every: Annotated[
        str | None, setting("With --after: interval between checks for the file.", values.text("DURATION"), shown="30s")
    ] = None
    tz: Annotated[str | None, setting("Time zone of --cron, and of {date} and {time} in paths.", shown="UTC")] = None
    missed: Annotated[
        str | None,
        setting(
            "If runs were missed while the server was down: skip them, or run the job once for all of them.",
            values.choice(("skip", "once")),
            shown="skip",
        ),
    ] = None
    overlap: Annotated[
        str | None,
        setting(
            "If the previous run is still running: skip the new run, queue it, or cancel the previous run.",
            values.choice(("skip", "queue", "cancel")),
            shown="skip",
        ),
    ] = None
    notify: Annotated[
        tuple[str, ...], setting("Names of the server's webhooks to call when a run ends: a,b.", values.names())
    ] = ()
    workers: Annotated[
        int | None,
        setting(
            "Minimum number of replicas of the model while the job runs; replicas that live load does not need are "
            "removed afterwards.",
            values.whole(most=1024),
        ),
    ] = None


@command(app, "add", "twoshift schedule add nightly --cron '0 2 * * *' job.toml", SERVER_FIELDS)
@with_settings(ScheduleOptions)
def add_command(
    name: Annotated[str, typer.Argument(help="Name of the schedule.")],
    job: Annotated[
        str,
        typer.Argument(
            help="Job file in the format of `twoshift run`; {date}, {time} and {run} are replaced for each run."
        ),
    ],
    *,
    on: On = None,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Run a job by cron, or whenever a marker file appears.

    In the job's paths, {date}, {time} and {run} are replaced, so that each run has its own folder.
    """
    from twoshift.batch.settings import read_settings
    from twoshift.cli.run_on import job_data
    from twoshift.client.requests import absolute

    server = server_at(on)
    spec = given_of(ScheduleOptions, given)
    of_job = {name: spec.pop(name) for name in ("notify", "workers") if name in spec}
    settings = read_settings(Path(job), of_job)
    if "after" in spec and server.is_local:
        spec["after"] = absolute(spec["after"])
    found = server.post("/v1/schedules", {"name": name, "job": job_data(server, settings), **spec})
    show(as_json, found, *_lines(found))


@command(app, "list", f"twoshift schedule list {_ON}", SERVER_FIELDS)
def list_command(on: On = None, as_json: JsonFlag = False) -> None:
    """List the schedules of a server."""
    found = server_at(on).get("/v1/schedules")
    rows = [_row(each) for each in found["data"]]
    show(as_json, found, table(_COLUMNS, rows) if rows else "There are no schedules.")


@command(app, "show", f"twoshift schedule show nightly {_ON}", SERVER_FIELDS)
def show_command(schedule: Name, on: On = None, as_json: JsonFlag = False) -> None:
    """Show a schedule and its next run."""
    found = server_at(on).get(_path(schedule))
    show(as_json, found, *_lines(found))


@command(app, "pause", f"twoshift schedule pause nightly {_ON}", SERVER_FIELDS)
def pause_command(schedule: Name, on: On = None, as_json: JsonFlag = False) -> None:
    """Pause a schedule; running jobs continue."""
    found = server_at(on).post(f"{_path(schedule)}/pause")
    show(as_json, found, *_lines(found))


@command(app, "resume", f"twoshift schedule resume nightly {_ON}", SERVER_FIELDS)
def resume_command(schedule: Name, on: On = None, as_json: JsonFlag = False) -> None:
    """Resume a paused schedule, starting with its next scheduled time."""
    found = server_at(on).post(f"{_path(schedule)}/resume")
    show(as_json, found, *_lines(found))


@command(app, "remove", f"twoshift schedule remove nightly {_ON}", SERVER_FIELDS)
def remove_command(schedule: Name, on: On = None, as_json: JsonFlag = False) -> None:
    """Delete a schedule; its jobs are kept."""
    found = server_at(on).delete(_path(schedule))
    show(as_json, found, f"Removed {found['name']}.")


@command(app, "history", f"twoshift schedule history nightly {_ON}", SERVER_FIELDS)
def history_command(
    schedule: Name,
    on: On = None,
    limit: Annotated[int, whole("Show at most N runs.", most=1000)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the runs of a schedule, including skipped, missed and failed ones."""
    found = server_at(on).get(f"{_path(schedule)}/history?limit={limit}")
    rows = [_run_row(each) for each in found["data"]]
    show(as_json, found, table(_RUN_COLUMNS, rows) if rows else "The schedule has not run yet.")


@command(app, "run", f"twoshift schedule run nightly {_ON}", SERVER_FIELDS)
def run_command(schedule: Name, on: On = None, as_json: JsonFlag = False) -> None:
    """Run a schedule's job now."""
    found = server_at(on).post(f"{_path(schedule)}/run")
    show(as_json, found, table(_RUN_COLUMNS, [_run_row(found)]))


def _path(schedule: str) -> str:
    return f"/v1/schedules/{urllib.parse.quote(schedule, safe='')}"


def _when(schedule: dict[str, Any]) -> str:
    spec = schedule["spec"]
    return f"{spec['cron']} {spec['tz']}" if spec["cron"] else f"after {spec['after']}, checked every {spec['every']}"


def _row(schedule: dict[str, Any]) -> tuple[str, ...]:
    job, state = schedule["spec"]["job"], _state(schedule)
    return schedule["name"], _when(schedule), state, shown_time(schedule["next_at"]), str(job["model"]), job["output"]


def _state(schedule: dict[str, Any]) -> str:
    return "paused" if schedule["paused"] else "failing" if schedule["problem"] else "active"


def _run_row(run: dict[str, Any]) -> tuple[str, ...]:
    return shown_time(run["due_at"]), run["state"], run["job"] or "", run["job_state"] or "", run["reason"]


def _lines(schedule: dict[str, Any]) -> list[str]:
    spec, next_at = schedule["spec"], schedule["next_at"]
    lines = [f"{schedule['name']}: {_when(schedule)}; {_state(schedule)}"]
    if next_at is not None:
        lines.append(f"next run: {shown_time(next_at)} (local time)")
    lines.append(f"missed runs: {spec['missed']}; if the previous run is still running: {spec['overlap']}")
    lines.append(
        f"model {spec['job']['model']}, input {_listed(spec['job']['inputs'])}, output {spec['job']['output']}"
    )
    return [*lines, *([f"problem: {schedule['problem']}"] if schedule["problem"] else [])]


def _listed(inputs: Any) -> str:
    return inputs if isinstance(inputs, str) else ", ".join(inputs)
