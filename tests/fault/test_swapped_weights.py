"""A worker that finds other weights than the job began with scores nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from job_runs import JobFolder, children, wait_for

pytestmark = pytest.mark.slow


def booster(path: Path, factor: float) -> None:
    """A model whose answers are as large as the factor says."""
    xgboost = pytest.importorskip("xgboost")
    values = np.linspace(0, 1, 200)[:, None]
    data = xgboost.DMatrix(values, factor * values[:, 0], feature_names=["x"])
    made = path.with_name(f"made-{path.name}")
    xgboost.train({"max_depth": 3, "verbosity": 0}, data, 4).save_model(made)
    made.replace(path)


def test_a_worker_that_finds_other_weights_in_mid_job_is_refused(job: JobFolder) -> None:
    model = job.path / "model.ubj"
    booster(model, 1.0)
    job.parquet(files=1, rows=3000)
    for name in ("001", "002"):
        (job.path / "docs" / f"{name}.parquet").unlink()
    job.options = ["docs", "--model", "model.ubj", "--columns", "x", "--shard-rows", "1"]
    process = job.start()
    wait_for(lambda: list(job.out.glob("part-*")), "a part: its worker has loaded the model")
    booster(model, 1000.0)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 1, told
    assert "has loaded different weights of model.ubj: " in told
    assert "put the same files on every machine" in told
    assert not (job.out / "_SUCCESS").exists()
    column = next(name for name in job.rows()[0] if name != "error")
    assert max(row[column] for row in job.rows()) <= 2.0  # nothing of the other model was committed
