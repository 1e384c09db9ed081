"""Batches, streams and schedules."""

from __future__ import annotations

import urllib.parse
from typing import Any

from twoshift.serve.http.messages import Reply
from twoshift.serve.keys import Access
from twoshift.ui.visit import Visit, api_path, redirect

__all__ = ["batches", "move_batch", "move_schedule", "move_stream", "schedule", "schedules", "streams"]

_OPEN = ("validating", "in_progress")
_STREAM_MOVES = {
    "queued": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
    "failed": ("resume",),
}
_NO_ROWS: dict[str, Any] = {  # of a stream that has not begun
    "rows": 0, "rows_per_s": None, "fresh_p99_s": None, "in_time_share": None, "lag_rows": None, "dead_letters": 0,
    "usd": None,
}  # fmt: skip
_RETRIED = ("failed", "expired", "cancelled", "completed")


async def batches(visit: Visit) -> Reply:
    """The newest first."""
    found = await visit.get("batches", limit=50, after=visit.query.get("after"))
    may = visit.session.may(Access.BATCH)
    shown = [{**each, "moves": _batch_moves(each) if may else ()} for each in found["data"]]
    return visit.page("batches.html", batches=shown, more=found["last_id"] if found["has_more"] else None)


def _batch_moves(batch: dict[str, Any]) -> tuple[str, ...]:
    if batch["status"] in _OPEN:
        return ("cancel",)
    return ("retry",) if batch["status"] in _RETRIED and batch["request_counts"]["failed"] else ()


async def move_batch(visit: Visit) -> Reply:
    """Cancel, or run again what has failed."""
    _ = visit.form
    await visit.ask("POST", api_path("batches", visit.matched["batch"], visit.matched["what"]))
    return redirect("/console/batches")


async def streams(visit: Visit) -> Reply:
    """The newest first."""
    found = (await visit.get("streams", limit=50))["data"]
    may = visit.session.may(Access.BATCH)
    shown = [
        {
            **each,
            "settings": {"adapter": None, **each["settings"]},
            "now": {**_NO_ROWS, **(each["progress"] or {})},
            "moves": _STREAM_MOVES.get(each["state"], ()) if may else (),
        }
        for each in found
    ]
    return visit.page("streams.html", streams=shown)


async def move_stream(visit: Visit) -> Reply:
    """Pause, resume, cancel."""
    _ = visit.form
    await visit.ask("POST", api_path("streams", visit.matched["stream"], visit.matched["what"]))
    return redirect("/console/streams")


async def schedules(visit: Visit) -> Reply:
    """By name."""
    found = (await visit.get("schedules"))["data"]
    return visit.page("schedules.html", schedules=[_schedule(each, visit) for each in found])


async def schedule(visit: Visit) -> Reply:
    """One, with its runs."""
    name = visit.matched["schedule"]
    found, runs = await visit.get("schedules", name), await visit.get("schedules", name, "history", limit=50)
    return visit.page("schedule.html", schedule=_schedule(found, visit), runs=runs["data"])


async def move_schedule(visit: Visit) -> Reply:
    """Pause, resume, run now."""
    _ = visit.form
    name = visit.matched["schedule"]
    await visit.ask("POST", api_path("schedules", name, visit.matched["what"]))
    return redirect(f"/console/schedules/{urllib.parse.quote(name, safe='')}")


def _schedule(found: dict[str, Any], visit: Visit) -> dict[str, Any]:
    spec = found["spec"]
    moves = ("resume" if found["paused"] else "pause", "run") if visit.session.may(Access.BATCH) else ()
    when = spec.get("cron") or f"after {spec.get('after')}"
    return {**found, "when": when, "moves": moves, "job": spec.get("job", {})}
