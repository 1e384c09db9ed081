"""Where a job on a server may read and write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from twoshift.batch.inputs import InputFile
from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput

__all__ = ["confined", "confined_place"]

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def confined(settings: JobSettings, files: Sequence[InputFile], roots: Sequence[str]) -> None:
    """Raises InvalidInput where it would go beyond the roots; links are followed first, of every file by itself."""
    named = [*(("inputs", each) for each in settings.inputs), *(("inputs", each.location) for each in files)]
    for field, location in (*named, ("output", settings.output)):
        confined_place(field, location, roots)


def confined_place(field: str, location: str, roots: Sequence[str]) -> None:
    """Raises InvalidInput where one place lies beyond the roots."""
    if not any(_is_below(location, root) for root in roots):
        allowed = ", ".join(roots) or "one of the server's `job_roots`, of which it has none"
        raise InvalidInput(field, location, f"a place below {allowed}")


def _is_below(location: str, root: str) -> bool:
    if _URL.match(location) or _URL.match(root):
        return f"{location.rstrip('/')}/".startswith(f"{root.rstrip('/')}/") and ".." not in location.split("/")
    if not Path(location).is_absolute():  # a list file or a folder of the server's own
        return False
    return Path(location).resolve().is_relative_to(Path(root).resolve())
