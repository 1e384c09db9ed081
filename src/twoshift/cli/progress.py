"""A progress bar on stderr: drawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from twoshift.cli.output import note

__all__ = ["progress_bar"]

_QUIET_S = 5.0  # work shorter than this prints nothing where there is no terminal
_LINE_EVERY_S = 10.0


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Gives a function to call with the share that is done."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=1.0)
            shown = 0.0

            def draw(share: float) -> None:
                nonlocal shown
                if share >= shown + 0.005 or share >= 1:
                    bar.update(task, completed=share)
                    shown = share

            yield draw
        return
    due_s, told = time.monotonic() + _QUIET_S, ""

    def line(share: float) -> None:
        nonlocal due_s, told
        if time.monotonic() >= due_s and f"{share:.0%}" != told:
            told = f"{share:.0%}"
            note(f"{label}: {told}")
            due_s = time.monotonic() + _LINE_EVERY_S

    yield line
