"""Work that waits for a database or a disk, in threads; and whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from twoshift.errors import Forbidden, TryLater
from twoshift.serve.http.app import Exchange
from twoshift.serve.keys import ANYONE

__all__ = ["BlockingCalls", "owner_of", "refuse_pages", "submitter_of"]

_THREADS, _MOST_WAITING = 4, 64
_RETRY_S = 1.0
_T = TypeVar("_T")


class BlockingCalls:
    """Threads of a desk's own: a database that does not answer holds up nobody who asks for something else."""

    def __init__(self, wait_s: float, about: str, threads: int = _THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, f"twoshift-{about}")
        self._wait_s, self._about, self._waiting = wait_s, about, 0

    async def ask(self, call: Callable[..., _T], *given: Any) -> _T:
        """What it gives; raises TryLater where that takes too long, or where too many wait."""
        if self._waiting >= _MOST_WAITING:
            raise TryLater(f"too many requests about {self._about} are waiting on this server", _RETRY_S)
        self._waiting += 1
        try:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, call, *given)
            return await asyncio.wait_for(asked, self._wait_s)
        except TimeoutError:
            why = f"the server could not answer a request about {self._about} within {self._wait_s:g} s"
            raise TryLater(why, _RETRY_S) from None
        finally:
            self._waiting -= 1


def owner_of(exchange: Exchange) -> str | None:
    """Whose jobs and files are seen: the tenant's; None for all, where there are no keys, or this one is an admin's."""
    return None if exchange.caller.is_admin else exchange.caller.tenant


def submitter_of(exchange: Exchange) -> str:
    """Whose a new job or file is; nobody's where there are no keys."""
    return "" if exchange.caller is ANYONE else exchange.caller.tenant


def refuse_pages(exchange: Exchange) -> None:
    """Jobs touch files: no web page that somebody looks at beside this server may ask for one."""
    if exchange.request.header(b"origin") is not None:
        raise Forbidden("web pages may not use this endpoint: the request has an Origin header")
