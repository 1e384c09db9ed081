"""Streams that are killed at every write point: after the next start every row is there once, in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from job_runs import JobFolder

pytestmark = pytest.mark.slow
DRIVER = str(Path(__file__).parent / "killer" / "every_stream_point.py")
FILES, ROWS = 4, 10


def check_stream(out: Path) -> None:
    """Each row once, in order; one dead letter; nothing of what was begun and not finished."""
    rows = [row for path in sorted(out.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]
    good = [row for row in rows if row["error"] is None]
    assert [row["id"] for row in good] == list(range(FILES * ROWS))
    assert [row["squared"] for row in good] == [float(k) ** 2 for k in range(FILES * ROWS)]
    (bad,) = (row for row in rows if row["error"] is not None)
    assert "docs/002.jsonl, row 11" in bad["error"]
    letters = [msgspec.json.decode(line) for path in out.glob("_dead/*") for line in path.read_bytes().splitlines()]
    assert [(each["source"], each["error"]) for each in letters] == [("docs/002.jsonl", bad["error"])]
    parts = {path.stem for path in out.glob("part-*.parquet")}
    assert {"-".join(path.stem.split("-")[:-2]) for path in out.glob("_twoshift/parts/*.json")} == parts
    assert not [*out.glob("_twoshift/staging/*"), *out.rglob("*.twoshift-tmp")]


@pytest.mark.parametrize("remainder", range(4))
def test_a_kill_at_any_write_point_loses_no_row_and_doubles_none(job: JobFolder, remainder: int) -> None:
    job.model("pass")
    for path in (job.path / "docs").glob("*"):
        path.unlink()
    (job.path / "docs").mkdir(exist_ok=True)
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        lines = [f'{{"id": {row}, "x": {row}.0}}\n' for row in rows] + (["no JSON\n"] if number == 2 else [])
        (job.path / "docs" / f"{number:03d}.jsonl").write_text("".join(lines))
    words = [sys.executable, DRIVER, str(remainder), "4"]
    done = subprocess.run(words, cwd=job.path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    killed = [int(at) for at in done.stdout.split()]
    assert len(killed) >= 20  # records, parts, merged parts, what is removed
    for at in killed:
        check_stream(job.path / f"out-{at}")
