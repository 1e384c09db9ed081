"""Requests at given times from a process of its own: reads what to send from stdin and prints what came back, as JSON.

Open loop: each request goes out at its time whatever became of those before it, and its latency counts from then, so
that a stall is not hidden.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

_LAST_S = 10.0  # a reply that comes later than this after the last request is lost
_CLOSED = 0  # the status of a request whose connection was closed, or that has none


class TimedPlan(msgspec.Struct):
    """What to send, and when."""

    port: int
    requests: list[bytes]
    times_s: list[float]  # rising
    connections: int = 64  # that are open beforehand


class TimedReplies(msgspec.Struct):
    """What came back, in the order of the requests."""

    statuses: list[int]
    latencies_s: list[float]
    sent_late_s: list[float]  # how far the sender itself was behind
    cpu_share: float  # of a core, that the sender used
    zero_s: float = 0.0  # on the clock of time.perf_counter: when time 0 of the plan was


def play(plan: TimedPlan) -> TimedReplies:
    """Run it in a process of its own."""
    words = [sys.executable, str(Path(__file__))]
    limit_s = plan.times_s[-1] + 2 * _LAST_S + 10
    done = subprocess.run(words, input=msgspec.json.encode(plan), stdout=subprocess.PIPE, timeout=limit_s, check=True)
    return msgspec.json.decode(done.stdout, type=TimedReplies, strict=False)


class _Connection(asyncio.Protocol):
    """One request at a time over one connection that stays open."""

    def __init__(self, home: _Player) -> None:
        self._home = home
        self._head, self._left, self._status = b"", 0, _CLOSED
        self.number = -1  # of the request that it waits for
        self._write: Any = None

    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def send(self, number: int, request: bytes) -> None:
        self.number = number
        self._write(request)

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head, self._status = b"", int(data[9:12])
            self._left = end + 4 + _body_bytes(data[:end]) - len(data)
        if not self._left:
            self._home.ended(self, self._status)

    def connection_lost(self, exc: Exception | None) -> None:
        self._home.lost(self)


def _body_bytes(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    return int(lower[at + 17 :].partition(b"\r")[0]) if at >= 0 else 0


class _Player:
    def __init__(self, plan: TimedPlan) -> None:
        self._plan, self._loop = plan, asyncio.get_running_loop()
        count = len(plan.requests)
        self.replies = TimedReplies([_CLOSED] * count, [math.inf] * count, [0.0] * count, 0.0)
        self._free: list[_Connection] = []
        self._next = 0
        self._left = count
        self._over = asyncio.Event()

    async def run(self) -> None:
        plan = self._plan
        self._free = [await self._connect() for _ in range(plan.connections)]
        cpu_s, self._zero_s = time.process_time(), time.perf_counter() - plan.times_s[0] + 0.05
        self.replies.zero_s = self._zero_s
        self._send_due()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(plan.times_s[-1] - plan.times_s[0] + _LAST_S):
                await self._over.wait()
        took_s = time.perf_counter() - self._zero_s - plan.times_s[0]
        self.replies.cpu_share = (time.process_time() - cpu_s) / took_s

    async def _connect(self) -> _Connection:
        _, made = await self._loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._plan.port)
        return made

    def _send_due(self) -> None:
        plan, now_s = self._plan, time.perf_counter() - self._zero_s
        while self._next < len(plan.times_s) and plan.times_s[self._next] <= now_s:
            number, self._next = self._next, self._next + 1
            self.replies.sent_late_s[number] = now_s - plan.times_s[number]
            if self._free:
                self._free.pop().send(number, plan.requests[number])
            else:
                self._loop.create_task(self._send_on_another(number))
        if self._next < len(plan.times_s):
            self._loop.call_later(max(0.0, plan.times_s[self._next] - now_s), self._send_due)

    async def _send_on_another(self, number: int) -> None:
        (await self._connect()).send(number, self._plan.requests[number])

    def ended(self, connection: _Connection, status: int) -> None:
        number, connection.number = connection.number, -1
        self._free.append(connection)
        self._settle(number, status)

    def lost(self, connection: _Connection) -> None:
        if connection in self._free:
            self._free.remove(connection)
        if connection.number >= 0:
            self._settle(connection.number, _CLOSED)

    def _settle(self, number: int, status: int) -> None:
        self.replies.statuses[number] = status
        self.replies.latencies_s[number] = time.perf_counter() - self._zero_s - self._plan.times_s[number]
        self._left -= 1
        if not self._left:
            self._over.set()


async def _run(plan: TimedPlan) -> TimedReplies:
    player = _Player(plan)
    await player.run()
    return player.replies


def main() -> None:
    import uvloop

    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=TimedPlan)
    gc.disable()  # a pause of the sender would count as one of the server
    replies = uvloop.run(_run(plan))
    replies.latencies_s = [min(each, 1e9) for each in replies.latencies_s]  # JSON has no infinity
    sys.stdout.buffer.write(msgspec.json.encode(replies))


if __name__ == "__main__":
    main()
