"""`jobs`: what runs in the batch lane of a server."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable
from typing import Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.job_command import local_lines
from twoshift.cli.output import show, table
from twoshift.cli.params import JsonFlag, whole
from twoshift.cli.server import SERVER_FIELDS, On, ServerClient, server_at
from twoshift.units import format_duration

__all__ = ["app", "job_lines", "shown_left", "shown_time"]

app = typer.Typer(
    help="List, show, pause, resume and cancel jobs on a server; show their logs and webhook deliveries.",
    no_args_is_help=True,
)
_COLUMNS = ("<<job", "<<state", "done", "rows", "errors", "time left", "<<model")
_LESS = ("time left", "rows", "model", "errors")  # left out on a narrow terminal, in this order
_DELIVERY_COLUMNS = ("<<created", "<event", "<<subject", "<webhook", "<state", "attempts", "<last reply")
_SETTLE_S, _POLL_S = 2.0, 0.2
JobId = Annotated[str, typer.Argument(help="Job id, as `twoshift jobs list` shows it.")]


@command(app, "list", "twoshift jobs list --on http://127.0.0.1:8000", SERVER_FIELDS)
def list_command(
    on: On = None,
    limit: Annotated[int, whole("Show at most N jobs.", most=1000)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the newest jobs of a server."""
    found = server_at(on).get(f"/v1/jobs?limit={limit}")
    rows = [_row(job) for job in found["data"]]
    show(as_json, found, table(_COLUMNS, rows, less=_LESS) if rows else "There are no jobs.")


@command(app, "show", "twoshift jobs show job-0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def show_command(job: JobId, on: On = None, as_json: JsonFlag = False) -> None:
    """Show the state and progress of a job."""
    server = server_at(on)
    found = server.get(_path(job))
    show(as_json, found, *job_lines(found))
    for line in () if as_json else _here_lines(found, server.is_local, server.option):
        typer.echo(line)  # in one piece: to be copied


@command(app, "pause", "twoshift jobs pause job-0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def pause_command(job: JobId, on: On = None, as_json: JsonFlag = False) -> None:
    """Pause a job: running shards finish, and no new shards start until `twoshift jobs resume`."""
    _change(job, "pause", on, as_json)
    if not as_json:
        typer.echo("Shards that are running now finish first.")


@command(app, "resume", "twoshift jobs resume job-0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def resume_command(job: JobId, on: On = None, as_json: JsonFlag = False) -> None:
    """Resume a job that was paused or has failed."""
    _change(job, "resume", on, as_json, _settled)


@command(app, "cancel", "twoshift jobs cancel job-0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def cancel_command(job: JobId, on: On = None, as_json: JsonFlag = False) -> None:
    """Cancel a job; committed parts are kept."""
    _change(job, "cancel", on, as_json)


@command(app, "logs", "twoshift jobs logs job-0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def logs_command(job: JobId, on: On = None, as_json: JsonFlag = False) -> None:
    """Print the log of a job."""
    found = server_at(on).get(f"{_path(job)}/log")
    show(as_json, found, *(f"{shown_time(line['at'])}  {line['text']}" for line in found["data"]))


@command(app, "deliveries", "twoshift jobs deliveries --on http://127.0.0.1:8000", SERVER_FIELDS)
def deliveries_command(
    on: On = None,
    limit: Annotated[int, whole("Show at most N webhook deliveries.", most=1000)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the newest webhook deliveries and the status of each reply."""
    found = server_at(on).get(f"/v1/deliveries?limit={limit}")
    rows = [
        (shown_time(each["created_at"]), each["type"], each["subject"], each["webhook"], each["state"],
         f"{each['attempts']:,}", each["last"])
        for each in found["data"]
    ]  # fmt: skip
    show(as_json, found, table(_DELIVERY_COLUMNS, rows) if rows else "There are no deliveries.")


def shown_time(at_s: float | None) -> str:
    """Here, to the second."""
    return "" if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def shown_left(left_s: float | None) -> str:
    """How long something will still take, where that is known."""
    return "" if left_s is None else format_duration(left_s)


def _change(
    job: str,
    what: str,
    on: str | None,
    as_json: bool,
    then: Callable[[ServerClient, Any], Any] = lambda _, found: found,
) -> None:
    server = server_at(on)
    found = then(server, server.post(f"{_path(job)}/{what}"))
    show(as_json, found, *job_lines(found))


def _settled(server: ServerClient, job: dict[str, Any]) -> dict[str, Any]:
    """A moment later: one that fails at once is not said to wait or to run."""
    until_s = time.monotonic() + _SETTLE_S
    while job["state"] in ("queued", "running") and time.monotonic() < until_s:
        time.sleep(_POLL_S)
        job = server.get(_path(job["id"]))
    return job


def _path(job: str) -> str:
    return f"/v1/jobs/{urllib.parse.quote(job, safe='')}"


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    """Of the list."""
    done, settings = job["progress"] or {}, job["settings"]
    share, errors = f"{done.get('share', 0.0):.0%}", f"{done.get('errors', 0):,}"
    state = "held" if _why_held(job) else _state(job)
    return job["id"], state, share, _rows(done), errors, _left(job), _model(settings)


def _model(settings: dict[str, Any]) -> str:
    """By the name that it was asked for: an adapter's is its own."""
    return settings.get("adapter") or settings["model"]


def _state(job: dict[str, Any]) -> str:
    """As people call it: a batch whose window has passed was cancelled by nobody."""
    return "expired" if (job["state"], job["reason"]) == ("cancelled", "expired") else job["state"]


def _why_held(job: dict[str, Any]) -> str:
    return (job["progress"] or {}).get("held", "") if job["state"] == "running" else ""


def _rows(done: dict[str, Any]) -> str:
    """Those that are done, and of how many, where that is known."""
    total = done.get("rows_total")
    return f"{done.get('rows', 0):,}" + ("" if total is None else f"/{total:,}")


def _left(job: dict[str, Any]) -> str:
    left_s = (job["progress"] or {}).get("left_s")
    return shown_left(left_s if job["state"] == "running" else None)


def _here_lines(job: dict[str, Any], is_here: bool, on: str) -> list[str]:
    """How to go on: with the server, and without it where that makes sense."""
    if job["settings"].get("endpoint") is not None:  # a batch, whose files are the server's
        return []
    if job["state"] not in ("paused", "failed", "cancelled"):
        return []
    there = (
        []
        if job["state"] == "cancelled"
        else [f"To resume the job on the server: twoshift jobs resume {job['id']}{on}"]
    )
    seen = is_here or all("://" in each for each in (*job["settings"]["inputs"], job["settings"]["output"]))
    return [*there, *(local_lines(job, on) if seen else [])]


def job_lines(job: dict[str, Any]) -> list[str]:
    """A job in words."""
    settings, done = job["settings"], job["progress"]
    reason = job["reason"] if job["reason"] not in (job["state"], _state(job)) else ""
    lines = [f"{job['id']}: {_state(job)}{': ' + reason if reason else ''}"]
    lines.append(f"model {_model(settings)}, input {', '.join(settings['inputs'])}, output {settings['output']}")
    if done:
        left = f", {_left(job)} left" if _left(job) else ""
        lines.append(
            f"{done['shards_done']:,} of {done['shards']:,} shards done, {_rows(done)} rows at "
            f"{done['rows_per_s']:,.1f} rows/s{left}; {done['errors']:,} rows with an error"
        )
        lines.append(
            f"{done['harvested_s']:,.1f} device seconds of idle time used, {done['riding_s']:,.1f} of them in "
            "calls shared with live requests"
        )
    return lines
