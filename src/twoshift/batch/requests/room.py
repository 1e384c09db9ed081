"""Room for files that are on their way: in memory, as one server alone takes files."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["CheckStorage", "StorageRoom", "unlimited"]

CheckStorage = Callable[[int, int], None]  # bytes that are used, and more; raises TooLarge


def unlimited(_used_bytes: int, _more_bytes: int) -> None:
    """Nobody has set a limit."""


class StorageRoom:
    """By owner; any thread may call it."""

    def __init__(self, stored_bytes: Callable[[str], int]) -> None:
        self._stored_bytes = stored_bytes
        self._coming_bytes: dict[str, int] = {}
        self._lock = threading.Lock()  # held while the database is asked: no two files get the same room

    def take(self, owner: str, size_bytes: int, check: CheckStorage) -> None:
        """Raises what `check` does."""
        with self._lock:
            coming = self._coming_bytes.get(owner, 0)
            check(self._stored_bytes(owner) + coming, size_bytes)
            self._coming_bytes[owner] = coming + size_bytes

    def give_back(self, owner: str, size_bytes: int) -> None:
        """The file is stored by now, or will never be."""
        with self._lock:
            left = self._coming_bytes.pop(owner, 0) - size_bytes
            if left > 0:
                self._coming_bytes[owner] = left
