"""One row a request of tabular models over HTTP, with threads as measured and with all threads in every call.

One client and eight, on a machine that does nothing else and beside two processes that take a core each. The two
servers take turns. The ratio of the p99s is what counts: all threads over as measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _load import Plan, Report, post, run_load
from _servers import BUILD, first_reply, forget_profiles, free_port, running

WIDTH, BUSY = 32, 2
READY = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
DTYPES = {"xgboost": "FP32", "logistic": "FP64", "forest": "FP64"}


def make_models(folder: Path) -> dict[str, Path]:
    """200 trees of depth 6, a logistic regression, and 100 trees that were trained with all cores."""
    import skops.io
    import xgboost
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    folder.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(0).normal(size=(5000, WIDTH))
    target = (rows[:, 0] * rows[:, 1] + rows[:, 2] > 0).astype(int)
    options = {"objective": "binary:logistic", "max_depth": 6}
    made = {"xgboost": folder / "m.ubj", "logistic": folder / "logistic.skops", "forest": folder / "forest.skops"}
    xgboost.train(options, xgboost.DMatrix(rows.astype(np.float32), target), 200).save_model(made["xgboost"])
    estimators: dict[str, Any] = {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(100, max_depth=12, n_jobs=-1, random_state=0),
    }
    for name, estimator in estimators.items():
        skops.io.dump(estimator.fit(rows, target), made[name])
    return made


@contextlib.contextmanager
def beside(processes: int) -> Iterator[None]:
    """Processes that take a core each."""
    words = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(words) for _ in range(processes)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def served(name: str, path: Path, threads: int | None, seconds: float) -> dict[tuple[int, int], Report]:
    """By processes beside it, and clients."""
    port = free_port()
    said = [] if threads is None else ["--threads", str(threads)]
    words = [sys.executable, "-m", "twoshift", "serve", str(path), "--name", name, "--port", str(port), *said]
    row = np.random.default_rng(5).normal(size=WIDTH).round(3).tolist()
    given = {"inputs": [{"name": "features", "shape": [1, WIDTH], "datatype": DTYPES[name], "data": row}]}
    request = post(f"/v2/models/{name}/infer", json.dumps(given).encode())
    found: dict[tuple[int, int], Report] = {}
    with running(f"threads {name}", [*words, "--slo-ms", "1000", "--trust-pickle"]) as pid:
        first_reply(f"threads {name}", pid, port, READY)
        for busy in (0, BUSY):
            with beside(busy):
                for clients in (1, 8):
                    plan = Plan(port=port, requests=[request], clients=clients, seconds=seconds, warm_s=0.5)
                    found[busy, clients] = run_load(plan)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--models", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    options = parser.parse_args()
    forget_profiles()
    made, cores = make_models(BUILD / "threads"), len(os.sched_getaffinity(0))
    for name in options.models:
        every = served(name, made[name], cores, options.seconds)
        measured = served(name, made[name], None, options.seconds)
        for (busy, clients), chosen in measured.items():
            fixed = every[busy, clients]
            print(
                f"{name}, {clients} clients, {busy} busy processes beside: p50 {chosen.ok.p50_ms:.2f} ms, "
                f"p99 {chosen.ok.p99_ms:.2f}, {chosen.ok_per_s:,.0f}/s{chosen.failures}; "
                f"with {cores} threads p50 {fixed.ok.p50_ms:.2f}, p99 {fixed.ok.p99_ms:.2f}, "
                f"{fixed.ok_per_s:,.0f}/s{fixed.failures}: p99 {fixed.ok.p99_ms / chosen.ok.p99_ms:.1f} x",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
