"""`streams`: what runs in the micro lane of a server."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.jobs import shown_time
from twoshift.cli.output import show, table
from twoshift.cli.params import JsonFlag, whole
from twoshift.cli.server import SERVER_FIELDS, On, server_at
from twoshift.report import format_number
from twoshift.units import counted, format_duration

__all__ = ["app", "figures", "stream_path", "stream_words"]

app = typer.Typer(
    help="List, show, pause, resume and cancel streams on a server; show their logs.", no_args_is_help=True
)
_COLUMNS = (
    "<<stream",
    "<<state",
    "rows",
    "rows/s",
    "lag rows",
    "fresh p50",
    "fresh p99",
    "objective",
    "usd",
    "<<model",
)
_LESS = ("usd", "fresh p50", "rows", "model", "objective")  # left out on a narrow terminal, in this order
_ON = "--on http://127.0.0.1:8000"
StreamId = Annotated[str, typer.Argument(help="Stream id, as `twoshift streams list` shows it.")]


@command(app, "list", f"twoshift streams list {_ON}", SERVER_FIELDS)
def list_command(
    on: On = None,
    limit: Annotated[int, whole("Show at most N streams.", most=1000)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the newest streams of a server, with lag, freshness and freshness objective."""
    found = server_at(on).get(f"/v1/streams?limit={limit}")
    rows = [_row(each) for each in found["data"]]
    show(as_json, found, table(_COLUMNS, rows, less=_LESS) if rows else "There are no streams.")


@command(app, "show", f"twoshift streams show stream-0123456789ab {_ON}", SERVER_FIELDS)
def show_command(stream: StreamId, on: On = None, as_json: JsonFlag = False) -> None:
    """Show a stream: lag, freshness, freshness objective, rows per second and cost."""
    found = server_at(on).get(stream_path(stream))
    show(as_json, found, *stream_words(found))


@command(app, "pause", f"twoshift streams pause stream-0123456789ab {_ON}", SERVER_FIELDS)
def pause_command(stream: StreamId, on: On = None, as_json: JsonFlag = False) -> None:
    """Pause a stream: windows in progress are committed, and no rows are read until `twoshift streams resume`."""
    _change(stream, "pause", on, as_json)


@command(app, "resume", f"twoshift streams resume stream-0123456789ab {_ON}", SERVER_FIELDS)
def resume_command(stream: StreamId, on: On = None, as_json: JsonFlag = False) -> None:
    """Resume a stream that was paused or has failed."""
    _change(stream, "resume", on, as_json)


@command(app, "cancel", f"twoshift streams cancel stream-0123456789ab {_ON}", SERVER_FIELDS)
def cancel_command(stream: StreamId, on: On = None, as_json: JsonFlag = False) -> None:
    """Cancel a stream; committed parts are kept."""
    _change(stream, "cancel", on, as_json)


@command(app, "logs", f"twoshift streams logs stream-0123456789ab {_ON}", SERVER_FIELDS)
def logs_command(stream: StreamId, on: On = None, as_json: JsonFlag = False) -> None:
    """Print the log of a stream."""
    found = server_at(on).get(f"{stream_path(stream)}/log")
    show(as_json, found, *(f"{shown_time(line['at'])}  {line['text']}" for line in found["data"]))


def stream_path(stream: str) -> str:
    """Where the server tells of it."""
    return f"/v1/streams/{urllib.parse.quote(stream, safe='')}"


def stream_words(stream: dict[str, Any]) -> Iterator[str]:
    """A stream in words."""
    settings, reason = stream["settings"], stream["reason"] if stream["reason"] != stream["state"] else ""
    yield f"{stream['id']}: {stream['state']}{': ' + reason if reason else ''}"
    model = settings.get("adapter") or settings["model"]
    yield f"model {model}, source {settings['source']}, output {settings['output']}"
    for words in figures(stream["progress"] or {}):
        yield f"{words[0].upper()}{words[1:]}."


def figures(now: dict[str, Any]) -> Iterator[str]:
    """How it stands since it was last begun, in words."""
    if "rows" not in now:
        return
    rate = format_number(now["rows_per_s"])
    yield f"{counted(now['rows'], 'row')} in {counted(now['windows'], 'window')}, {rate} rows/s"
    if now["fresh_p99_s"] is not None:
        p50, p99 = format_duration(now["fresh_p50_s"]), format_duration(now["fresh_p99_s"])
        objective, share = format_duration(now["objective_s"]), now["in_time_share"]
        yield f"freshness {p50} (p50), {p99} (p99), objective {objective}, {share:.1%} of the rows in time"
    if now["lag_rows"]:
        yield f"{counted(math.ceil(now['lag_rows']), 'row')} waiting, the oldest for {format_duration(now['lag_s'])}"
    if now["is_behind"]:
        left_s = now["catch_up_s"]
        yield (
            "not catching up: rows arrive faster than they are scored"
            if left_s is None
            else f"up to date in about {format_duration(left_s)}"
        )
    if now["dead_letters"]:
        yield counted(now["dead_letters"], "dead letter")
    if now.get("notice"):
        yield now["notice"]
    usd = "" if now["usd"] is None else f", ${now['usd']:,.4f}"
    yield f"{now['device_s']:,.1f} device seconds{usd}"


def _change(stream: str, what: str, on: str | None, as_json: bool) -> None:
    found = server_at(on).post(f"{stream_path(stream)}/{what}")
    show(as_json, found, *stream_words(found))


def _row(stream: dict[str, Any]) -> tuple[str, ...]:
    now, settings = stream["progress"] or {}, stream["settings"]

    def shown(name: str) -> str:
        return "" if now.get(name) is None else format_duration(now[name])

    usd, lag = now.get("usd"), now.get("lag_rows")
    return (
        stream["id"],
        "held" if stream["state"] == "running" and now.get("held") else stream["state"],
        f"{now.get('rows', 0):,}",
        format_number(now.get("rows_per_s", 0.0)),
        "" if lag is None else format_number(lag),
        shown("fresh_p50_s"),
        shown("fresh_p99_s"),
        shown("objective_s"),
        "" if usd is None else f"{usd:,.4f}",
        settings.get("adapter") or settings["model"],
    )
