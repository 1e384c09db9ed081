"""Precomputed answers by key: how fast a table is built and opened, and what a hit takes over HTTP at 2,000 a second.

`python bench/hybrid.py [KEYS] [RATE]`: texts as keys, vectors of 32 floats, through the code that a job runs at its
end; then `twoshift serve --precomputed` on one core, and clients on another. Bound by the host: a hit reads two pieces
of files that are in the page cache, which takes microseconds; the rest of its time is HTTP.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _load import Plan, post, run_load

from twoshift.answers.following import open_answers
from twoshift.answers.generations import Generation, build_generation, current, read_generation, switch
from twoshift.answers.writing import TableWriter
from twoshift.blobs.local import LocalBlobs

KEYS, RATE_PER_S, SECONDS, DIMS, CHUNK = 10_000_000, 2_000.0, 10.0, 32, 100_000
ECHO = b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"  # what HTTP costs without an answer
LOAD: dict[str, Any] = {"seconds": SECONDS, "cores": "1", "selects": True, "slo_s": 0.001}
# Where it is allowed, nobody else's work comes between: otherwise a busy machine is all that is measured
REALTIME = ["chrt", "-f", "10"]
MODEL = f"""
import numpy as np
class Model:
    outputs = ("embedding",)
    example = "a text"
    def load(self): pass
    def prepare(self, rows): return {{"size": np.array([len(row) for row in rows], np.float32)}}
    def predict(self, batch): return {{"embedding": np.repeat(batch["size"][:, None], {DIMS}, 1)}}
