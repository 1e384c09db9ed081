"""`make demo`: live requests and a job on one fleet, a replica killed on the way, and what it all came to."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from corpus import paragraphs, write_corpus
from figures import BATCH_PRICE, LIVE_PRICE, Figures, Lane, Moments, lane_of, parity_of, rows_of
from live import Live, percentile_ms
from report import write_report
from server import Server
from verdict import Promise, busy_machine, exit_code, exit_line, load_now, promises_of

from twoshift.cli.output import console, table
from twoshift.runtime.devices import usable_threads

MODEL, SLO_MS, REPLICAS = "minilm", 100.0, 2
OUT = Path("demo-out")
ABOUT = "Live requests and a job on one fleet, a replica killed on the way, and whether all promises were kept."
EPILOG = f"Results: {OUT}/report.html. Exit code 1 where a promise was not kept, unless the machine was busy before."
LIVE_SHARE, JOB_SHARE = 0.15, 0.4  # of what the fleet can do, by its curve
ALONE_S, JOB_S, AFTER_S = 15.0, 30.0, 8.0
POLL_S, SAID_EVERY_S = 0.5, 3.0
KILL_AT = 0.3  # of the job
LONGEST_S = 240.0  # that is waited for the job
QUERY_CHARACTERS, SHARD_ROWS, SAMPLE = 80, 100, 100
SHOWN = 8  # refused requests


def main() -> int:
    """The exit code is 1 where a promise was broken for which no busy machine can be blamed."""
    argparse.ArgumentParser("make demo", description=f"{ABOUT} It takes about two minutes.", epilog=EPILOG).parse_args()
    began_s, busy = time.monotonic(), busy_machine(load_now(), usable_threads())
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    cores = usable_threads()
    if busy:
        print(busy)
    say(f"1. A fleet: {MODEL} on {REPLICAS} replica processes, {cores} cores, SLO {SLO_MS:g} ms")
    words = [MODEL, "--slo-ms", f"{SLO_MS:g}", "--replicas", f"{REPLICAS}", "--port", "0"]
    print(f"$ twoshift serve {' '.join(words)}")
    server = Server(words, OUT / "server.log", {"TWOSHIFT_HOME": str(OUT.absolute() / "home")})
    try:
        figures = story(server, began_s)
    except (RuntimeError, OSError) as error:
        sys.exit(f"The demo could not go on: {error}. {busy or f'See {OUT}/server.log.'}")
    finally:
        server.stop()
    tell(figures)
    tell_refusals(figures)
    promises = promises_of(figures)
    tell_verdict(promises, busy)
    if figures.job_problem:
        print(f"The job was not done. What the server says is in {OUT}/server.log; try again when the machine is idle.")
    path = write_report(OUT, figures, promises)
    say(f"Open {path} for latency over time, and {OUT}/vectors/_twoshift/report.html for the job's own report.")
    return exit_code(promises, busy)


def story(server: Server, began_s: float) -> Figures:
    """Live alone, live beside a job with a kill, live alone again; then what is in the output."""
    derived = server.ask("GET", f"/v1/derived/{MODEL}")
    capacity = derived["capacity_rows_per_s"]
    rate = min(200.0, max(5.0, LIVE_SHARE * capacity))
    rows = int(min(50_000, max(500, JOB_SHARE * capacity * JOB_S)))
    texts = write_corpus(OUT / "docs.parquet", rows)
    print(f"  ready after {time.monotonic() - began_s:.1f} s; it can do {capacity:,.0f} rows/s")
    if not derived["keeps_slo"]:
        takes, least = 1e3 * derived["one_row_s"], 1e3 * derived["least_slo_s"]
        print(f"  it cannot keep the SLO here: one row takes {takes:.0f} of {SLO_MS:g} ms, and {least:.0f} would do")
    say(f"2. Live traffic: {rate:.0f} requests/s by the clock, and nothing else")
    live = Live(server.port, MODEL, [each[:QUERY_CHARACTERS] for each in paragraphs()], rate)
    try:
        time.sleep(2)  # connections are made, caches warm
        at, before = Moments(time.monotonic()), lane_of(server, "online")
        follow(live, ALONE_S)
        alone = lane_of(server, "online").since(before)
        beside, batch, job = with_job(server, live, at, rows)
        say("5. Live traffic alone again")
        follow(live, AFTER_S)
        at.ended_s = time.monotonic()
    finally:
        live.stop()
    found, vectors = rows_of(OUT / "vectors", rows)
    parity = parity_of(server, MODEL, texts, vectors, SAMPLE)
    seconds = time.monotonic() - began_s
    return Figures(REPLICAS, SLO_MS, rate, at, live, alone, beside, batch, parity, found, job, seconds)


def with_job(server: Server, live: Live, at: Moments, rows: int) -> tuple[Lane, Lane, dict[str, Any]]:
    """What live and batch rows had of the devices, and the job as it ended."""
    say(f"3. A job of {rows:,} documents on the same replicas")
    words = f"{OUT}/docs.parquet --model {MODEL} --text body --keep id -o {OUT}/vectors"
    print(f"$ twoshift run {words} --on {server.address}")
    before = lane_of(server, "online"), lane_of(server, "batch")
    at.job_began_s = time.monotonic()
    try:
        job = followed_job(server, live, at)
    except (RuntimeError, OSError) as error:  # refused, or nobody answers: a verdict like any other
        job = {"state": "failed", "reason": str(error)}
    at.job_ended_s = time.monotonic()
    if job["state"] == "done" or at.killed_s:
        at.killed_s = at.killed_s or at.job_ended_s  # it was over before anybody could
        while not at.back_s and time.monotonic() < at.job_ended_s + LONGEST_S:
            time.sleep(POLL_S)
            look_for_replicas(server, at)
    return lane_of(server, "online").since(before[0]), lane_of(server, "batch").since(before[1]), job


def followed_job(server: Server, live: Live, at: Moments) -> dict[str, Any]:
    """The job as it ended, a replica killed on the way; raises RuntimeError where it is refused."""
    job = server.ask("POST", "/v1/jobs", {
        "inputs": [str(OUT.absolute() / "docs.parquet")], "output": str(OUT.absolute() / "vectors"), "model": MODEL,
        "text": "body", "keep": ["id"], "shard_rows": SHARD_ROWS, "price_usd_per_hour": BATCH_PRICE,
    })  # fmt: skip
    said_s = at.job_began_s
    while job["state"] in ("queued", "running") and time.monotonic() < at.job_began_s + LONGEST_S:
        time.sleep(POLL_S)
        job = server.ask("GET", f"/v1/jobs/{job['id']}")
        look_for_replicas(server, at)
        if not at.killed_s and (job["progress"] or {}).get("share", 0.0) >= KILL_AT:
            at.killed_s = time.monotonic()
            say(f"4. kill -9 of a replica, process {server.kill_a_replica()}")
        if time.monotonic() >= said_s + SAID_EVERY_S:
            said_s = time.monotonic()
            show_live(live, job)
    return job | {"reason": job["reason"] or f"not done after {LONGEST_S:.0f} s"}


def look_for_replicas(server: Server, at: Moments) -> None:
    """Whether there are as many again as before the kill."""
    if at.killed_s and not at.back_s and server.counted("replicas", state="ready") >= REPLICAS:
        at.back_s = time.monotonic()
        print(f"  {REPLICAS} replicas again after {at.back_s - at.killed_s:.1f} s")


def follow(live: Live, seconds: float) -> None:
    """Wait, and say how it goes."""
    until_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < until_s:
        time.sleep(min(SAID_EVERY_S, until_s - now_s))
        show_live(live)


def show_live(live: Live, job: dict[str, Any] | None = None) -> None:
    """How the last seconds went."""
    recent = live.between((time.monotonic() - SAID_EVERY_S, time.monotonic()))
    told = f"  live p50 {percentile_ms(recent, 0.5):6.1f} ms, p99 {percentile_ms(recent, 0.99):6.1f} ms"
    progress = (job or {}).get("progress") or {}
    if progress:
        told += f"; job {progress['share']:4.0%}, {progress['rows_per_s']:,.0f} rows/s"
    print(told, flush=True)


def tell(figures: Figures) -> None:
    """The result, for people."""
    data = figures.to_dict()
    usd = data["usd_per_million"]
    latency = [["without the job", data["live_without_job"]], ["with the job", data["live_with_job"]]]
    shown = [
        [name, f"{each['requests']:,}", f"{each['p50_ms']:.1f}", f"{each['p99_ms']:.1f}", f"{SLO_MS:g}",
         f"{each['refused']:,}", f"{each['without_reply']:,}"]
        for name, each in latency
    ]  # fmt: skip
    columns = ["<live requests", "sent", "p50 ms", "p99 ms", "SLO ms", "refused", "no reply"]
    dollars = [
        ["by device time", f"{usd['live']:.3g}", f"{usd['batch']:.3g}",
         f"{usd['live'] / usd['batch']:.1f}x" if usd["batch"] else "no batch row"],
        ["reference case", *(f"{usd['reference'][each]:.3g}" for each in ("live", "batch")),
         f"{usd['reference']['live'] / usd['reference']['batch']:.1f}x"],
    ]  # fmt: skip
    prices = f"live ${LIVE_PRICE:.2f}/h", f"batch ${BATCH_PRICE:.2f}/h"
    out = console()
    out.print(table(columns, shown, title="What live callers saw"))
    out.print(table(["<dollars per million rows", *prices, "apart"], dollars))
    alone, both = usd["fleet"]["live_alone"], usd["fleet"]["both_shifts"]
    print(
        f"Harvested: {data['harvested_rows_per_s']:,.0f} rows/s for {data['job_seconds']:.0f} s, beside live requests."
    )
    slower = data["live_with_job"]["p50_ms"] / data["live_without_job"]["p50_ms"]
    print(f"The job cost live callers a factor of {slower:.1f} in the median.")
    print(
        f"The fleet as it is paid, idle time included: ${alone:.2f} per million rows live alone, ${both:.2f} with both."
    )
    print(f"Rows with an error: {data['row_errors']}. All of it took {data['seconds']:.0f} s.")


def tell_refusals(figures: Figures) -> None:
    """When live requests were refused, how fast, and why."""
    at = figures.moments
    refused = [each for each in figures.without_job() + figures.with_job() if each.told]
    for each in refused[:SHOWN]:
        after = f", {each.due_s - at.killed_s:+.1f} s from the kill" if at.killed_s else ""
        print(
            f"Refused at {each.due_s - at.began_s:.1f} s{after}, after {1e3 * each.took_s:.0f} ms, "
            f"with {each.status}: {each.told}"
        )
    if len(refused) > SHOWN:
        print(f"and {len(refused) - SHOWN} more")


def tell_verdict(promises: list[Promise], busy: str) -> None:
    """What was promised, and whether it was kept."""
    shown = [[each.what, each.found, each.verdict] for each in promises]
    console().print(table(["<promise", "measured", "verdict"], shown, title="The verdict"))
    if busy:
        print(busy)
    print(exit_line(promises, busy))


def say(line: str) -> None:
    """A step."""
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{line}{plain}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
