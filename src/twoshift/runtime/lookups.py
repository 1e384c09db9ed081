"""A user's `async def prepare(row)`: a feature-store lookup, say, for many rows side by side on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from twoshift.errors import TryLater, TwoshiftError
from twoshift.runtime.columns import bad_row
from twoshift.runtime.python_source import UserExit

__all__ = ["Lookups"]

_AGAIN_S = 1.0
_AT_ONCE, _JOBS_AT_ONCE = 256, 64  # rows: a job has thousands, and a store has not so many connections
_LONGEST_S = 60.0  # for a row of a job: nobody else would notice that it never comes back


class Lookups:
    """One loop for the model's life, in its own thread: clients keep their connections, and a server is not held up.

    Any thread may ask.
    """

    def __init__(self, prepare: Callable[[Any], Awaitable[Any]]) -> None:
        self._prepare = prepare
        self._loop = asyncio.new_event_loop()
        self._live, self._jobs = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_JOBS_AT_ONCE)
        self._thread = threading.Thread(target=self._loop.run_forever, name="twoshift-lookups", daemon=True)
        self._thread.start()

    def begin(self, rows: Sequence[Any], live: bool) -> Future[list[Any]]:
        """The rows as `prepare` gives them, in order; cancelled together, and failed by the first that fails.

        A live request has a deadline of its own and never waits for rows of a job.
        """
        return asyncio.run_coroutine_threadsafe(self._all(rows, live), self._loop)

    def close(self, leave: Callable[[], Coroutine[Any, Any, Any]] | None = None) -> None:
        """Ends the loop, after the user's own `async def close`."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._end(leave), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self, leave: Callable[[], Coroutine[Any, Any, Any]] | None) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if leave is not None:
            await leave()

    async def _all(self, rows: Sequence[Any], live: bool) -> list[Any]:
        if len(rows) == 1:
            return [await self._one(0, rows[0], live)]
        tasks = [asyncio.ensure_future(self._one(number, row, live)) for number, row in enumerate(rows)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, number: int, row: Any, live: bool) -> Any:
        async with self._live if live else self._jobs:
            try:
                async with asyncio.timeout(None if live else _LONGEST_S):
                    return await self._prepare(row)
            except TwoshiftError:
                raise
            except OSError as error:  # the store does not answer: no row is to blame
                raise TryLater(
                    f"row {number}: the feature lookup failed: {type(error).__name__}: {error}", _AGAIN_S
                ) from error
            except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop, and with it every lookup
                raise UserExit(f"the method prepare() raised {type(error).__name__}: {error}") from error
            except Exception as error:  # the user's own code may raise anything
                told = f"a row that the method prepare() accepts: {type(error).__name__}: {error}"
                raise bad_row(number, None, row, told) from error
