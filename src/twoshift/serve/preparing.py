"""Rows to what a device takes: looked up, then prepared, on the loop where that is quick and in threads where not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from twoshift.endpoints.facts import check_texts
from twoshift.engine.long_texts import PiecedRows, pieced_by
from twoshift.errors import Late, too_many_tokens
from twoshift.ports import LookupRuntime, Prepared
from twoshift.serve.host import Visit, paused
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.prepare_time import PrepareTime
from twoshift.serve.stages import Stages
from twoshift.types import TextPolicy

__all__ = ["Preparing"]

_THREADS = 2
_AS_THEY_COME = TextPolicy()


class Preparing:
    """Of one model, on one loop."""

    def __init__(
        self,
        name: str,
        prepare: Callable[[Sequence[Any]], Prepared],
        is_users: bool,
        lookups: LookupRuntime | None = None,
        texts: TextPolicy = _AS_THEY_COME,
        splitter: object = None,
    ) -> None:
        """`is_users`: `prepare` is a user's own code, which may wait for anything. `splitter`: divides long texts."""
        self._prepare = pieced_by(prepare, splitter, texts.too_long)
        self._is_users, self._lookups, self._texts = is_users, lookups, texts
        self._threads = ThreadPoolExecutor(_THREADS, f"twoshift-prepare-{name}")
        self._since_s: dict[object, float] = {}  # of rows that are in threads
        self._time = PrepareTime(is_users)

    async def prepared(self, request: LiveRequest, characters: int, stages: Stages, began_s: float) -> PiecedRows:
        """The rows of a request of about so many characters, since `began_s`; raises as `prepare` does, and Late."""
        rows, visit = request.rows, request.visit
        check_texts(rows, self._texts)
        if self._lookups is not None:
            rows = await paused(visit, self._looked_up(self._lookups, rows, request.deadline_s))
            stages.lookup, began_s = (now_s := time.monotonic()) - began_s, now_s
        if self._time.is_quick(characters):
            prepared = self._prepare(rows)
            taken_s = time.monotonic() - began_s
            self._time.observed(characters, taken_s, taken_s)
        else:
            prepared = await paused(visit, self._in_time(rows, characters, request.deadline_s, visit))
        if self._texts.too_long == "error" and prepared.rows.truncated.any():
            place = int(prepared.rows.truncated.argmax())
            raise too_many_tokens(f"row {place}", int(prepared.rows.lengths[place]))
        stages.prepare = time.monotonic() - began_s
        return prepared

    def longest_s(self, now_s: float) -> float:
        """For how long rows have been in a thread."""
        return now_s - min([*self._since_s.values()], default=now_s)

    def close(self) -> None:
        """What waits is not begun."""
        self._threads.shutdown(cancel_futures=True)

    async def _looked_up(self, lookups: LookupRuntime, rows: Sequence[Any], deadline_s: float) -> Sequence[Any]:
        found = asyncio.wrap_future(lookups.lookup(rows))
        try:
            async with _by(deadline_s):
                return await found
        except TimeoutError:
            raise Late("the feature lookups of the request were not finished by its deadline") from None

    async def _in_time(
        self, rows: Sequence[Any], characters: int, deadline_s: float, visit: Visit | None
    ) -> PiecedRows:
        """In a thread."""
        prepared = self._threads.submit(self._in_thread, rows, characters, visit)
        try:
            async with _by(deadline_s):
                return await asyncio.wrap_future(prepared)
        except TimeoutError:
            begun = prepared.running()
            if visit is not None and begun:
                prepared.add_done_callback(partial(_tell_late, visit, asyncio.get_running_loop()))
            raise Late("the rows of the request were not prepared by its deadline", begun=begun) from None

    def _in_thread(self, rows: Sequence[Any], characters: int, visit: Visit | None) -> PiecedRows:
        key = object()
        began_s, process_s = time.thread_time(), time.process_time()
        self._since_s[key] = time.monotonic()
        try:
            return self._prepare(rows)
        finally:
            clock_s, processor_s = time.monotonic() - self._since_s.pop(key), time.thread_time() - began_s
            # What other threads did meanwhile, they may have done while this one waited for the interpreter
            self._time.observed(characters, processor_s, clock_s - (time.process_time() - process_s))
            if visit is not None and self._is_users:  # a user's Python, and no library's
                visit.before_s += processor_s


def _tell_late(visit: Visit, loop: asyncio.AbstractEventLoop, _prepared: Future[PiecedRows]) -> None:
    """In the thread that has prepared its rows too late."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody learns any more
        loop.call_soon_threadsafe(visit.prepared_late)


def _by(deadline_s: float) -> asyncio.Timeout:
    # not `wait_for`, which forgets that it was cancelled where its result comes at the same time
    return asyncio.timeout(max(0.0, deadline_s - time.monotonic()))
