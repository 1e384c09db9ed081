"""A job on a server: sent, followed, and told like one that runs here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from twoshift.cli.jobs import job_lines
from twoshift.cli.output import note, show
from twoshift.cli.progress import progress_bar
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.cli.run_warning import failed_rows_warning
from twoshift.cli.server import ServerClient, server_at
from twoshift.client.requests import absolute
from twoshift.declare import differing

if TYPE_CHECKING:
    from twoshift.batch.settings import JobSettings

__all__ = ["job_data", "run_on"]

_POLL_S = 0.5
_CODES = {"done": 0, "paused": 3, "cancelled": 3, "queued": 3, "running": 3}  # the last two: nobody waits any more


def run_on(url: str, settings: JobSettings, detach: bool, as_json: bool) -> int:
    """Its exit code, as `twoshift run` has them; 0 at once where nobody waits."""
    server = server_at(url)
    job = server.post("/v1/jobs", job_data(server, settings))
    note(f"Created {job['id']} on {url}. To see its state: `twoshift jobs show {job['id']}{server.option}`")
    if not detach:
        job = _followed(server, job)
    show(as_json, job, *job_lines(job))
    if job["state"] in ("done", "paused", "cancelled", "failed") and job["progress"] and not as_json:
        note(f"Report: {job['settings']['output'].rstrip('/')}/_twoshift/report.html")
    if detach:
        return 0
    done = job["progress"] or {}
    if warning := failed_rows_warning(done.get("errors", 0), done.get("rows", 0), {}, job["settings"]["output"]):
        note(warning)
    return _CODES[job["state"]] if job["state"] in _CODES else _failed_code(job)


def _failed_code(job: dict[str, Any]) -> int:
    """By how its last run ended; 2 where it could not begin: its reason says what to change."""
    ending = (job["progress"] or {}).get("ending")
    return 2 if ending is None else EXIT_CODES[ending]


def job_data(server: ServerClient, settings: JobSettings) -> dict[str, Any]:
    """What differs from a job that says nothing; names of files begin at the root, where both see the same disk."""
    changed = differing(type(settings), msgspec.to_builtins(settings))
    if server.is_local:
        changed["inputs"] = [absolute(each) for each in changed["inputs"]]
        changed["output"] = absolute(changed["output"])
    return changed


def _followed(server: ServerClient, job: dict[str, Any]) -> dict[str, Any]:
    """Until it is over or paused; an interrupt leaves it running."""
    told = ""
    try:
        with progress_bar(f"{job['id']}") as progress:
            while job["state"] in ("queued", "running"):
                time.sleep(_POLL_S)
                job = _asked(server, job["id"])
                progress((job["progress"] or {}).get("share", 0.0))
                why = (job["reason"] if job["state"] == "queued" else "") or (job["progress"] or {}).get("held") or ""
                if why and not told:  # nobody should have to ask why nothing happens
                    note(f"Job {job['id']} is waiting: {why}")
                told = why
    except KeyboardInterrupt:
        note(f"The job keeps running: `twoshift jobs cancel {job['id']}{server.option}` stops it.")
    return job


def _asked(server: ServerClient, job_id: str) -> dict[str, Any]:
    """How far it is; a server that is started again goes on with it, so it is asked again for a while."""
    return server.get(
        f"/v1/jobs/{job_id}", lambda error: note(f"{error}: job {job_id} continues when the server is back")
    )
