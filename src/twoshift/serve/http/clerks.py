"""Threads for calls that take a while, as those of a database do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from twoshift.errors import TryLater

__all__ = ["Clerks"]

_THREADS, _MOST_WAITING = 4, 64
_RETRY_S = 1.0
_T = TypeVar("_T")


class Clerks:
    """Threads of a desk's own: a database that does not answer holds up nobody who asks for something else."""

    def __init__(self, wait_s: float, about: str) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, f"twoshift-{about}")
        self._wait_s, self._about, self._waiting = wait_s, about, 0

    async def ask(self, call: Callable[..., _T], *given: Any) -> _T:
        """What it gives; raises TryLater where that takes too long, or where too many wait."""
        if self._waiting >= _MOST_WAITING:
            raise TryLater(f"too many requests about {self._about} wait already", _RETRY_S)
        self._waiting += 1
        try:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, call, *given)
            return await asyncio.wait_for(asked, self._wait_s)
        except TimeoutError:
            raise TryLater(f"no answer about {self._about} within {self._wait_s:g} s", _RETRY_S) from None
        finally:
            self._waiting -= 1
