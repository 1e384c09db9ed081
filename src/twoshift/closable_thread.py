"""A thread of an object's own that works until it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["ClosableThread"]


class ClosableThread:
    """Runs in the background from `start` to `close`; it does not hold up the end of the process."""

    def __init__(
        self,
        run: Callable[[threading.Event], None],
        name: str,
        close_s: float | None = None,
        woken: threading.Event | None = None,
    ) -> None:
        """`run` gets the event `closed`, and returns soon after it is set; `close_s`: None waits until it has.

        `woken`: what `run` waits for between two turns, if not for `closed` itself.
        """
        self.closed, self._woken, self._close_s = threading.Event(), woken, close_s
        self._thread = threading.Thread(target=run, args=(self.closed,), name=name, daemon=True)

    def start(self) -> None:
        """At most once."""
        self._thread.start()

    def close(self) -> None:
        """Ask it to end and wait; one that does not end in time is left behind. Before `start`: nothing to wait for."""
        self.closed.set()
        if self._woken is not None:
            self._woken.set()
        if self._thread.is_alive():
            self._thread.join(self._close_s)
