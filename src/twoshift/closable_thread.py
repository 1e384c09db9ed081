"""A thread of an object's own that works until it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["ClosableThread"]


class ClosableThread:
    """Runs in the background from `start` to `close`; it does not hold up the end of the process."""

    def __init__(self, run: Callable[[threading.Event], None], name: str, close_s: float | None = None) -> None:
        """`run` gets the event that `close` sets, and returns soon after it; `close_s`: None waits until it has."""
        self._closed, self._close_s = threading.Event(), close_s
        self._thread = threading.Thread(target=run, args=(self._closed,), name=name, daemon=True)

    def start(self) -> None:
        """At most once."""
        self._thread.start()

    def close(self) -> None:
        """Ask it to end and wait; one that does not end in time is left behind. Before `start`: nothing to wait for."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(self._close_s)
