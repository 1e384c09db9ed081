"""Messages of a JetStream consumer, many at a time: the client's own `fetch` costs a task for each of them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

__all__ = ["NatsPull"]

_NEXT = "$JS.API.CONSUMER.MSG.NEXT"
_STATUS = "Status"  # the header of what is no message, but the end of a request
_GONE = ("409", "503")  # the consumer was deleted, or nobody answers for it
_GRACE_S = 2.0  # beyond what the broker was asked to wait


class NatsPull:
    """A consumer that is asked for messages; lives on the loop of its client."""

    def __init__(self, client: Any, stream: str, name: str) -> None:
        self._client, self._subject = client, f"{_NEXT}.{stream}.{name}"
        self.stream, self.name = stream, name
        self._inbox = client.new_inbox()
        self._held: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._wanted = 1
        self._ended = ""  # the status that ended a request

    async def begin(self) -> None:
        """Listen for answers."""
        await self._client.subscribe(self._inbox, cb=self._came, pending_bytes_limit=1 << 30)

    async def fetch(self, count: int, wait_s: float) -> list[Any]:
        """What is there, at most `count`; none after `wait_s`. Raises ConnectionError where the consumer is gone."""
        self._wanted = count
        if not self._held:
            await self._ask({"batch": count, "no_wait": True}, _GRACE_S)
        if not self._held and self._ended not in _GONE:
            await self._ask({"batch": count, "expires": int(wait_s * 1e9)}, wait_s + _GRACE_S, at_once=True)
        if not self._held and self._ended in _GONE:
            raise ConnectionError(f"the consumer {self.name} no longer exists ({self._ended})")
        return [self._held.popleft() for _ in range(min(count, len(self._held)))]

    async def _ask(self, request: dict[str, Any], wait_s: float, at_once: bool = False) -> None:
        """Until the request is over; `at_once`: until the first message, where others come to the next call."""
        if at_once:
            self._wanted = 1
        self._ended = ""
        self._changed.clear()
        await self._client.publish(self._subject, msgspec.json.encode(request), reply=self._inbox)
        await asyncio.wait_for(self._changed.wait(), wait_s)

    async def _came(self, message: Any) -> None:
        status = message.headers.get(_STATUS) if message.headers else None
        if status is None or message.reply:
            self._held.append(message)
        else:
            self._ended = status
        if self._ended or len(self._held) >= self._wanted:
            self._changed.set()
