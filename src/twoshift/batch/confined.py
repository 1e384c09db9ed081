"""Where a job on a server may read and write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput

__all__ = ["confined"]


def confined(settings: JobSettings, roots: Sequence[str]) -> None:
    """Raises InvalidInput where it would go beyond the roots; links are followed first."""
    for field, location in (*(("inputs", each) for each in settings.inputs), ("output", settings.output)):
        if not any(_is_below(location, root) for root in roots):
            raise InvalidInput(field, location, f"a place below {', '.join(roots) or 'a root: this server has none'}")


def _is_below(location: str, root: str) -> bool:
    if "://" in location or "://" in root:
        return f"{location.rstrip('/')}/".startswith(f"{root.rstrip('/')}/") and ".." not in location.split("/")
    if not Path(location).is_absolute():  # a list file or a folder of the server's own
        return False
    return Path(location).resolve().is_relative_to(Path(root).resolve())
