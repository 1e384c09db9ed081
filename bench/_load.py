"""Load from a process of its own: reads what to send from stdin and prints what came back, both as JSON.

Closed loop: each client sends its next request when it has its answer. Open loop: requests go out by the clock, at the
times of a Poisson process, and latency counts from the scheduled time, so that a stall is not hidden. It shares the
cores with the server: requests are bytes made beforehand, and of a reply only the status and the length are read.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

_LAST_S = 10.0  # answers that come later than this after the last request are lost
_SPARE = 2.0  # connections of an open loop, over what it needs where every answer takes as long as the objective
_CLOSED = 0  # the status of a request whose connection was closed


class Plan(msgspec.Struct, kw_only=True):
    """What to send, and for how long; `rate_per_s` makes it an open loop."""

    port: int
    requests: list[bytes]  # sent in turn
    clients: int = 1
    rate_per_s: float = 0.0
    seconds: float = 10.0
    warm_s: float = 2.0  # before it; not counted
    slo_s: float = 3600.0
    seed: int = 0


class Latency(msgspec.Struct):
    """Of the replies with one status."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class Report(msgspec.Struct, kw_only=True):
    """What came back."""

    ok_per_s: float
    in_time_per_s: float  # of them, inside the objective
    in_time_share: float  # of all requests
    ok: Latency
    refused: Latency  # 503
    statuses: dict[int, int]  # 0: the connection was closed
    lost: int  # no answer until long after the end
    sent_late_ms: float  # p99: how far the sender itself was behind its schedule
    cpu_share: float  # of a core, that the sender used

    @property
    def failures(self) -> str:
        """What was not answered, for people; nothing where all was."""
        others = {status: count for status, count in self.statuses.items() if status != 200}
        return f"; not 200: {others}" if others else ""


def post(path: str, body: bytes, headers: Sequence[str] = ("content-type: application/json",)) -> bytes:
    """A request as it goes over the wire."""
    head = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def run_load(plan: Plan) -> Report:
    """Run it in a process of its own."""
    words = [sys.executable, str(Path(__file__))]
    limit_s = plan.warm_s + plan.seconds + 2 * _LAST_S + 10
    done = subprocess.run(words, input=msgspec.json.encode(plan), stdout=subprocess.PIPE, timeout=limit_s, check=True)
    return msgspec.json.decode(done.stdout, type=Report, strict=False)


class Replies:
    """Latencies by status, of what counts."""

    def __init__(self) -> None:
        self.by_status: dict[int, array[float]] = {}
        self.late: array[float] = array("d")
        self.lost = 0

    def add(self, status: int, latency_s: float) -> None:
        self.by_status.setdefault(status, array("d")).append(latency_s)

    def report(self, plan: Plan, cpu_s: float) -> Report:
        ok = self.by_status.get(200, array("d"))
        in_time = sum(latency_s <= plan.slo_s for latency_s in ok)
        statuses = {status: len(each) for status, each in sorted(self.by_status.items())}
        return Report(
            ok_per_s=len(ok) / plan.seconds,
            in_time_per_s=in_time / plan.seconds,
            in_time_share=in_time / max(1, self.lost + sum(statuses.values())),
            ok=_latency(ok),
            refused=_latency(self.by_status.get(503, ())),
            statuses=statuses,
            lost=self.lost,
            sent_late_ms=_latency(self.late).p99_ms,
            cpu_share=cpu_s / (plan.warm_s + plan.seconds),
        )


def _latency(seconds: Sequence[float]) -> Latency:
    ordered = sorted(seconds) or [0.0]
    at = [1e3 * ordered[max(0, math.ceil(q * len(ordered)) - 1)] for q in (0.5, 0.9, 0.99, 1.0)]
    return Latency(len(seconds), *at)


