"""Patterns over locations, as shells have them: `*`, `?`, `[...]` inside a name, `**` for any folders."""

from __future__ import annotations

import fnmatch
import re

__all__ = ["is_hidden", "is_pattern", "matcher", "pattern_folder"]

_WILD = re.compile(r"[*?\[]")


def is_pattern(location: str) -> bool:
    """Whether it has a wildcard."""
    return _WILD.search(location) is not None


def is_hidden(path: str) -> bool:
    """Whether any name on the way begins with `_` or `.`: bookkeeping of whoever wrote the folder."""
    return any(name.startswith(("_", ".")) for name in path.split("/") if name not in (".", ".."))


def pattern_folder(pattern: str) -> str:
    """The folder before the first wildcard, with its slash; empty where there is none."""
    wild = _WILD.search(pattern)
    return pattern[: pattern.rfind("/", 0, wild.start() if wild else None) + 1]


def matcher(pattern: str) -> re.Pattern[str]:
    """What a whole location must match; a wildcard takes no name that begins with `_` or `.`."""
    parts: list[str] = []
    names = pattern.split("/")
    for place, name in enumerate(names):
        last = place == len(names) - 1
        if name == "**":
            parts.append(r"(?:[^/._][^/]*/)*" + (r"[^/._][^/]*" if last else ""))
            continue
        shown = r"(?![._])" if is_pattern(name[:1]) else ""
        inner = fnmatch.translate(name).removeprefix("(?s:").rpartition(")")[0].replace(".*", "[^/]*")
        parts.append(shown + (inner if is_pattern(name) else re.escape(name)) + ("" if last else "/"))
    return re.compile("".join(parts), re.DOTALL)
