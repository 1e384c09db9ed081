"""Jobs with an index that are killed at every write point: one generation, switched to once, with every row in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from job_runs import JobFolder

from twoshift.blobs.local import LocalBlobs
from twoshift.vectors.keys import Keys
from twoshift.vectors.searching import open_current

pytestmark = pytest.mark.slow
DRIVER = str(Path(__file__).parent / "killer" / "every_point.py")
ROWS = 100
MODEL = """
import numpy as np


class Square:
    outputs = ("squared", "embedding")

    def load(self):
        pass

    def predict(self, batch):
        x = np.asarray(batch["x"], np.float64)
        return {"squared": x * x, "embedding": np.stack([x, np.ones_like(x)], 1).astype(np.float32)}
"""


def check_index(out: Path) -> None:
    """One generation and one switch to it, in which each row's vector has its key; nothing half done."""
    index = out / "_index" / "vectors.usearch"
    assert [path.name for path in index.glob("current-*")] == ["current-000001.json"]
    assert len([*index.glob("generations/*/index.json")]) == 1
    assert len([*index.glob("generations/*/*/vectors.usearch")]) == 1
    assert [*index.glob("_twoshift/staging/*")] == []
    assert [path for path in index.rglob("*") if path.name.endswith(".twoshift-tmp")] == []
    assert [*out.glob("_twoshift/index/*")] == []  # pieces, which are of no more use
    found = open_current(lambda _: LocalBlobs(), str(out))
    assert found is not None
    assert (found.generation.rows, found.generation.left_out) == (ROWS, {})
    vectors = np.array([[row, 1] for row in range(ROWS)], np.float32)
    itself = [hits[0].key == row for row, hits in enumerate(found.search(vectors, 1))]
    assert sum(itself) >= 0.9 * ROWS  # a graph's search is approximate; the keys are not
    (files,) = (path.parent for path in index.glob("generations/*/*/keys.arrow"))
    assert Keys(files).at(np.arange(ROWS)) == [*range(ROWS)]


@pytest.mark.parametrize("remainder", range(4))
def test_a_kill_at_any_write_point_leaves_one_whole_index_after_the_resume(job: JobFolder, remainder: int) -> None:
    pytest.importorskip("usearch")
    (job.path / "m.py").write_text(MODEL)
    job.parquet(files=1, rows=ROWS)
    for path in (job.path / "docs").glob("00[12].parquet"):
        path.unlink()
    words = [sys.executable, DRIVER, str(remainder), "4", "vectors.usearch"]
    done = subprocess.run(words, cwd=job.path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    killed = [int(at) for at in done.stdout.split()]
    assert len(killed) >= 18  # pieces, staging, files, manifest and pointer of the index beside what every job writes
    for at in killed:
        job.check_squares(ROWS, f"out-{at}")
        check_index(job.path / f"out-{at}")
