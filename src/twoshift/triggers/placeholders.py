"""`{date}`, `{time}` and `{run}` in a scheduled job: every run has folders of its own."""

from __future__ import annotations

import datetime
import re
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.trigger_ports import ScheduledRun
from twoshift.triggers.zones import local_time

__all__ = ["filled", "placeholder_in", "unknown"]

_PLACE = re.compile(r"\{([a-z]+)(?:-(\d{1,3}))?\}")
_FIELDS = ("inputs", "output")
_KNOWN = "{date}, {date-1} for the day before, {time} or {run}"
_NAMES = ("date", "time", "run")


def filled(job: dict[str, Any], run: ScheduledRun, zone: str) -> dict[str, Any]:
    """The settings of one run."""
    return job | {name: _filled(job[name], run, zone) for name in _FIELDS if name in job}


def unknown(job: dict[str, Any]) -> None:
    """Raises InvalidInput for a placeholder that nobody fills."""
    for name in _FIELDS:
        given = job.get(name)
        for text in given if isinstance(given, list) else [given]:
            for found in _PLACE.finditer(str(text)):
                if found[1] not in _NAMES or (found[2] and found[1] != "date"):
                    raise InvalidInput(name, found[0], f"one of {_KNOWN}")


def placeholder_in(text: str) -> str | None:
    """The first that a schedule would fill in."""
    return next((found[0] for found in _PLACE.finditer(text) if found[1] in _NAMES), None)


def _filled(value: Any, run: ScheduledRun, zone: str) -> Any:
    if isinstance(value, list):
        return [_filled(each, run, zone) for each in value]
    if not isinstance(value, str):  # which is refused elsewhere, in better words
        return value
    shown = local_time(run.due_unix_s, zone)

    def put(found: re.Match[str]) -> str:
        match found[1]:
            case "date":
                return (shown.date() - datetime.timedelta(days=int(found[2] or 0))).isoformat()
            case "time":
                return shown.strftime("%H%M%S")
            case _:
                utc = shown.astimezone(datetime.UTC)
                return f"{utc:%Y%m%dT%H%M%SZ}-{run.id[-6:]}"

    return _PLACE.sub(put, value)
