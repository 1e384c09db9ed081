"""A live answer as it is generated."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from twoshift.engine.llm.stats import FinishedSequence
from twoshift.generation import Delta

__all__ = ["TokenStream", "Wake", "wake_all"]

Wake = tuple[asyncio.AbstractEventLoop, Callable[[], None]]  # a loop that waits, and what it has to do


class TokenStream:
    """Deltas, the last of which has a finish; to be read once, by a thread (`for`) or a loop (`async for`).

    Reading raises what has ended the sequence instead: Broken, TryLater, or what the runtime said of the request.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._deltas: deque[Delta] = deque()
        self._error: Exception | None = None
        self._over = False
        self._changed = threading.Condition()
        self._wake: Wake | None = None
        self.finished: FinishedSequence | None = None  # once the last delta is here

    def cancel(self, why: Exception | None = None) -> None:
        """Nobody reads any more, or gets this instead: the sequence leaves the device before its next step."""
        with self._changed:
            if self._over:
                return
            self._over, self._error = True, why
        self._forget()
        self._tell()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._over

    def text(self) -> str:
        """All of it, once it is there."""
        return "".join(delta.text for delta in self)

    def __iter__(self) -> Iterator[Delta]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._deltas or self._over)
                delta = self._next()
            if delta is None:
                return
            yield delta

    async def __aiter__(self) -> AsyncIterator[Delta]:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        self._wake = (loop, woken.set)
        try:
            while True:
                woken.clear()
                with self._changed:
                    delta = self._next()
                    over = self._over
                if delta is not None:
                    yield delta
                elif over:
                    return
                else:
                    await woken.wait()
        finally:
            self._wake = None
            self.cancel()

    def _next(self) -> Delta | None:
        if self._deltas:
            return self._deltas.popleft()
        if self._error is not None:
            raise self._error
        return None

    # For the engine

    def put(self, delta: Delta, finished: FinishedSequence | None = None) -> Wake | None:
        """One more; the last one with what it all took. Who waits in a loop is to be woken by the caller."""
        with self._changed:
            if self._over:
                return None
            self._deltas.append(delta)
            self.finished = finished
            self._over = delta.finish is not None
            self._changed.notify_all()
            return self._wake

    def fail(self, error: Exception) -> None:
        """It ends here; what is there can be read before."""
        with self._changed:
            if self._over:
                return
            self._error, self._over = error, True
        self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
            wake = self._wake
        if wake is not None:
            wake_all([wake])


def wake_all(wakes: Sequence[Wake]) -> None:
    """From any thread; a loop is told once of all that it has to do."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for loop, act in wakes:
        by_loop.setdefault(loop, []).append(act)
    for loop, acts in by_loop.items():
        with contextlib.suppress(RuntimeError):  # it is closed: nobody reads any more
            loop.call_soon_threadsafe(_do_all, acts)


def _do_all(acts: Sequence[Callable[[], None]]) -> None:
    for act in acts:
        act()
