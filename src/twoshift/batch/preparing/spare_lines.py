"""Preparing processes that wait for a job on a server: a GPU could do a tenth of a small job while one starts."""

from __future__ import annotations

import math
import threading
import time

from twoshift.batch.preparing.local_line import LocalLine

__all__ = ["SpareLines"]

_QUIET_S = 10.0  # after a job has taken one, for others to start: the cores are the job's now


class SpareLines:
    """One thread starts them and lives as long as this process, since the system ends them with that thread."""

    def __init__(self, count: int, quiet_s: float = _QUIET_S) -> None:
        self._count, self._quiet_s = count, quiet_s
        self._lines: list[LocalLine] = []
        self._changed = threading.Condition()  # guards it
        self._taken_s, self._is_closed = -math.inf, False
        threading.Thread(target=self._keep, name="twoshift-spares", daemon=True).start()

    def take(self) -> LocalLine:
        """One that waits, or a new one; raises OSError."""
        while True:
            with self._changed:
                self._taken_s = time.monotonic()
                found = self._lines.pop() if self._lines else None
            if found is None:
                return LocalLine()
            if found.is_alive():
                return found
            found.close()  # something outside has ended it

    def close(self) -> None:
        """End them."""
        with self._changed:
            self._is_closed = True
            lines, self._lines = self._lines, []
            self._changed.notify_all()
        for line in lines:
            line.kill()
            line.close()

    def _keep(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and (wait_s := self._start_in_s()) > 0.0:
                    self._changed.wait(min(wait_s, self._quiet_s))
                if self._is_closed:
                    return
            try:
                self._add(LocalLine())
            except OSError:  # no process is to be had: try again later; a job says so if it needs one
                self._taken_s = time.monotonic()

    def _add(self, line: LocalLine) -> None:
        with self._changed:
            if not self._is_closed:
                self._lines.append(line)
                return
        line.kill()
        line.close()

    def _start_in_s(self) -> float:
        if len(self._lines) >= self._count:
            return math.inf
        return self._taken_s + self._quiet_s - time.monotonic()
