"""Large bodies are unpacked and decoded in threads, in bounded pieces, so that the loop answers others meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from twoshift.serve.http.body import BodyRoom, Packed

__all__ = ["LargeBodies", "LargeBody"]

_THREADS = 2
_PIECE_BYTES = 1 << 20  # that are unpacked before it is the next client's turn
_T = TypeVar("_T")


class LargeBodies:
    """Threads for all of them: one at a time of each client, so that its many hold up none of another's."""

    def __init__(self, room: BodyRoom) -> None:
        self.room = room
        self.threads = ThreadPoolExecutor(_THREADS, "twoshift-bodies")
        self._turns: dict[str, _Turn] = {}  # of clients that have one

    def turn(self, client: str) -> _Turn:
        """Whoever enters it leaves it."""
        return self._turns.setdefault(client, _Turn(self._turns, client))

    def close(self) -> None:
        """What waits is not begun."""
        self.threads.shutdown(wait=False, cancel_futures=True)


class _Turn:
    """A lock that is forgotten with its last user."""

    def __init__(self, turns: dict[str, _Turn], client: str) -> None:
        self._turns, self._client, self._lock, self._users = turns, client, asyncio.Lock(), 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._left()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._left()

    def _left(self) -> None:
        self._users -= 1
        if not self._users:
            del self._turns[self._client]


class LargeBody:
    """One of them, and what it holds of the room."""

    __slots__ = ("_bodies", "client", "held_bytes")

    def __init__(self, bodies: LargeBodies, client: str, held_bytes: int) -> None:
        self._bodies, self.client, self.held_bytes = bodies, client, held_bytes

    async def run(self, call: Callable[..., _T], *given: Any) -> _T:
        """What it gives, once it is this client's turn."""
        async with self._bodies.turn(self.client):
            return await asyncio.get_running_loop().run_in_executor(self._bodies.threads, call, *given)

    async def unpacked(self, packed: Packed) -> bytes | bytearray:
        """All of it; raises HttpError. Each piece takes room before the next is unpacked."""
        loop, bodies = asyncio.get_running_loop(), self._bodies
        async with bodies.turn(self.client):
            more = True
            while more:
                self._hold(min(packed.size + _PIECE_BYTES, packed.most_bytes))
                more = await loop.run_in_executor(bodies.threads, packed.more, _PIECE_BYTES)
        return packed.whole()

    def _hold(self, size: int) -> None:
        """So much in all: what it holds packed is as good as what it becomes."""
        if size > self.held_bytes:
            self._bodies.room.take(self.client, size - self.held_bytes)
            self.held_bytes = size

    def give(self) -> None:
        """The room that it holds."""
        if self.held_bytes:
            self._bodies.room.give(self.client, self.held_bytes)
            self.held_bytes = 0
