"""A progress bar on stderr: drawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from threading import Event

from twoshift.cli.output import draws_progress, note
from twoshift.closable_thread import ClosableThread

__all__ = ["Ongoing", "now_and_then", "progress_bar"]

_QUIET_S = 5.0  # work shorter than this prints nothing where there is no terminal
_LINE_EVERY_S = 10.0


class Ongoing:
    """Tells what is being done whose end nobody knows, and now and then for how long already."""

    def __init__(self, tell: Callable[[str], None] = note, every_s: float = _LINE_EVERY_S) -> None:
        self._tell, self._every_s = tell, every_s
        self._what, self._since_s = "", 0.0
        self._thread = ClosableThread(self._remind, "twoshift-ongoing")

    def __enter__(self) -> Ongoing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.close()

    def __call__(self, what: str) -> None:
        """This is done from now on."""
        self._what, self._since_s = what, time.monotonic()
        self._tell(what)

    def _remind(self, closed: Event) -> None:
        while not closed.wait(self._every_s):
            if self._what:
                self._tell(f"{self._what}: {time.monotonic() - self._since_s:.0f} s")


def now_and_then(tell: Callable[[str], None] = note) -> Callable[[str], None]:
    """Tells of work how far it is, and not each time that it is told."""
    due_s = time.monotonic() + _QUIET_S

    def line(what: str) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            tell(what)
            due_s = time.monotonic() + _LINE_EVERY_S

    return line


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Gives a function to call with the share that is done."""
    if draws_progress():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, *times, console=Console(stderr=True), transient=True) as bar:
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
