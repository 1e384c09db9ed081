"""Load from processes of its own: what to send, and what came back. `_load_sender.py` is such a process.

Closed loop: each client sends its next request when it has its reply; after a refusal at once, or when the reply says.
Open loop: requests go out by the clock, at the times of a Poisson process, and latency counts from the scheduled time,
so that a stall is not hidden. The sender shares the cores with the server: requests are bytes made beforehand, and of
a reply only the status, the length and when to come back are read. Several senders share a load, begin at the same
moment, and their replies count as those of one.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from _servers import keep_priority

LAST_S = 10.0  # replies that come later than this after the last request are lost
CLOSED = 0  # the status of a request whose connection was closed
WINDOW_S = 0.1  # of the series


class Plan(msgspec.Struct, kw_only=True):
    """What to send, and for how long; `rate_per_s` or `phases` make it an open loop."""

    port: int
    requests: list[bytes]  # sent in turn
    clients: int = 1
    honours_retry_after: bool = False  # of a closed loop; else a refused client asks again at once
    rate_per_s: float = 0.0
    phases: list[tuple[float, float]] = []  # seconds and rate, one after the other, instead of `rate_per_s`
    late_limit_s: float = 3600.0  # of the sender: a request that is more behind is not sent, and counted
    seconds: float = 10.0
    warm_s: float = 2.0  # before it; not counted
    slo_s: float = 3600.0
    seed: int = 0
    cores: str = ""  # as taskset has them; empty: any
    senders: int = 1  # processes; several have a core each of `cores`, as far as these go
    naps: bool = False  # of an open loop: it sleeps a tick and then looks for replies, so that none has to wake it up
    spins: bool = False  # of an open loop: it never sleeps, because a timer's millisecond counts as the server's
    selects: bool = False  # of an open loop with few connections: its timers know microseconds, and it need not spin
    priority: list[str] = []  # words before the command that give it its priority

    @property
    def steps(self) -> list[tuple[float, float]]:
        """Of an open loop; none of a closed one."""
        return self.phases or ([(self.seconds, self.rate_per_s)] if self.rate_per_s else [])

    @property
    def counted_s(self) -> float:
        """Of the requests that count."""
        return sum(seconds for seconds, _ in self.phases) or self.seconds


class Sent(msgspec.Struct, kw_only=True):
    """What a sender tells; times are bytes of doubles."""

    by_status: dict[int, bytes]
    late: bytes
    retry_after: bytes
    windows: list[list[int]]
    lost: int
    unsent: int
    cpu_s: float


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
    in_time_share: float  # of all requests, those included that the sender was too late to send
    sent_per_s: float
    unsent: int  # because the sender was behind, or had no connection left
    ok: Latency
    refused: Latency  # 503
    retry_after: Latency  # as refusals say it
    statuses: dict[int, int]  # 0: the connection was closed
    lost: int  # no reply until long after the end
    sent_late_ms: float  # p99: how far the sender itself was behind its schedule
    cpu_share: float  # of a core, that the busiest sender used
    windows: list[tuple[int, int]]  # of an open loop, by when requests were due: all, and those inside the objective

    @property
    def failures(self) -> str:
        """What was not answered, for people; nothing where all was."""
        others = {status: count for status, count in self.statuses.items() if status != 200}
        return f"; not 200: {others}" if others else ""


class Replies:
    """Latencies by status, of what counts."""

    def __init__(self) -> None:
        self.by_status: dict[int, array[float]] = {}
        self.late: array[float] = array("d")
        self.retry_after_s: array[float] = array("d")
        self.windows: list[list[int]] = []
        self.lost = self.unsent = 0

    def add(self, status: int, latency_s: float) -> None:
        """A reply."""
        try:
            self.by_status[status].append(latency_s)
        except KeyError:
            self.by_status[status] = array("d", [latency_s])

    def sent(self, cpu_s: float) -> Sent:
        """For the process that adds them up."""
        return Sent(
            by_status={status: each.tobytes() for status, each in self.by_status.items()}, late=self.late.tobytes(),
            retry_after=self.retry_after_s.tobytes(), windows=self.windows, lost=self.lost, unsent=self.unsent,
            cpu_s=cpu_s,
        )  # fmt: skip

    def merge(self, sent: Sent) -> None:
        """Those of a sender."""
        for status, times in sent.by_status.items():
            self.by_status.setdefault(status, array("d")).frombytes(times)
        self.late.frombytes(sent.late)
        self.retry_after_s.frombytes(sent.retry_after)
        both = itertools.zip_longest(self.windows, sent.windows, fillvalue=(0, 0))
        self.windows = [[due + more, inside + too] for (due, inside), (more, too) in both]
        self.lost += sent.lost
        self.unsent += sent.unsent

    def report(self, plan: Plan, cpu_s: float) -> Report:
        ok = self.by_status.get(200, array("d"))
        in_time = sum(latency_s <= plan.slo_s for latency_s in ok)
        statuses = {status: len(each) for status, each in sorted(self.by_status.items())}
        sent = self.lost + sum(statuses.values())
        return Report(
            ok_per_s=len(ok) / plan.counted_s,
            in_time_per_s=in_time / plan.counted_s,
            in_time_share=in_time / max(1, self.unsent + sent),
            sent_per_s=sent / plan.counted_s,
            unsent=self.unsent,
            ok=latency(ok),
            refused=latency(self.by_status.get(503, ())),
            retry_after=latency(self.retry_after_s),
            statuses=statuses,
            lost=self.lost,
            sent_late_ms=latency(self.late).p99_ms,
            cpu_share=cpu_s / (plan.warm_s + plan.counted_s),
            windows=[(due, inside) for due, inside in self.windows],
        )


def due_times(plan: Plan) -> array[float]:
    """When the requests of an open loop are due, from the moment from which they count."""
    rng = random.Random(plan.seed)  # noqa: S311 - the same arrivals for everybody, not a secret
    due, begins_s = array("d"), -plan.warm_s
    for seconds, rate in [(plan.warm_s, plan.steps[0][1]), *plan.steps]:
        due_s, ends_s = begins_s, begins_s + seconds
        while (due_s := due_s + rng.expovariate(rate)) < ends_s:
            due.append(due_s)
        begins_s = ends_s
    return due


def latency(seconds: Sequence[float]) -> Latency:
    """Its percentiles."""
    ordered = sorted(seconds) or [0.0]
    at = [1e3 * ordered[max(0, math.ceil(q * len(ordered)) - 1)] for q in (0.5, 0.9, 0.99, 1.0)]
    return Latency(len(seconds), *at)


def post(path: str, body: bytes, headers: Sequence[str] = ("content-type: application/json",)) -> bytes:
    """A request as it goes over the wire."""
    head = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def shares(plan: Plan) -> list[Plan]:
    """What each sender has to do; together it is the plan."""
    count = min(plan.senders, plan.clients) if not plan.steps else plan.senders
    if count == 1:
        return [plan]
    cores = core_numbers(plan.cores)
    return [
        msgspec.structs.replace(
            plan,
            requests=plan.requests[(first := at * len(plan.requests) // count) :] + plan.requests[:first],
            clients=plan.clients // count + (at < plan.clients % count),
            rate_per_s=plan.rate_per_s / count,
            phases=[(seconds, rate / count) for seconds, rate in plan.phases],
            seed=plan.seed + at,
            cores=str(cores[at % len(cores)]) if cores else "",
            senders=1,
        )
        for at in range(count)
    ]


def core_numbers(cores: str) -> list[int]:
    """Of 0-3,8 and the like."""
    spans = [part.partition("-") for part in cores.split(",") if part]
    return [core for first, _, last in spans for core in range(int(first), int(last or first) + 1)]


def run_load(plan: Plan) -> Report:
    """Run it in processes of its own, which begin when all of them are connected."""
    limit_s = plan.warm_s + plan.counted_s + 2 * LAST_S + 10
    replies, most_cpu_s = Replies(), 0.0
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(_sender(share)) for share in shares(plan)]
        for sender in senders:
            _wait_connected(sender)
        begins_s = time.perf_counter()
        for sender in senders:
            assert sender.stdin is not None
            sender.stdin.write(b"%r\n" % begins_s)
            sender.stdin.flush()
        for sender in senders:
            sent = msgspec.msgpack.decode(sender.communicate(timeout=limit_s)[0], type=Sent)
            replies.merge(sent)
            most_cpu_s = max(most_cpu_s, sent.cpu_s)
    return replies.report(plan, most_cpu_s)


@contextlib.contextmanager
def _sender(plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, str(Path(__file__).with_name("_load_sender.py"))]
    if plan.cores:
        words = ["taskset", "-c", plan.cores, *words]
    words = [*plan.priority, *words]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    keep_priority(process.pid)
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(plan) + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_connected(sender: subprocess.Popen[bytes]) -> None:
    """Until it is connected; raises CalledProcessError where it cannot be."""
    assert sender.stdout is not None
    if not sender.stdout.readline():
        raise subprocess.CalledProcessError(sender.wait(), sender.args)
