"""A lock for which nobody waits longer than for those who came before."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["WriteTurn"]


class WriteTurn:
    """Of one thread at a time, in the order in which they asked: one that asks again and again holds up nobody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below; never held for long
        self._is_taken = False
        self._waiting = deque[threading.Lock]()  # each is let go of when it is its thread's turn

    def take(self, timeout_s: float) -> bool:
        """Whether it is ours, within that time."""
        called = threading.Lock()
        called.acquire()
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return True
            self._waiting.append(called)
        if called.acquire(timeout=timeout_s):
            return True
        with self._lock:
            if called not in self._waiting:  # handed over just now
                return True
            self._waiting.remove(called)
            return False

    def give(self) -> None:
        """To the next one."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False
