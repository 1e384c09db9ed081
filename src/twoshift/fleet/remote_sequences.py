"""The sequences of one request at a replica in another process, as the front has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twoshift.engine.llm import TokenStream
from twoshift.errors import TryLater
from twoshift.fleet.wire import Begun
from twoshift.generation import Delta

__all__ = ["RemoteSequences"]

_RETRY_S = 1.0  # when to come back after a crash


class RemoteSequences:
    """Fed by a link, read as streams. Of one loop. Each stream has one ending, whatever comes after it."""

    def __init__(self, count: int, grew: Callable[[int], None], over: Callable[[bool], None]) -> None:
        """`grew` is told of new tokens; `over` once nothing more is wanted, and whether the replica still has it."""
        self.streams = [TokenStream(self._cancelled) for _ in range(count)]
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # token, or what came instead
        self.tokens, self.prepare_s = 0, 0.0
        self._grew, self._over = grew, over
        self._left = count  # without an ending
        self._is_over = False

    def begun(self, message: Begun) -> None:
        """The replica has admitted it."""
        self.tokens, self.prepare_s = message.tokens, message.prepare_s

    def put(self, place: int, delta: Delta) -> None:
        """More of one of them."""
        self._grew(len(delta.token_ids))
        if (wake := self.streams[place].put(delta)) is not None:
            wake[1]()  # of this very loop
        if not self.first.done():
            self.first.set_result(None)
        self._left -= delta.finish is not None
        if not self._left:
            self._end(at_replica=False)

    def fail(self, error: Exception) -> None:
        """All that have no ending end here; where no token has come, whoever waits for the first may ask elsewhere."""
        self._end(at_replica=False)
        if not self.first.done():
            self.first.set_exception(error)
            return
        for stream in self.streams:
            stream.fail(error)

    def lost(self, error: Exception) -> None:
        """The replica is gone: whoever waits for a first token gets this error, and may ask elsewhere."""
        told = TryLater("the replica was lost: the answer is incomplete", _RETRY_S)
        self.fail(told if self.has_begun else error)

    @property
    def has_begun(self) -> bool:
        """Whether a token has come."""
        return self.first.done()

    def close(self) -> None:
        """Nobody waits for it."""
        self._end(at_replica=True)

    def _cancelled(self) -> None:
        self._end(at_replica=True)

    def _end(self, at_replica: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._over(at_replica)
