"""The jobs of the table: their documents, and `twoshift run` with a device of its own or on a server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _corpus import documents
from _overload_server import NAME, tokenizer
from _servers import environment

FILES = 8
COLUMN = "text"


class Documents:
    """Parquet files: a job's worth, and as many links to them as keep a job at work beside live requests."""

    def __init__(self, folder: Path, rows: int, mean_tokens: float, times: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.texts = documents(tokenizer(), min(rows, 20_000), mean_tokens, 510)
        self.rows, self.times = rows, times
        folder.mkdir()
        self.files = [folder / f"{at}.parquet" for at in range(FILES)]
        for path, part in zip(self.files, np.array_split(np.arange(rows), FILES), strict=True):
            pq.write_table(pa.table({COLUMN: [self.texts[at % len(self.texts)] for at in part]}), path)

    def many(self, times: int) -> list[Path]:
        """The files so many times over; all of one are one on the disk."""
        found = list(self.files)
        for turn in range(1, times):
            for path in self.files:
                link = path.with_name(f"{path.stem}-{turn}.parquet")
                if not link.exists():
                    link.hardlink_to(path)
                found.append(link)
        return found

    @property
    def endless(self) -> list[Path]:
        """Those of a job that does not end while a line is measured."""
        return self.many(self.times)


def dedicated_per_s(model: Sequence[str], inputs: Sequence[Path], output: Path, cores: str) -> float:
    """Rows a second of `twoshift run` with the device to itself, from its first shard to its last commit."""
    told = _run(["--model", *model], inputs, output, cores)
    return float(told["rows_per_s"])


def on_server_per_s(port: int, inputs: Sequence[Path], output: Path) -> float:
    """The same of `twoshift run --on`."""
    done = _run(["--model", NAME, "--on", f"http://127.0.0.1:{port}"], inputs, output)["progress"]
    return done["rows_committed"] / done["elapsed_s"]


def _run(how: Sequence[str], inputs: Sequence[Path], output: Path, cores: str = "") -> dict[str, Any]:
    words = [*(["taskset", "-c", cores] if cores else []), sys.executable, "-m", "twoshift", "run", *map(str, inputs)]
    words += [*how, "--text", COLUMN, "-o", str(output), "--json"]
    done = subprocess.run(words, env=environment({}), capture_output=True, check=False)
    shutil.rmtree(output, ignore_errors=True)
    if done.returncode:
        raise RuntimeError(f"the job ends with {done.returncode}: {done.stderr.decode()[-1500:]}")
    return json.loads(done.stdout)
