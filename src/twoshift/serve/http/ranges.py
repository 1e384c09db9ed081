"""Conditions and ranges of a request, for bytes that never change."""

from __future__ import annotations

import re

from twoshift.serve.http.messages import Request

__all__ = ["is_known", "wanted_range"]

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has it."""
    given = request.header(b"if-none-match")
    return given is not None and any(each.strip().removeprefix("W/") in (etag, "*") for each in given.split(","))


def wanted_range(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """The bytes [start, stop) that are wanted: an empty range where there are no such, None for all of them.

    Several ranges, and what is no range, are passed over; so is one of another version.
    """
    found = _RANGE.fullmatch((request.header(b"range") or "").replace(" ", ""))
    version = request.header(b"if-range")
    if found is None or not (found[1] or found[2]) or (version is not None and version.strip() != etag):
        return None
    if not found[1]:
        last = min(size, int(found[2]))
        return size - last, size
    start, stop = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
    if found[2] and int(found[2]) < start:
        return None  # no range at all
    return (start, stop) if start < size else (0, 0)