"""
BLOBS = LocalBlobs()


def main(keys: int, rate_per_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="twoshift-hybrid-") as made:
        folder = Path(made)
        asked = _generation_of_a_job(folder)
        began_s = time.monotonic()
        place = str(folder / "answers")
        built = build_generation(BLOBS, place, asked, lambda writer: _fill(writer, keys))
        switch(BLOBS, place, built.name)
        took_s = time.monotonic() - began_s
        size = sum(built.files.values())
        print(f"built: {built.rows:,} keys in {took_s:.1f} s, {built.rows / took_s:,.0f} rows/s, {size / 1e9:.2f} GB")
        _open_and_find(place, keys)
        _serve(folder, place, keys, rate_per_s)


def _generation_of_a_job(folder: Path) -> Generation:
    """What a job with the same model says of itself."""
    (folder / "model.py").write_text(MODEL)
    (folder / "rows.csv").write_text("id,body\na,b\n")
    words = ["run", "rows.csv", "--model", "model.py:Model", "--text", "body", "--keep", "id", "-o", "out"]
    _program(folder, *words, "--answer-key", "id", "--answer-table", f"{folder}/first")
    pointer = current(BLOBS, f"{folder}/first")
    assert pointer is not None
    found = read_generation(BLOBS, f"{folder}/first", pointer.generation)
    assert found is not None
    return msgspec.structs.replace(found, name="bench", rows=0, files={})


def _fill(writer: TableWriter, keys: int) -> None:
    for first in range(0, keys, CHUNK):
        count = min(CHUNK, keys - first)
        data, width = np.random.default_rng(first).random((count, DIMS), np.float32).tobytes(), 4 * DIMS
        rows = ((b"doc-%d" % (first + k), data[k * width : (k + 1) * width]) for k in range(count))
        writer.add(rows, time.time())


def _open_and_find(place: str, keys: int) -> None:
    pointer = current(BLOBS, place)
    assert pointer is not None
    began_s = time.perf_counter()
    table = open_answers(BLOBS, place, pointer, "id").table
    print(f"open: {1e3 * (time.perf_counter() - began_s):.1f} ms, {table.memory_bytes / 1e6:.1f} MB held")
    taken = []
    for key in (b"doc-%d" % random.randrange(keys) for _ in range(20_000)):  # noqa: S311
        began_s = time.perf_counter()
        assert table.find(key) is not None
        taken.append(time.perf_counter() - began_s)
    p50, p99 = np.percentile(taken, (50, 99)) * 1e6
    print(f"find, in this process: p50 {p50:.1f} us, p99 {p99:.1f} us")


def _serve(folder: Path, place: str, keys: int, rate_per_s: float) -> None:
    asked = ["--name", "m", "--port", "0", "--slo-ms", "1000", "--precomputed", place, "--key", "id"]
    priority = REALTIME if shutil.which("chrt") and not subprocess.run([*REALTIME, "true"]).returncode else []
    print(f"server and sender: {'real-time priority' if priority else 'the usual priority'}, a core each")
    words = [*priority, "taskset", "-c", "0", *_words("serve", "model.py:Model", *asked)]
    env = {**os.environ, "TWOSHIFT_HOME": str(folder / "home")}
    server = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True, env=env)
    try:
        port = _port(server)
        time.sleep(3)  # for its first look at the table
        hits = [
            post("/v1/embeddings", msgspec.json.encode({"model": "m", "input": "x", "keys": [f"doc-{each}"]}))
            for each in random.sample(range(keys), min(keys, 20_000))
        ]
        load = {**LOAD, "port": port, "rate_per_s": rate_per_s, "priority": priority}
        _measure(server.pid, "one key", Plan(requests=hits, **load))
        _measure(server.pid, "an echo", Plan(requests=[ECHO], **load))
        print(f"  {_hits(port)}")
        own = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())
        print(f"  server: {0 if own is None else int(own[1]) / 1e3:.0f} MB of its own memory")
    finally:
        server.terminate()
        server.wait()


def _measure(server: int, what: str, plan: Plan) -> None:
    """A load, and who had the cores meanwhile: a figure of a busy machine is none."""
    before_s, machine_s = _cpu_s(server), _machine_s()
    report = run_load(plan)
    used_s, machine_s = _cpu_s(server) - before_s, _machine_s() - machine_s
    sender_s = report.cpu_share * (plan.warm_s + plan.seconds)
    answered = sum(report.statuses.values()) * (1 + plan.warm_s / plan.seconds)
    print(f"HTTP, {plan.rate_per_s:,.0f}/s of {what}: {report.ok_per_s:,.0f} answers/s, statuses {report.statuses}")
    print(
        f"  ms: p50 {report.ok.p50_ms:.2f}, p99 {report.ok.p99_ms:.2f}, max {report.ok.max_ms:.1f}; "
        f"inside 1 ms {100 * report.in_time_share:.2f} %; sender late p99 {report.sent_late_ms:.2f}"
    )
    kept = [inside >= 0.99 * due for due, inside in report.windows if due]
    print(f"  of {len(kept)} tenths of a second {100 * sum(kept) / len(kept):.0f} % had their own p99 inside 1 ms")
    others = max(0.0, machine_s - used_s - sender_s) / (plan.warm_s + plan.seconds)
    print(f"  server: {1e6 * used_s / answered:.0f} us of CPU time a request; others used {others:.2f} cores")


def _machine_s() -> float:
    """CPU seconds of everybody, with what the hypervisor gave to others."""
    user, nice, system, _idle, _waits, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _hits(port: int) -> str:
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return "; ".join(line for line in page.splitlines() if line.startswith("twoshift_precomputed_rows_total"))


def _port(server: subprocess.Popen[str]) -> int:
    assert server.stderr is not None
    while line := server.stderr.readline():  # and not `for`: the pipe stays open
        if found := re.search(r"Ready at http://\S+:(\d+)", line):
            return int(found[1])
    raise SystemExit("the server did not start")


def _words(*words: str) -> list[str]:
    return [sys.executable, "-m", "twoshift", *words]


def _program(folder: Path, *words: str) -> None:
    env = {**os.environ, "TWOSHIFT_HOME": str(folder / "home")}
    subprocess.run(_words(*words), cwd=folder, check=True, env=env, capture_output=True)


if __name__ == "__main__":
    main(
        int(float(sys.argv[1])) if len(sys.argv) > 1 else KEYS, float(sys.argv[2]) if len(sys.argv) > 2 else RATE_PER_S
    )
