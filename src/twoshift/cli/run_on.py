"""A job on a server: sent, followed, and told like one that runs here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twoshift.cli.jobs import job_lines
from twoshift.cli.output import note, show
from twoshift.cli.progress import progress_bar
from twoshift.cli.server import Server, server_at

if TYPE_CHECKING:
    from twoshift.batch.settings import JobSettings

__all__ = ["run_on"]

_POLL_S = 0.5
_CODES = {"done": 0, "paused": 3, "cancelled": 3}


def run_on(url: str, settings: JobSettings, detach: bool, as_json: bool) -> int:
    """Its exit code, as `twoshift run` has them; 0 at once where nobody waits."""
    server = server_at(url)
    job = server.post("/v1/jobs", _data(server, settings))
    note(f"{job['id']} on {url}: `twoshift jobs show {job['id']} --on {url}`")
    if not detach:
        job = _followed(server, job)
    show(as_json, job, *job_lines(job))
    return _CODES.get(job["state"], 0 if detach else 5)


def _data(server: Server, settings: JobSettings) -> dict[str, Any]:
    """What differs from a job that says nothing; names of files begin at the root, where both see the same disk."""
    import msgspec

    plain = msgspec.to_builtins(settings)
    fields = type(settings).__struct_fields__
    plain_defaults = msgspec.to_builtins(type(settings)(inputs=("x",), output="x", model="x"))
    changed = {name: plain[name] for name in fields if plain[name] != plain_defaults[name]}
    if server.is_local:
        changed["inputs"] = [_absolute(each) for each in plain["inputs"]]
        changed["output"] = _absolute(plain["output"])
    return changed | {"model": plain["model"]}


def _absolute(location: str) -> str:
    if "://" in location:
        return location
    listed, path = ("@", location[1:]) if location.startswith("@") else ("", location)
    return f"{listed}{Path(path).absolute()}"


def _followed(server: Server, job: dict[str, Any]) -> dict[str, Any]:
    """Until it is over or paused; an interrupt leaves it running."""
    try:
        with progress_bar(f"{job['id']}") as progress:
            while job["state"] in ("queued", "running"):
                time.sleep(_POLL_S)
                job = server.get(f"/v1/jobs/{job['id']}")
                progress((job["progress"] or {}).get("share", 0.0))
    except KeyboardInterrupt:
        note(f"It goes on: `twoshift jobs cancel {job['id']}` ends it.")
    return job
