"""Live traffic by the clock: requests go out at the times of a Poisson process, whatever became of those before.

Latency counts from the scheduled time, so that a stall is not hidden.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Live", "Reply", "percentile_ms"]

_ANSWER_S = 30.0
_BROKEN = 0  # the status of a request whose connection was closed


@dataclass(frozen=True, slots=True)
class Reply:
    """One request: when it was due, on the monotonic clock, and what became of it."""

    due_s: float
    took_s: float
    status: int
    told: str = ""  # why, where it was refused


class Live:
    """Texts to vectors, so many a second, from a thread of its own until it is stopped."""

    def __init__(self, port: int, model: str, texts: Sequence[str], per_s: float) -> None:
        self._port, self._per_s = port, per_s
        self._requests = itertools.cycle([_request(model, text) for text in texts])
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._over = threading.Event()
        self.replies: list[Reply] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more requests; those that are under way are waited for."""
        self._over.set()
        self._thread.join(2 * _ANSWER_S)

    def between(self, *spans: tuple[float, float]) -> list[Reply]:
        """Of the requests that were due then."""
        return [each for each in self.replies.copy() if any(begin <= each.due_s < end for begin, end in spans)]

    async def _run(self) -> None:
        rng, due_s = random.Random(1), time.monotonic()  # noqa: S311 - arrivals, not a secret
        tasks = set[asyncio.Task[None]]()
        while not self._over.is_set():
            due_s += rng.expovariate(self._per_s)
            await asyncio.sleep(due_s - time.monotonic())
            task = asyncio.create_task(self._ask(due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=_ANSWER_S)
        for _, writer in self._free:
            writer.close()

    async def _ask(self, due_s: float) -> None:
        status, told = _BROKEN, ""
        try:
            async with asyncio.timeout(_ANSWER_S):
                connection = self._free.pop() if self._free else await self._connected()
                status, told = await _answered(*connection, next(self._requests))
                self._free.append(connection)
        except (OSError, EOFError, TimeoutError):
            pass
        self.replies.append(Reply(due_s, time.monotonic() - due_s, status, told))

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)


def percentile_ms(replies: Sequence[Reply], share: float) -> float:
    """Of those that were answered; not a number where none was."""
    took_s = sorted(each.took_s for each in replies if each.status == 200)
    return 1e3 * took_s[max(0, math.ceil(share * len(took_s)) - 1)] if took_s else math.nan


def _request(model: str, text: str) -> bytes:
    body = json.dumps({"model": model, "input": text}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, str]:
    """The status, and what is said where it is no 200."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r")[0])
    body, status = await reader.readexactly(length), int(head[9:12])
    return status, "" if status == 200 else json.loads(body)["error"]["message"]
