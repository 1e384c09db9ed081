"""Writes what a run of a job has done beside its parts: now and then, and however it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from twoshift.batch.finish import write_run
from twoshift.batch.run_record import RunRecord
from twoshift.errors import TwoshiftError
from twoshift.ports import Blobs

__all__ = ["recorded"]

_RECORD_S = 5.0  # between records of a run: what a report may not know of one that was killed


@contextlib.contextmanager
def recorded(
    output: Blobs, folder: str, name: str | None, record: Callable[[float], RunRecord]
) -> Iterator[Callable[[], None]]:
    """What is to be called often; `record` is asked with the time at which the run began. None: it is numbered."""
    began_s, due_s = time.time(), time.monotonic() + _RECORD_S
    runs = f"{folder.rstrip('/')}/_twoshift/runs"
    name = name or f"{len(output.names(runs)):06d}"

    def write() -> None:
        with contextlib.suppress(TwoshiftError):  # the parts are what counts; the next record may fit
            write_run(output, folder, name, record(began_s))

    def write_if_due() -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            write()
            due_s = time.monotonic() + _RECORD_S

    try:
        yield write_if_due
    finally:
        write()
