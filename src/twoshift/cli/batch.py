"""`batch`: files of requests on a server, as OpenAI's batch API and `vllm run-batch` have them."""

from __future__ import annotations

import json
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.jobs import shown_left, shown_time
from twoshift.cli.output import note, show, table
from twoshift.cli.params import JsonFlag, text, whole
from twoshift.cli.progress import Ongoing, progress_bar
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.cli.server import SERVER_FIELDS, On, ServerClient, server_at
from twoshift.errors import Inapplicable, InvalidInput, WrongState
from twoshift.units import counted

__all__ = ["app"]

app = typer.Typer(
    help="Submit, list, show, cancel and retry batches of API requests on a server.", no_args_is_help=True
)
_COLUMNS = ("<<batch", "<status", "done", "failed", "time left", "<created", "<expires", "<model")
_OVER = ("completed", "failed", "expired", "cancelled")
_CODES = {"completed": EXIT_CODES["done"], "failed": 2}
_POLL_S = 0.5
_NAMED = 10  # errors
_HEAD_BYTES = 1 << 20
BatchId = Annotated[str, typer.Argument(help="Batch id, as `twoshift batch list` shows it.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the batch ends, with a progress bar.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="With --wait: write the results to this file.", metavar="FILE")
]


@command(app, "submit", "twoshift batch submit requests.jsonl --wait --on http://127.0.0.1:8000", SERVER_FIELDS)
def submit_command(
    requests: Annotated[
        Path,
        typer.Argument(
            help="File with one request per line: a JSON object with the keys custom_id, method, url and body."
        ),
    ],
    on: On = None,
    window: Annotated[str, text("Time until the batch must be done, counted from now, such as 24h or 90m.")] = "24h",
    endpoint: Annotated[
        str | None, text("API endpoint of the requests, such as /v1/embeddings.", shown="the url of the first request")
    ] = None,
    wait: Wait = False,
    output: Output = None,
    as_json: JsonFlag = False,
) -> int:
    """Upload a file of API requests to a server and run it as a batch."""
    _check_output(output, wait)
    if not requests.is_file():
        wrong = "is a folder" if requests.is_dir() else "does not exist"
        raise InvalidInput("requests", str(requests), f"a file with one JSON request per line; this path {wrong}")
    server = server_at(on)
    asked = {"endpoint": endpoint or _endpoint_of(requests), "completion_window": window}
    file = server.upload(requests, {"purpose": "batch"})
    batch = server.post("/v1/batches", {"input_file_id": file["id"], **asked})
    note(f"Created {batch['id']}. To see its state: `twoshift batch show {batch['id']}{server.option}`")
    return _followed_and_told(server, batch, wait, output, as_json)


@command(app, "list", "twoshift batch list --on http://127.0.0.1:8000", SERVER_FIELDS)
def list_command(
    on: On = None, limit: Annotated[int, whole("Show at most N batches.", most=100)] = 20, as_json: JsonFlag = False
) -> None:
    """List the newest batches of a server."""
    found = server_at(on).get(f"/v1/batches?limit={limit}")
    rows = [_row(batch) for batch in found["data"]]
    show(as_json, found, table(_COLUMNS, rows) if rows else "There are no batches.")


@command(app, "show", "twoshift batch show batch_0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def show_command(batch: BatchId, on: On = None, as_json: JsonFlag = False) -> None:
    """Show the status and progress of a batch."""
    server = server_at(on)
    found = server.get(_path(batch))
    _show(server, found, as_json, () if as_json else _why_it_waits(server, found))


@command(app, "cancel", "twoshift batch cancel batch_0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def cancel_command(batch: BatchId, on: On = None, as_json: JsonFlag = False) -> None:
    """Cancel a batch; finished requests are kept."""
    server = server_at(on)
    _show(server, server.post(f"{_path(batch)}/cancel"), as_json)


@command(app, "retry", "twoshift batch retry batch_0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def retry_command(
    batch: BatchId,
    on: On = None,
    window: Annotated[
        str | None,
        text(
            "Time until the batch must be done, counted from now, such as 24h or 90m.",
            shown="the window of the original batch",
        ),
    ] = None,
    wait: Wait = False,
    output: Output = None,
    as_json: JsonFlag = False,
) -> int:
    """Create a new batch of the requests that failed, expired or were cancelled."""
    _check_output(output, wait)
    server = server_at(on)
    made = server.post(f"{_path(batch)}/retry", {} if window is None else {"completion_window": window})
    return _followed_and_told(server, made, wait, output, as_json)


@command(app, "results", "twoshift batch results batch_0123456789ab --on http://127.0.0.1:8000", SERVER_FIELDS)
def results_command(
    batch: BatchId,
    on: On = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the results to this file.", metavar="FILE", show_default="stdout"),
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Print the failed requests instead of the results.")] = False,
) -> None:
    """Print the results of a batch."""
    server = server_at(on)
    found = server.get(_path(batch))
    file_id = found["error_file_id" if errors else "output_file_id"]
    if found["status"] not in _OVER:
        raise WrongState("batch", found["status"], "its results are available when the batch has ended")
    if file_id is not None:
        _write(server, file_id, output)
        if output is not None:
            note(f"{'Errors' if errors else 'Results'}: {output}")
        return
    note(_why_no_file(server, found, errors))
    if output is not None:
        Path(output).write_bytes(b"")


def _followed_and_told(
    server: ServerClient, batch: dict[str, Any], wait: bool, output: str | None, as_json: bool
) -> int:
    """Its exit code: 0 where all is done or nobody waits, 2 where its file is no batch, 3 where it came to no end.

    And as of `run` 4 where rows have failed.
    """
    if not wait:
        _show(server, batch, as_json)
        return 0
    batch = _followed(server, batch)
    file_id = batch["output_file_id"]
    if output is not None and file_id is not None:
        _write(server, file_id, output)
    _show(server, batch, as_json)
    if output is not None and file_id is not None:
        note(f"Results: {output}")
    if batch["status"] == "completed" and batch["request_counts"]["failed"]:
        return EXIT_CODES["too many errors"]
    return _CODES.get(batch["status"], EXIT_CODES["stopped"])


def _check_output(output: str | None, wait: bool) -> None:
    if output is not None and not wait:
        raise Inapplicable(
            "output", output, "without --wait; `twoshift batch results` writes the results of an ended batch"
        )


def _followed(server: ServerClient, batch: dict[str, Any]) -> dict[str, Any]:
    try:
        with progress_bar(batch["id"]) as progress, Ongoing(_nothing if sys.stderr.isatty() else note) as ongoing:
            told = ""
            while batch["status"] not in _OVER:
                if batch["status"] != told:
                    ongoing(f"{batch['id']}: {(told := batch['status'])}")
                time.sleep(_POLL_S)
                batch = _asked(server, batch["id"])
                counts = batch["request_counts"]
                progress((counts["completed"] + counts["failed"]) / max(1, counts["total"]))
    except KeyboardInterrupt:
        note(f"The batch keeps running: `twoshift batch cancel {batch['id']}{server.option}` stops it.")
    return batch


def _nothing(_told: str) -> None:
    """A bar shows the time itself."""


def _asked(server: ServerClient, batch_id: str) -> dict[str, Any]:
    """How far it is; a server that is started again goes on with it, so it is asked again for a while."""
    return server.get(_path(batch_id), lambda error: note(f"{error}: {batch_id} continues when the server is back"))


def _endpoint_of(requests: Path) -> str:
    """What the first line asks for; whether all do is the server's to say."""
    with requests.open("rb") as file:
        line = file.readline(_HEAD_BYTES)
    try:
        return str(json.loads(line)["url"])
    except ValueError:
        wrong = (
            "the first line is not JSON" if line.strip() else "the first line is empty" if line else "the file is empty"
        )
    except (KeyError, TypeError):
        wrong = "the first line has no `url`, and --endpoint is not set"
    raise InvalidInput("requests", str(requests), f"a file with one JSON request per line; {wrong}")


def _why_it_waits(server: ServerClient, batch: dict[str, Any]) -> list[str]:
    """What its job says."""
    if batch["status"] != "in_progress":
        return []
    try:
        job = server.get(f"/v1/jobs/{urllib.parse.quote(batch['id'], safe='')}")
    except InvalidInput:  # it is not there yet
        return []
    return [f"{job['state']}: {job['reason']}"] if job["reason"] not in ("", job["state"]) else []


def _why_no_file(server: ServerClient, batch: dict[str, Any], errors: bool) -> str:
    if batch["status"] == "failed":
        shown = f"twoshift batch show {batch['id']}{server.option}"
        return f"There are no results: the input file is invalid; `{shown}` shows the reason."
    if errors:
        return "There are no errors: no request has failed."
    return f"There are no results: no request was completed. `{_errors_of(server, batch)}` shows the reasons."


def _write(server: ServerClient, file_id: str, output: str | None) -> None:
    path = f"/v1/files/{urllib.parse.quote(file_id, safe='')}/content"
    if output is None:
        server.download(path, sys.stdout.buffer.write)
        sys.stdout.buffer.flush()
        return
    with Path(output).open("wb") as file:
        server.download(path, file.write)


def _path(batch: str) -> str:
    return f"/v1/batches/{urllib.parse.quote(batch, safe='')}"


def _row(batch: dict[str, Any]) -> tuple[str, ...]:
    counts = batch["request_counts"]
    done = f"{counts['completed']:,}/{counts['total']:,}"
    times = shown_time(batch["created_at"]), shown_time(batch["expires_at"])
    failed, left = f"{counts['failed']:,}", shown_left(batch["left_s"])
    return batch["id"], batch["status"], done, failed, left, *times, batch["model"] or ""


def _lines(batch: dict[str, Any]) -> list[str]:
    """A batch in words."""
    counts = batch["request_counts"]
    lines = [f"{batch['id']}: {batch['status']}"]
    model = batch["model"] or "not known yet"
    lines.append(f"model {model}, endpoint {batch['endpoint']}, window {batch['completion_window']}")
    lines.append(f"created {shown_time(batch['created_at'])}, expires {shown_time(batch['expires_at'])}")
    left = f", {shown_left(batch['left_s'])} left" if batch["left_s"] is not None else ""
    told = f"{counts['completed']:,} of {counts['total']:,} requests completed, {counts['failed']:,} failed{left}"
    lines.append(f"{told}; {batch['usage']['total_tokens']:,} tokens" if batch["status"] in _OVER else told)
    errors = (batch["errors"] or {"data": []})["data"]
    for error in errors[:_NAMED]:
        where = "" if error["line"] is None else f"line {error['line']}: "
        lines.append(f"{where}{error['message']} ({error['code']})")
    if len(errors) > _NAMED:
        lines.append(f"and {counted(len(errors) - _NAMED, 'more error')}")
    return lines


def _errors_of(server: ServerClient, batch: dict[str, Any]) -> str:
    return f"twoshift batch results {batch['id']} --errors{server.option}"


def _show(server: ServerClient, batch: dict[str, Any], as_json: bool, more: Sequence[str] = ()) -> None:
    show(as_json, batch, *_lines(batch), *more)
    if batch["error_file_id"] is not None and not as_json:
        typer.echo(f"To see the failed requests: {_errors_of(server, batch)}")  # in one piece
