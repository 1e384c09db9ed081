"""Threads for work that may take long: so many at the most, and no more than its share for each who wants some."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping

__all__ = ["CappedThreads"]

_logger = logging.getLogger("twoshift.triggers")


class CappedThreads:
    """Any thread may call it. The threads end with the program: nothing waits for them."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._busy: Counter[str] = Counter()
        self._at_work = 0
        self._lock = threading.Lock()

    def try_to(self, shares: Mapping[str, int], work: Callable[[], None]) -> bool:
        """Begin it where each of these names has less at work than its share; whether it was begun."""
        with self._lock:
            if self._at_work >= self._most or any(self._busy[name] >= most for name, most in shares.items()):
                return False
            self._at_work += 1
            self._busy.update(shares.keys())
        threading.Thread(target=self._work, args=(list(shares), work), name=self._name, daemon=True).start()
        return True

    def _work(self, names: list[str], work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # one's failure is its own
            _logger.exception("%s", self._name)
        finally:
            with self._lock:
                self._at_work -= 1
                self._busy.subtract(names)
                self._busy = +self._busy
