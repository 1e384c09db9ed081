"""A live answer as it is generated."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from twoshift.engine.llm.stats import FinishedSequence
from twoshift.generation import Delta

__all__ = ["TokenStream"]


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
        self._wake: Callable[[], object] | None = None  # a loop that waits
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
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
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

    def put(self, delta: Delta, finished: FinishedSequence | None = None) -> None:
        """One more; the last one with what it all took."""
        with self._changed:
            if self._over:
                return
            self._deltas.append(delta)
            self.finished = finished
            self._over = delta.finish is not None
        self._tell()

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
            try:
                wake()
            except RuntimeError:  # its loop is closed: nobody reads any more
                self._wake = None
