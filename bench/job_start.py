"""How long a job takes to its first forward call: a new one, and one of 100,000 shards of which 99 in 100 are done.

The model is a small class, so that nothing is in it but the job's own time; each is a share of its limit (2 s and 5 s).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHARDS, DONE = 100_000, 0.99
MOST_LINKS = 30_000  # to one file: some filesystems allow no more than 65,000
MODEL = """
import time
from pathlib import Path

class Square:
    def load(self):
        self.loaded_s = time.time()

    def predict(self, batch):
        if not Path("called").exists():
            Path("called").write_text(f"{self.loaded_s} {time.time()}")
        return {"squared": batch["x"] * batch["x"]}
"""


def run(folder: Path, output: str) -> tuple[float, float]:
    """Seconds from the command to its first forward call, and of them after the model was loaded; then it is killed."""
    called = folder / "called"
    called.unlink(missing_ok=True)
    words = [sys.executable, "-m", "twoshift", "run", "rows.parquet", "--model", "m.py:Square", "--columns", "x"]
    began_s = time.time()
    job = subprocess.Popen(
        [*words, "--shard-rows", "1", "-o", output],
        cwd=folder,
        env=os.environ | {"TWOSHIFT_HOME": str(folder / "home")},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (called.exists() and called.read_text().count(" ")):
            assert job.poll() is None, "the job has ended"
            time.sleep(0.005)
    finally:
        while output == "out" and not any((folder / output).glob("part-*")):
            time.sleep(0.05)
        os.killpg(job.pid, 9)
        job.wait()
    loaded_s, called_s = map(float, called.read_text().split())
    return called_s - began_s, called_s - loaded_s


def pretend_done(out: Path) -> None:
    """Most parts are there: links to one that is."""
    (part, *_) = sorted(out.glob("part-*"))
    data = part.read_bytes()
    for first in range(0, int(SHARDS * DONE), MOST_LINKS):
        stop = min(first + MOST_LINKS, int(SHARDS * DONE))
        names = (out / f"part-{shard:06d}.parquet" for shard in range(first, stop))
        missing = [name for name in names if not name.exists()]
        for name, before in zip(missing, itertools.chain([None], itertools.repeat(missing[0])), strict=False):
            if before is None:
                name.write_bytes(data)
            else:
                name.hardlink_to(before)


def main() -> int:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "m.py").write_text(MODEL)
        pq.write_table(pa.table({"x": np.arange(SHARDS, dtype=np.float64)}), folder / "rows.parquet")
        new_s = min(run(folder, f"new{turn}")[0] for turn in range(3))
        run(folder, "out")
        pretend_done(folder / "out")
        resumed_s = min(run(folder, "out")[0] for _ in range(3))
    figures = (("a new job", new_s, 2.0), (f"{SHARDS:,} shards, {DONE:.0%} done", resumed_s, 5.0))
    for name, seconds, limit_s in figures:
        print(f"{name}: {seconds:.2f} s to the first forward call, {seconds / limit_s:.2f} of {limit_s:.0f} s")
    return int(any(seconds > limit_s for _, seconds, limit_s in figures))


if __name__ == "__main__":
    raise SystemExit(main())
