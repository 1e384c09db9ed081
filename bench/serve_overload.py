"""Load around and above capacity: how much is answered inside the SLO in each cell of a grid, with its goal.

Cells: a model (minilm with 16-token queries; `slow`, whose call takes 4 ms and 1 ms a row without the interpreter;
`echo`, where the host is what fills up), rows a request, SLO, processes, load, and a job beside it or not. Loads:
`closed:N:now` and `closed:N:after` are N connections that ask again at once, or when a refusal says; `open:X` are
requests by the clock at X times capacity; `burst` is a second at 3 times capacity on a base of 0.7.

Capacity is what a closed loop of 64 patient clients gets out of the same server, before and after each cell, without
the job. The sender shares the cores with the server, and what it takes for the surplus is not the server's fault:
`fair` is that same capacity while a second sender sends the cell's surplus to a server that answers a constant 503.
Goals at and above capacity are judged by `fair`; the ratio to capacity is printed beside it. A closed loop that is
refused nothing is below capacity, and has to be answered in time; `fair` is of no more clients than it has. Random
arrivals alone make some requests late where few fit into the SLO: the goals of open loops are times what an ideal queue
has of the same arrivals. Latency counts from when a request was due (open loop; sent within a millisecond or two unless
the sender is behind, which is printed) or sent (closed loop). A cell whose request takes more than half of the SLO by
itself is skipped: no request can then wait for the call before it.

A sender of an open loop that waits for its replies is woken up by each, and on one machine the server pays for that;
the closed loop's is mostly awake while its replies come. So it sleeps for a millisecond at a time, whatever comes, and
looks for replies then: that much later they count. With cores of its own (`--cores`) it never sleeps.
docs/benchmarks.md has the same cells with each kind of sender.

Goals: 0.9 of capacity inside the SLO at or above it; 99 % at 0.7, and from a second after a burst on; 504 under 1 % of
replies; no lost connection. The exit status is 1 where one is missed. Each result is a line of JSON under build/bench;
`--resume` goes on where an earlier run with the same file stopped.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from _overload_cells import LOADS, MODELS, REPLICAS, ROWS, SLOS_MS, Cell, cuda, grid, load_of, quick
from _overload_measure import Bench, Result, sink
from _overload_server import Server, serving
from _servers import BUILD, Skipped, environment, forget_profiles

os.environ.update(environment({}))
_TIGHT = 0.5  # of the SLO, for a request that is alone
HEAD = (
    f"{'cell':42} {'capacity':>8} {'fair':>8} {'inside':>8} {'/cap':>5} {'/fair':>5} {'p50':>6} {'p99':>6} "
    f"{'200':>7} {'503':>7} {'504':>6} {'other':>5} {'lost':>4} {'refuse':>6} {'late':>5} {'cpu':>4}  goal"
)


def shown(result: Result) -> str:
    """A line of the table; times in ms, rates a second."""
    if (report := result.report) is None:
        return f"{result.key:42} {f'skipped: {result.skipped}' if result.skipped else ', '.join(result.misses)}"
    statuses = dict(report.statuses)
    counts = [statuses.pop(status, 0) for status in (200, 503, 504, 0)]
    verdict = "met" if not result.misses else f"MISSED: {', '.join(result.misses)}"
    more = f"; sent {report.sent_per_s:.0f}/s, {report.unsent} not sent" if report.unsent else ""
    if report.retry_after.count and ":after" in result.key:
        more += f"; told to come back in {report.retry_after.p50_ms:.0f} to {report.retry_after.p99_ms:.0f} ms"
    more += f"; back after {result.back_s:.1f} s" if result.back_s is not None else ""
    more += f"; job {result.job_rows_per_s:.0f} rows/s" if result.job_rows_per_s else ""
    return (
        f"{result.key:42} {result.capacity_per_s:8.1f} {result.fair_per_s:8.1f} {report.in_time_per_s:8.1f} "
        f"{report.in_time_per_s / result.capacity_per_s:5.2f} {report.in_time_per_s / result.fair_per_s:5.2f} "
        f"{report.ok.p50_ms:6.1f} {report.ok.p99_ms:6.1f} {counts[0]:7} {counts[1]:7} {counts[2]:6} "
        f"{sum(statuses.values()):5} {counts[3] + report.lost:4} {report.refused.p50_ms:6.2f} "
        f"{report.sent_late_ms:5.1f} {report.cpu_share:4.2f}  {result.goal}: {verdict}{more}"
    )


def _unfit(server: Server, rows: int, alone_s: float) -> str:
    """Why the model cannot keep the SLO even alone; empty where it can."""
    derived = server.get("/v1/derived/served")
    if not derived.get("keeps_slo", True):
        return f"/v1/derived: one row takes {1e3 * derived['one_row_s']:.1f} of {server.served.slo_ms:g} ms"
    if 1e3 * alone_s > _TIGHT * server.served.slo_ms:
        return f"a request of {rows} rows takes {1e3 * alone_s:.1f} of {server.served.slo_ms:g} ms alone"
    return ""


def _measured(bench: Bench, server: Server, cells: Sequence[Cell], until_s: float) -> Iterator[Result]:
    """Cells of one server with as many rows a request."""
    alone_s = server.alone_s(cells[0].rows)
    if why := _unfit(server, cells[0].rows, alone_s):
        yield from (Result(key=cell.key, skipped=why) for cell in cells)
        return
    before_per_s = bench.capacity_per_s(server, cells[0].rows, warm_s=1.0)
    for cell in cells:
        if time.monotonic() > until_s:
            return
        try:
            result = bench.measure(server, cell, before_per_s, alone_s)
            before_per_s = result.capacities_per_s[1]
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            result = Result(key=cell.key, misses=[f"FAILED: {error}"])
        yield result
    told_per_s = server.get("/v1/derived/served")["capacity_rows_per_s"] / cells[0].rows
    print(
        f"  capacity as /v1/derived tells it: {told_per_s:.1f}, {told_per_s / before_per_s:.2f} of the last one",
        flush=True,
    )


def run_grid(bench: Bench, cells: Sequence[Cell], server_cores: str, until_s: float) -> Iterator[Result]:
    """Results as they come, until then."""
    for served, group in itertools.groupby(cells, lambda cell: cell.served):
        if time.monotonic() > until_s:
            return
        own = list(group)
        try:
            with serving(served, server_cores, any(cell.job for cell in own)) as server:
                for _, same in itertools.groupby(own, lambda cell: cell.rows):
                    yield from _measured(bench, server, list(same), until_s)
        except Skipped as why:
            yield from (Result(key=cell.key, skipped=str(why)) for cell in own)


def _asked(options: argparse.Namespace) -> list[Cell]:
    if options.cuda:
        return cuda()
    if options.quick:
        return quick()
    jobs = {"no": [False], "yes": [True], "both": [False, True]}[options.job]
    return grid(options.models, options.rows, options.slo_ms, options.replicas, options.loads, jobs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="rows of a request")
    parser.add_argument("--slo-ms", nargs="+", type=float, default=SLOS_MS)
    parser.add_argument("--replicas", nargs="+", type=int, default=REPLICAS)
    parser.add_argument("--loads", nargs="+", default=LOADS, help=f"(default: {' '.join(LOADS)})")
    parser.add_argument("--job", choices=("no", "yes", "both"), default="both", help="a job beside live requests")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a cell's load")
    parser.add_argument("--quick", action="store_true", help="only the cells that tell most, in about five minutes")
    parser.add_argument("--cuda", action="store_true", help="a BERT-base on a GPU with an SLO of 20 ms")
    parser.add_argument("--cores", default="", help="of the server and of the sender, as in 0-3/4-7")
    parser.add_argument("--results", type=Path, default=BUILD / "overload.jsonl")
    parser.add_argument("--resume", action="store_true", help="leave out the cells that the results have already")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no further cell after so long")
    options = parser.parse_args()
    for load in options.loads:
        load_of(load)
    return options


def main() -> int:
    options = _options()
    until_s = time.monotonic() + options.for_s
    server_cores, _, sender_cores = options.cores.partition("/")
    if options.cuda:
        from _gpu import torch_on_gpu

        torch_on_gpu()
    if not options.resume:
        options.results.unlink(missing_ok=True)
        forget_profiles()
    lines = options.results.read_bytes().splitlines() if options.results.exists() else []
    results = {each.key: each for each in (msgspec.json.decode(line, type=Result, strict=False) for line in lines)}
    wanted = _asked(options)
    left = [cell for cell in wanted if cell.key not in results]
    print(f"{len(wanted)} cells, {len(left)} to measure\n{HEAD}", flush=True)
    with sink(sender_cores) as sink_port, options.results.open("ab") as file:
        bench = Bench(options.seconds, sender_cores, sink_port)
        for result in run_grid(bench, left, server_cores, until_s):
            results[result.key] = result
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()
            print(shown(result), flush=True)
    found = [results[cell.key] for cell in wanted if cell.key in results]
    missed = sum(bool(result.misses) for result in found)
    skipped = sum(bool(result.skipped) for result in found)
    print("\n" + "\n".join([HEAD, *map(shown, found)]))
    print(
        f"{len(found)} of {len(wanted)} cells: {len(found) - missed - skipped} met, {missed} missed, {skipped} skipped"
    )
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
