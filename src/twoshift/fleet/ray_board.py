"""Where a front and its replicas on Ray leave word for each other: an actor that ends with the front."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

__all__ = ["Board"]


class Board:
    """An asynchronous actor: each side asks it for what there is, and waits there."""

    def __init__(self) -> None:
        self._for_front: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._for_replica: defaultdict[str, asyncio.Queue[Any]] = defaultdict(asyncio.Queue)

    async def say(self, replica: str, message: Any) -> None:
        """To the front."""
        await self._for_front.put((replica, message))

    async def tell(self, replica: str, message: Any) -> None:
        """To a replica."""
        await self._for_replica[replica].put(message)

    async def hear(self, timeout_s: float) -> list[tuple[str, Any]]:
        """What replicas have said, waiting for the first of it."""
        return await _taken(self._for_front, timeout_s)

    async def listen(self, replica: str, timeout_s: float) -> list[Any]:
        """What a replica is told, waiting for the first of it."""
        return await _taken(self._for_replica[replica], timeout_s)


async def _taken(queue: asyncio.Queue[Any], timeout_s: float) -> list[Any]:
    try:
        async with asyncio.timeout(timeout_s):
            found = [await queue.get()]
    except TimeoutError:
        return []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