class _Connection(asyncio.Protocol):
    """One request at a time over one connection that stays open."""

    __slots__ = ("_ended", "_head", "_left", "_write", "busy", "due_s", "status")

    def __init__(self, ended: Callable[[_Connection], None]) -> None:
        self._ended = ended
        self._head, self._left = b"", 0
        self.busy, self.due_s, self.status = False, 0.0, _CLOSED

    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def send(self, request: bytes, due_s: float) -> None:
        self.busy, self.due_s = True, due_s
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
            self._head, self.status = b"", int(data[9:12])
            self._left = end + 4 + _body_bytes(data[:end]) - len(data)
        if not self._left:
            self.busy = False
            self._ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.status = _CLOSED
        self._ended(self)


def _body_bytes(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        sys.exit(f"a reply without content-length: {head!r}")
    return int(lower[at + 17 :].partition(b"\r")[0])


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

    def begin(self) -> None:
        self._from_s = time.perf_counter() + self._plan.warm_s
        self._until_s = self._from_s + self._plan.seconds

    def ended(self, connection: _Connection) -> None:
        raise NotImplementedError


class _Closed(_Load):
    """As many requests at a time as there are clients."""

    async def run(self) -> None:
        connections = [await self.connect() for _ in range(self._plan.clients)]
        self.begin()
        for connection in connections:
            connection.send(next(self._requests), time.perf_counter())
        await asyncio.sleep(self._until_s - time.perf_counter())

    def ended(self, connection: _Connection) -> None:
        now_s = time.perf_counter()
        if self._from_s <= now_s < self._until_s:
            self.replies.add(connection.status, now_s - connection.due_s)
        if connection.status != _CLOSED:
            connection.send(next(self._requests), now_s)
        elif now_s < self._until_s:
            self._loop.create_task(self._again())

    async def _again(self) -> None:
        (await self.connect()).send(next(self._requests), time.perf_counter())


class _Open(_Load):
    """Requests by the clock; one that finds no connection free opens another."""

    async def run(self) -> None:
        plan = self._plan
        ready = max(64, int(_SPARE * plan.rate_per_s * min(plan.slo_s, 2.0)))
        self._free = [await self.connect() for _ in range(ready)]
        self._waiting = 0
        self.begin()
        self._due = self._schedule()
        self._next_s = next(self._due)
        self._send_due()
        await self._over.wait()
        until_s = time.perf_counter() + _LAST_S
        while self._waiting and time.perf_counter() < until_s:
            await asyncio.sleep(0.01)
        self.replies.lost = self._waiting

    def _schedule(self) -> Any:
        rng = random.Random(self._plan.seed)  # noqa: S311 - the same arrivals for everybody, not a secret
        due_s = self._from_s - self._plan.warm_s
        while (due_s := due_s + rng.expovariate(self._plan.rate_per_s)) < self._until_s:
            yield due_s

    def _send_due(self) -> None:
        now_s = time.perf_counter()
        while self._next_s <= now_s:
            self._send(self._next_s, now_s)
            self._next_s = next(self._due, math.inf)
        if self._next_s == math.inf:
            self._over.set()
        else:
            self._loop.call_later(self._next_s - now_s, self._send_due)  # to the millisecond, which counts against us

    def _send(self, due_s: float, now_s: float) -> None:
        if due_s >= self._from_s:
            self._waiting += 1
            self.replies.late.append(now_s - due_s)
        if self._free:
            self._free.pop().send(next(self._requests), due_s)
        else:
            self._loop.create_task(self._send_on_another(due_s))

    async def _send_on_another(self, due_s: float) -> None:
        (await self.connect()).send(next(self._requests), due_s)

    def ended(self, connection: _Connection) -> None:
        if connection.status == _CLOSED:
            if not connection.busy:  # it was idle
                self._free.remove(connection)
                return
        else:
            self._free.append(connection)
        if connection.due_s >= self._from_s:
            self._waiting -= 1
            self.replies.add(connection.status, time.perf_counter() - connection.due_s)


async def _run(plan: Plan) -> Report:
    load = _Open(plan) if plan.rate_per_s else _Closed(plan)
    began_s = time.process_time()
    await load.run()
    return load.replies.report(plan, time.process_time() - began_s)


def main() -> None:
    import uvloop

    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    gc.disable()  # a pause of the sender would count as one of the server
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(plan))))


if __name__ == "__main__":
    main()
