"""One cell: the load, what the server could do meanwhile, and what is missing to the goals."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import msgspec
from _load import Plan, Report, run_load
from _overload_cells import (
    AFTER_S,
    AT_LOW_LOAD,
    BACK_S,
    BASE,
    BEFORE_S,
    BURST,
    BURST_S,
    MOST_TIMEOUTS,
    OF_CAPACITY,
    Cell,
    Load,
    load_of,
)  # fmt: skip
from _overload_ideal import back_after_s, ideal_windows, inside_share
from _overload_server import Server, requests
from _servers import free_port, running, wait_for

PATIENT_CLIENTS = 64
CAPACITY_S, WARM_S = 2.0, 1.0
_LATE_LIMIT_S = 0.003  # of loads that the sender may not be able to send
_LEAST_SURPLUS = 0.02  # of capacity: less is nothing to measure


@cache
def at_once() -> list[str]:
    """Words that let a sender by the clock run as soon as it is due: other machines do not wait for the server's cores.

    None where this user may not do that.
    """
    words = ["chrt", "-f", "1"]
    try:
        return words if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode == 0 else []
    except OSError:
        return []


class Result(msgspec.Struct, kw_only=True):
    """What a cell has shown; `skipped` says why it could not."""

    key: str
    skipped: str = ""
    alone_ms: float = 0.0
    capacity_per_s: float = 0.0
    capacities_per_s: list[float] = []  # before and after
    fair_per_s: float = 0.0  # capacity, while the surplus goes to somebody else
    ideal: float = 1.0  # of the goal's measure, what an ideal queue has of the same arrivals
    report: Report | None = None
    back_s: float | None = None  # after a burst
    job_rows_per_s: float = 0.0
    goal: str = ""
    misses: list[str] = []


class Bench:
    """Where the sender runs, for how long, and the server that does nothing."""

    def __init__(self, seconds: float, sender_cores: str, sink_port: int) -> None:
        self._seconds, self._cores, self._sink_port = seconds, sender_cores, sink_port

    def capacity_per_s(self, server: Server, rows: int, warm_s: float = 0.5, clients: int = PATIENT_CLIENTS) -> float:
        """Of as many patient clients as keep it busy."""
        given = requests(rows, patient=True)
        plan = Plan(port=server.port, requests=given, clients=clients, seconds=CAPACITY_S, warm_s=warm_s,
                    cores=self._cores)  # fmt: skip
        report = run_load(plan)
        if report.failures:
            print(f"  capacity{report.failures}", flush=True)
        return report.ok_per_s

    def fair_per_s(self, server: Server, cell: Cell, sent_per_s: float, capacity_per_s: float) -> float:
        """The same, while another sender sends the surplus to the server that does nothing.

        Of no more clients than a closed loop has. With no surplus and as many clients it is capacity itself.
        """
        load, surplus_per_s = load_of(cell.load), max(0.0, sent_per_s - capacity_per_s)
        clients = min(PATIENT_CLIENTS, int(load.amount)) if load.kind == "closed" else PATIENT_CLIENTS
        if load.kind == "burst" or surplus_per_s < _LEAST_SURPLUS * capacity_per_s:
            return self.capacity_per_s(server, cell.rows, clients=clients) if clients < PATIENT_CLIENTS else math.inf
        beside = Plan(
            port=self._sink_port, requests=requests(cell.rows), rate_per_s=surplus_per_s, warm_s=0.5,
            seconds=CAPACITY_S + 0.5, slo_s=0.05, late_limit_s=_LATE_LIMIT_S, cores=self._cores,
        )  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(run_load, beside)
            fair_per_s = self.capacity_per_s(server, cell.rows, 0.7, clients)
            sent.result()
        return fair_per_s

    def plan(self, server: Server, cell: Cell, capacity_per_s: float) -> Plan:
        """Of a cell's load."""
        load, plan = load_of(cell.load), Plan(
            port=server.port, requests=requests(cell.rows), warm_s=WARM_S, seconds=self._seconds,
            slo_s=cell.served.slo_ms / 1e3, cores=self._cores,
        )  # fmt: skip
        match load.kind:
            case "closed":
                plan.clients, plan.honours_retry_after = int(load.amount), load.honours_retry_after
            case "burst":
                base, most = BASE * capacity_per_s, BURST * capacity_per_s
                plan.phases = [(BEFORE_S, base), (BURST_S, most), (AFTER_S, base)]
            case _:
                plan.rate_per_s = load.amount * (capacity_per_s if load.kind == "open" else 1)
                if plan.rate_per_s > 2 * capacity_per_s:
                    plan.late_limit_s = _LATE_LIMIT_S
        if self._cores:
            plan.spins = True  # it has its own, and a timer's millisecond would count as the server's
        else:
            plan.naps = True  # the closed loop that measured capacity is hardly ever asleep when its replies come
            plan.priority = at_once() if plan.steps else []
        return plan

    def measure(self, server: Server, cell: Cell, before_per_s: float, alone_s: float) -> Result:
        """A cell between two measurements of capacity; these and the fair one without its job."""
        load, plan = load_of(cell.load), self.plan(server, cell, before_per_s)
        with server.job() if cell.job else contextlib.nullcontext():
            job_rows = server.batch_rows() if cell.job else 0.0
            report = run_load(plan)
            job_rows = server.batch_rows() - job_rows if cell.job else 0.0
        fair_per_s = self.fair_per_s(server, cell, report.sent_per_s, before_per_s)
        after_per_s = self.capacity_per_s(server, cell.rows)
        capacity_per_s = (before_per_s + after_per_s) / 2
        result = Result(
            key=cell.key, alone_ms=1e3 * alone_s, capacity_per_s=capacity_per_s, report=report,
            capacities_per_s=[before_per_s, after_per_s], fair_per_s=min(capacity_per_s, fair_per_s),
            job_rows_per_s=job_rows / (plan.counted_s + plan.warm_s),
        )  # fmt: skip
        _judge(result, load, plan)
        return result


