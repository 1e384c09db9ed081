"""A process that sends: reads a Plan from stdin, says that it is connected, is told when to begin, prints Sent."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import resource
import selectors
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
from _load import CLOSED, LAST_S, WINDOW_S, Plan, Replies, Sent, due_times

_SPARE = 2.0  # connections of an open loop, over what it needs where every answer takes as long as the objective
_MOST_READY, _MOST = 2_000, 3_000  # connections of an open loop: at first, and ever
_TICK_S = 0.001  # what is due in it is sent together: waking up for each would take a core, and counts against us
_AT_ONCE = 64  # connections that are opened at a time


class _Connection(asyncio.Protocol):
    """One request at a time over one connection that stays open."""

    __slots__ = ("_ended", "_head", "_left", "_write", "busy", "closed", "due_s", "retry_after_s", "status")

    def __init__(self, ended: Callable[[_Connection], None]) -> None:
        self._ended = ended
        self._head, self._left = b"", 0
        self.busy = self.closed = False
        self.due_s, self.status, self.retry_after_s = 0.0, CLOSED, 0.0

    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def send(self, request: bytes, due_s: float) -> None:
        self.busy, self.due_s = True, due_s
        self._write(request)

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            if self._head:
                data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head, self.status = b"", int(data[9:12])
            self._left = end + 4 + _number(data, end, b"\r\ncontent-length:") - len(data)
            if self.status == 503:
                self.retry_after_s = _retry_after_s(data, end)
        if not self._left:
            self.busy = False
            self._ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed, self.status = True, CLOSED
        self._ended(self)


def _number(data: bytes, end: int, name: bytes) -> int:
    """Of a header, or -1 where a refusal does not have it."""
    at = data.find(name, 0, end)
    if at < 0:
        at = data[:end].lower().find(name)
        if at < 0 and name == b"\r\ncontent-length:":
            sys.exit(f"a reply without content-length: {data[:end]!r}")
        if at < 0:
            return -1
    return int(data[at + len(name) : data.find(b"\r\n", at + 2)])


def _retry_after_s(data: bytes, end: int) -> float:
    """In milliseconds where it says them, else in seconds; 0 where it says nothing."""
    milliseconds = _number(data, end, b"\r\nretry-after-ms:")
    if milliseconds >= 0:
        return milliseconds / 1e3
    return float(max(0, _number(data, end, b"\r\nretry-after:")))


class _Load:
    """What both loops share: connections, requests in turn, and the time that counts."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.replies = plan, Replies()
        self._requests = itertools.cycle(plan.requests)
        self._loop = asyncio.get_running_loop()
        self._from_s = self._until_s = math.inf
        self._over = asyncio.Event()

    async def connect(self) -> _Connection:
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self.ended), "127.0.0.1", self._plan.port
        )
        return connection

    async def connected(self, count: int) -> list[_Connection]:
        """So many; not all at the same moment, because what waits to be accepted is bounded."""
        made = list[_Connection]()
        while len(made) < count:
            made += await asyncio.gather(*(self.connect() for _ in range(min(_AT_ONCE, count - len(made)))))
        return made

    def begin(self) -> None:
        """With the other senders: their clock is the same."""
        sys.stdout.buffer.write(b"connected\n")
        sys.stdout.buffer.flush()
        self._from_s = float(sys.stdin.buffer.readline()) + self._plan.warm_s
        self._until_s = self._from_s + self._plan.counted_s

    def ended(self, connection: _Connection) -> None:
        raise NotImplementedError


class _Closed(_Load):
    """As many requests at a time as there are clients."""

    async def run(self) -> None:
        connections = await self.connected(self._plan.clients)
        self._waiting = 0
        self.begin()
        for connection in connections:
            self._send(connection)
        await asyncio.sleep(self._until_s - time.perf_counter())
        end_s = self._until_s + LAST_S
        while self._waiting and time.perf_counter() < end_s:
            await asyncio.sleep(0.01)
        self.replies.lost = self._waiting

    def _send(self, connection: _Connection) -> None:
        now_s = time.perf_counter()
        if now_s < self._until_s and not connection.closed:
            self._waiting += 1
            connection.send(next(self._requests), now_s)

    def ended(self, connection: _Connection) -> None:
        now_s = time.perf_counter()
        status = connection.status
        if status != CLOSED or connection.busy:
            self._waiting -= 1
        if self._from_s <= now_s < self._until_s:
            self.replies.add(status, now_s - connection.due_s)
            if status == 503:
                self.replies.retry_after_s.append(connection.retry_after_s)
        if now_s >= self._until_s:
            return
        if status == CLOSED:
            self._loop.create_task(self._again())
        elif status == 503 and self._plan.honours_retry_after:
            self._loop.call_later(connection.retry_after_s, self._send, connection)
        else:
            self._waiting += 1
            connection.send(next(self._requests), now_s)

    async def _again(self) -> None:
        self._send(await self.connect())


