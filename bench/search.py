"""What a job of minilm pays for an index and for a store, and how long a live search takes, alone and beside a job.

`python bench/search.py [--rows 6000] [--per-s 4] [--seconds 20] [--bucket s3://name/prefix]`: the program itself, on
texts of 16 words. The job runs plainly, with an index, and into SQLite, one after the other. Then a server answers
`/v1/search` with the index of the second job: queries by the clock, latency from the scheduled arrival, first alone,
then while a job runs on the same server. With a bucket, the job with its index runs there as well, and a server
searches that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from index import WORDS

PROGRAM = str(Path(sys.executable).with_name("twoshift"))
SLO_MS = 100


def run(folder: Path, output: str, rows: int, *words: str) -> float:
    """Rows a second of a job, from its first row to its end; what it builds afterwards included."""
    asked = [PROGRAM, "run", str(folder / "in.jsonl"), "--model", "minilm", "--text", "text", "--keep", "id"]
    subprocess.run([*asked, "-o", output, *words], check=True, capture_output=True)
    return rows / json.loads(_read(f"{output}/_twoshift/report.json"))["elapsed_s"]


def _read(location: str) -> bytes:
    if "://" not in location:
        return Path(location).read_bytes()
    from twoshift.wiring.blob_stores import blobs_for

    with blobs_for(location).open(location) as source:
        return source.read()


class Served:
    """A server with an index."""

    def __init__(self, index: str) -> None:
        self._client = httpx.Client(timeout=60.0)  # to make one takes 20 ms
        words = ["serve", "minilm", "--slo-ms", str(SLO_MS), "--index", index, "--port", "0"]
        self._process = subprocess.Popen([PROGRAM, *words], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("Ready at "):
                self.address = line.split()[2]
                break
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        while self._asked("the quick fox") == 503:  # the index is opened beside the start
            time.sleep(0.2)

    def close(self) -> None:
        """Wait for its end."""
        self._process.terminate()
        self._process.wait()

    def measure(self, per_s: float, seconds: float) -> str:
        """Searches at random moments by the clock."""
        rng, threads, took_s, failed = np.random.default_rng(0), list[threading.Thread](), list[float](), list[int]()
        began_s = at_s = time.monotonic()
        while (at_s := at_s + rng.exponential(1 / per_s)) < began_s + seconds:
            time.sleep(max(0.0, at_s - time.monotonic()))
            threads.append(threading.Thread(target=self._one, args=([*rng.choice(WORDS, 5)], at_s, took_s, failed)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        took_s.sort()
        p50, p99 = (1e3 * took_s[int(share * len(took_s))] for share in (0.5, 0.99))
        late = sum(each > SLO_MS / 1e3 for each in took_s)
        return f"p50 {p50:.1f}, p99 {p99:.1f} ms, {late} of {len(threads)} over {SLO_MS} ms, {len(failed)} refused"

    def _one(self, words: list[str], due_s: float, took_s: list[float], failed: list[int]) -> None:
        status = self._asked(" ".join(words))
        (took_s.append(time.monotonic() - due_s) if status == 200 else failed.append(status))

    def _asked(self, query: str) -> int:
        body = {"model": "minilm", "query": query, "k": 10}
        return self._client.post(f"{self.address}/v1/search", json=body).status_code


def beside_a_job(served: Served, folder: Path, per_s: float, seconds: float) -> str:
    """The same searches while a job has the rest of the device."""
    words = ["--model", "minilm", "--text", "text", "-o", str(folder / "beside"), "--on", served.address]
    job = subprocess.Popen([PROGRAM, "run", str(folder / "in.jsonl"), *words], stderr=subprocess.DEVNULL)
    time.sleep(3.0)  # it is planned
    told = served.measure(per_s, seconds)
    still = "which went on after it" if job.poll() is None else "which ENDED BEFORE IT: raise --rows"
    job.terminate()
    job.wait()
    return f"{told}, beside a job {still}"


def main() -> None:
    """One line for each figure."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, default=6000)
    asked.add_argument("--per-s", type=float, default=4.0)
    asked.add_argument("--seconds", type=float, default=20.0)
    asked.add_argument("--bucket")
    given, rng = asked.parse_args(), np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="twoshift-search-") as made:
        folder = Path(made)
        os.environ.setdefault("TWOSHIFT_HOME", str(folder / "home"))
        rows = ({"id": number, "text": " ".join(rng.choice(WORDS, 16))} for number in range(given.rows))
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"plain: {run(folder, str(folder / 'plain'), given.rows):,.0f} rows/s", flush=True)
        place, index = str(folder / "out"), ("--index", "vectors.usearch", "--index-key", "id")
        print(f"--index vectors.usearch: {run(folder, place, given.rows, *index):,.0f} rows/s", flush=True)
        into = ("--into", f"{folder}/rows.sqlite", "--into-table", "docs", "--into-key", "id")
        print(f"--into sqlite: {run(folder, str(folder / 'stored'), given.rows, *into):,.0f} rows/s", flush=True)
        served = Served(place)
        print(f"/v1/search, {given.per_s:g}/s alone: {served.measure(given.per_s, given.seconds)}", flush=True)
        print(f"/v1/search, {given.per_s:g}/s: {beside_a_job(served, folder, given.per_s, given.seconds)}", flush=True)
        served.close()
        if given.bucket:
            place = f"{given.bucket.rstrip('/')}/out-{time.time_ns()}"
            print(f"in {given.bucket}, --index: {run(folder, place, given.rows, *index):,.0f} rows/s", flush=True)
            served = Served(place)
            print(f"/v1/search with that index: {served.measure(given.per_s, given.seconds / 2)}", flush=True)
            served.close()


if __name__ == "__main__":
    main()