def _judge(result: Result, load: Load, plan: Plan) -> None:
    """Its goal in words, and what is missing to it."""
    report = result.report
    assert report is not None
    windows = ideal_windows(plan, result.fair_per_s, result.alone_ms / 1e3) if plan.steps else []
    if load.kind == "burst":
        ends_s = BEFORE_S + BURST_S
        result.back_s = back_after_s(report.windows, ends_s, AT_LOW_LOAD)
        ideal_s = back_after_s(windows, ends_s, AT_LOW_LOAD)
        most_s = max(BACK_S, AFTER_S if ideal_s is None else ideal_s)
        result.ideal, result.goal = most_s, f"back in {most_s:.1f} s"
        if result.back_s is None or result.back_s > most_s:
            result.misses.append("back after " + ("never" if result.back_s is None else f"{result.back_s:.1f} s"))
    elif load.is_below_capacity or _refuses_none(report, plan):
        result.ideal = inside_share(windows) if windows else 1.0
        least = min(AT_LOW_LOAD, result.ideal)
        result.goal = f"{least:.3f} inside"
        if report.in_time_share < least:
            result.misses.append(f"{report.in_time_share:.3f} inside")
    else:
        possible = sum(inside for _, inside in windows) / plan.counted_s / result.fair_per_s if windows else 1.0
        result.ideal = min(1.0, possible)
        least = OF_CAPACITY * result.ideal
        result.goal = f"{least:.2f} of fair"
        if (share := report.in_time_per_s / result.fair_per_s) < least:
            result.misses.append(f"{share:.2f} of fair")
    result.misses += _broken(report)


def _refuses_none(report: Report, plan: Plan) -> bool:
    """Whether a closed loop is below capacity, so that every request has to be answered in time."""
    refused = report.statuses.get(503, 0) + report.statuses.get(504, 0)
    return not plan.steps and refused < MOST_TIMEOUTS * sum(report.statuses.values())


def _broken(report: Report) -> Iterator[str]:
    """What must be so whatever the load is."""
    replies = max(1, sum(report.statuses.values()))
    if (share := report.statuses.get(504, 0) / replies) >= MOST_TIMEOUTS:
        yield f"504: {share:.1%}"
    if lost := report.lost + report.statuses.get(0, 0):
        yield f"{lost} lost"
    if others := {status: count for status, count in report.statuses.items() if status not in (0, 200, 503, 504)}:
        yield f"statuses {others}"


@contextlib.contextmanager
def sink(cores: str) -> Iterator[int]:
    """The port of a server that does nothing."""
    port = free_port()
    words = [*(["taskset", "-c", cores] if cores else []), sys.executable]
    with running("overload sink", [*words, str(Path(__file__).with_name("_overload_sink.py")), str(port)]):
        wait_for(port)
        yield port