class _Open(_Load):
    """Requests by the clock; one that finds no connection free opens another."""

    async def run(self) -> None:
        plan = self._plan
        most_per_s = max(rate for _, rate in plan.steps)
        ready = min(_MOST_READY, max(64, int(_SPARE * most_per_s * min(plan.slo_s, 2.0))))
        self._free = await self.connected(ready)
        self._connections, self._waiting, self._next = ready, 0, 0
        self._due = due_times(plan)
        self.replies.windows = [[0, 0] for _ in range(math.ceil(plan.counted_s / WINDOW_S))]
        self.begin()
        self._send_due()
        await self._over.wait()
        until_s = time.perf_counter() + LAST_S
        while self._waiting and time.perf_counter() < until_s:
            await asyncio.sleep(0.01)
        self.replies.lost = self._waiting

    def _send_due(self) -> None:
        now_s = time.perf_counter() - self._from_s
        due, at, many = self._due, self._next, len(self._due)
        while at < many and due[at] <= now_s:
            self._send(due[at], now_s - due[at])
            at += 1
        self._next = at
        if at == many:
            self._over.set()
        elif self._plan.spins:
            self._loop.call_soon(self._send_due)
        elif self._plan.naps:
            self._loop.call_soon(self._send_due)
            time.sleep(_TICK_S)  # of the whole process: replies that come meanwhile wait for the next turn of the loop
        else:
            least_s = 0.0 if self._plan.selects else _TICK_S
            self._loop.call_later(max(least_s, due[at] - now_s), self._send_due)

    def _send(self, due_s: float, late_s: float) -> None:
        counts = due_s >= 0
        if counts:
            self.replies.late.append(late_s)
            self.replies.windows[int(due_s / WINDOW_S)][0] += 1
        if late_s <= self._plan.late_limit_s and self._free:
            self._waiting += counts
            self._free.pop().send(next(self._requests), due_s)
        elif late_s <= self._plan.late_limit_s and self._connections < _MOST:
            self._connections += 1
            self._waiting += counts
            self._loop.create_task(self._send_on_another(due_s))
        else:
            self.replies.unsent += counts

    async def _send_on_another(self, due_s: float) -> None:
        (await self.connect()).send(next(self._requests), due_s)

    def ended(self, connection: _Connection) -> None:
        status, due_s = connection.status, connection.due_s
        if status == CLOSED:
            self._connections -= 1
            if not connection.busy:  # it was idle
                self._free.remove(connection)
                return
        else:
            self._free.append(connection)
        if due_s >= 0:
            latency_s = time.perf_counter() - self._from_s - due_s
            self._waiting -= 1
            self.replies.add(status, latency_s)
            if status == 200:
                self.replies.windows[int(due_s / WINDOW_S)][1] += latency_s <= self._plan.slo_s
            elif status == 503:
                self.replies.retry_after_s.append(connection.retry_after_s)


async def _run(plan: Plan) -> Sent:
    load = _Open(plan) if plan.steps else _Closed(plan)
    began_s = time.process_time()
    await load.run()
    return load.replies.sent(time.process_time() - began_s)


def main() -> None:
    import uvloop

    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=Plan)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()  # a pause of the sender would count as one of the server
    if plan.selects:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
            sent = runner.run(_run(plan))
    else:
        sent = uvloop.run(_run(plan))
    with open(1, "wb") as out:  # buffered whatever PYTHONUNBUFFERED says: a bare write to a pipe may be partial
        out.write(msgspec.msgpack.encode(sent))


if __name__ == "__main__":
    main()
