"""Live queries and a batch job on one device: live alone, batch alone, and both, by several ways to share it.

On a CPU: MiniLM, an SLO of 100 ms, live queries at 30 % of what the device can answer. On a GPU: BERT-base in bf16,
packed, 50 queries a second. Arrivals are by the clock, and latency counts from the scheduled arrival. All in one run,
because the speed of a machine changes: background counts as a share of batch alone right before it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _colocated import Apart, OneEngine, Strict, Way
from _corpus import documents

from twoshift import report
from twoshift.engine.example_rows import made_texts
from twoshift.engine.measure import MeasureLimits, measure_profile
from twoshift.policy.cost import CallCost
from twoshift.policy.fit import fit_call_cost
from twoshift.ports import Prepared, Runtime

QUERY = " ".join(["river"] * 14)  # 16 tokens
SETTLE_S = 1.0


@dataclass(slots=True)
class Setting:
    """A device and what is asked of it."""

    name: str
    open: Callable[[], Runtime]
    slo_s: float
    live_per_s: float | None  # None: 30 % of the capacity
    call_rows: int  # of the background calls of those who do not derive them
    block_rows: int
    texts: list[str]
    asked_share: float
    asked_p99_s: float


@dataclass(slots=True)
class Live:
    """Queries at random moments by the clock; latencies by when they were due."""

    way: Way
    rows: Prepared
    per_s: float
    due_s: list[float] = field(default_factory=list[float])
    took_s: list[float] = field(default_factory=list[float])

    def run(self, seconds: float) -> None:
        """Until then; every answer is waited for."""
        rng, at_s = np.random.default_rng(len(self.took_s)), time.perf_counter()
        until_s, waiting = at_s + seconds, list[Any]()
        while (at_s := at_s + rng.exponential(1 / self.per_s)) < until_s:
            time.sleep(max(0.0, at_s - time.perf_counter()))
            due_s = at_s
            future = self.way.ask(self.rows)
            future.add_done_callback(lambda _, due_s=due_s: self._ended(due_s))
            waiting.append(future)
        for future in waiting:
            future.result(30)

    def _ended(self, due_s: float) -> None:
        self.due_s.append(due_s)
        self.took_s.append(time.perf_counter() - due_s)


@dataclass(frozen=True, slots=True)
class Shared:
    """What a way to share gave."""

    name: str
    live_alone_ms: tuple[float, float]
    live_ms: tuple[float, float]
    alone_per_s: float
    background_per_s: float

    @property
    def share(self) -> float:
        """Of the job alone."""
        return self.background_per_s / self.alone_per_s


def percentiles(took_s: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    return tuple(1e3 * float(each) for each in np.percentile(took_s, [50, 99]))  # type: ignore[return-value]


def background_rate(way: Way, seconds: float, beside: Callable[[], None] = lambda: None) -> float:
    """Rows a second of the job, while `beside` runs."""
    way.background(True)
    time.sleep(SETTLE_S)
    before, began_s = way.rows_done(), time.perf_counter()
    thread = threading.Thread(target=beside)
    thread.start()
    time.sleep(seconds)
    rate = (way.rows_done() - before) / (time.perf_counter() - began_s)
    thread.join()
    way.background(False)
    return rate


def measured(name: str, way: Way, rows: Prepared, per_s: float, seconds: float) -> Shared:
    """Batch alone, live alone, both; then the way is closed."""
    try:
        alone_per_s = background_rate(way, seconds)
        alone, both = Live(way, rows, per_s), Live(way, rows, per_s)
        alone.run(seconds)
        background_per_s = background_rate(way, seconds, lambda: both.run(seconds))
        return Shared(name, percentiles(alone.took_s), percentiles(both.took_s), alone_per_s, background_per_s)
    finally:
        way.close()


def capacity_per_s(runtime: Runtime, rows: Prepared, slo_s: float, cost: CallCost) -> float:
    """Live queries a second that calls inside half the objective can answer, back to back."""
    most = next(n for n in range(256, 0, -1) if n == 1 or cost.seconds(_size(rows, n)) <= slo_s / 2)
    began_s, calls = time.perf_counter(), 0
    while time.perf_counter() - began_s < 2.0:
        runtime.launch([rows] * most, live=True).wait()
        calls += 1
    return most * calls / (time.perf_counter() - began_s)


def _size(rows: Prepared, count: int) -> Any:
    from twoshift.types import CallSize

    return CallSize.uniform(count, int(rows.lengths[0]))


def separate_job(count: Any, on: Any, opened: Callable[[], Runtime], texts: list[str], call_rows: int) -> None:
    """The job in a process of its own: large calls, back to back."""
    runtime = opened()
    calls = [runtime.prepare(texts[at : at + call_rows]) for at in range(0, len(texts), call_rows)]
    runtime.launch([calls[0]]).wait()
    count.value = 1
    while True:
        on.wait()
        for call in calls:
            if not on.is_set():
                break
            runtime.launch([call]).wait()
            count.value += len(call.lengths)


def timeline(way: Way, rows: Prepared, per_s: float, path: Path, slo_s: float, seconds: float) -> None:
    """A chart of live latency as a job starts and stops."""
    live = Live(way, rows, per_s)
    thread = threading.Thread(target=live.run, args=(3 * seconds,))
    began_s = time.perf_counter()
    thread.start()
    time.sleep(seconds)
    way.background(True)
    time.sleep(seconds)
    way.background(False)
    thread.join()
    at = [due_s - began_s for due_s in live.due_s]
    order = np.argsort(at)
    series = report.Series("live request", [at[k] for k in order], [1e3 * live.took_s[k] for k in order])
    chart = report.line_chart(
        f"Live latency; the job runs from {seconds:g} to {2 * seconds:g} s", [series],
        report.Axis("time", kind="seconds"), report.Axis("ms", lo=0),
    )  # fmt: skip
    section = report.Section(f"SLO {1e3 * slo_s:g} ms", [chart])
    path.write_text(report.page("A job beside live requests", "bench/colocate.py", [section], ""), encoding="utf-8")


def cpu_setting() -> Setting:
    from twoshift.runtime.encoder.folder import find_minilm

    texts = documents(find_minilm() / "tokenizer.json", 2_000, 65, 510)
    return Setting("MiniLM, CPU", open_minilm, 0.1, None, 32, 512, texts, 0.85, 0.1)


def open_minilm() -> Runtime:
    from twoshift.wiring.model_loading import load_model

    return load_model("minilm", device="cpu")


def gpu_setting(folder: Path) -> Setting:
    from functools import partial

    from encoder_gpu import make_folder

    from twoshift.runtime.encoder.folder import find_minilm

    tokenizer = find_minilm() / "tokenizer.json"
    model = make_folder(folder / "model", "bert-base", tokenizer)
    texts = documents(tokenizer, 20_000, 90, 510)
    return Setting("BERT-base, GPU", partial(open_folder, str(model)), 0.01, 50.0, 512, 2_048, texts, 0.9, 0.005)


def open_folder(path: str) -> Runtime:
    from twoshift.wiring.model_loading import load_model

    return load_model(path, device="cuda")


def compared(setting: Setting, seconds: float, page: Path | None) -> None:
    """The table of one device."""
    runtime = setting.open()
    made = made_texts(runtime, 64)
    assert made is not None
    cost = fit_call_cost(measure_profile(runtime, made.make, made.lengths, MeasureLimits(5.0))).cost
    query = runtime.prepare([QUERY])
    capacity = capacity_per_s(runtime, query, setting.slo_s, cost)
    per_s = setting.live_per_s or 0.3 * capacity
    sizes = range(0, len(setting.texts), setting.block_rows)
    blocks = [ordered(runtime, setting.texts[at : at + setting.block_rows]) for at in sizes]
    calls = [block.slice(at, min(len(block.lengths), at + setting.call_rows)) for block in blocks
             for at in range(0, len(block.lengths), setting.call_rows)]  # fmt: skip
    print(f"{setting.name}, SLO {1e3 * setting.slo_s:g} ms: {per_s:,.0f} live queries/s of {capacity:,.0f}", flush=True)

    def ours() -> Way:
        return OneEngine(runtime, cost, setting.slo_s, blocks)

    ways: list[tuple[str, Callable[[], Way]]] = [
        ("Twoshift", ours),
        ("strict priority, nobody rides", lambda: Strict(runtime, calls)),
        ("the same with a window of 5 ms", lambda: Strict(runtime, calls, 0.005)),
        ("two processes", lambda: Apart(ours(), separate_job, setting.open, setting.texts[:4_000], setting.call_rows)),
    ]
    found = [show(measured(name, way(), query, per_s, seconds), per_s / capacity) for name, way in ways]
    own = found[0]
    expected = own.share / (1 - (per_s / capacity if setting.live_per_s is None else 0.0))
    print(f"background of what live leaves: {expected:.3f} (at least {setting.asked_share})")
    print(f"live p99: {own.live_ms[1]:.2f} ms (at most {1e3 * setting.asked_p99_s:g})")
    if page is not None:
        timeline(way := ours(), query, per_s, page, setting.slo_s, max(5.0, seconds / 2))
        way.close()
    runtime.close()


def ordered(runtime: Runtime, texts: list[str]) -> Prepared:
    """As a job hands rows over: by length where calls are padded."""
    rows = runtime.prepare(texts)
    return rows if runtime.info.live_stream else rows.take(np.argsort(-rows.lengths, kind="stable"))


def show(shared: Shared, live_share: float) -> Shared:
    """A line of the table."""
    print(
        f"  {shared.name:32} live p50 {shared.live_ms[0]:7.2f} p99 {shared.live_ms[1]:8.2f} ms (alone "
        f"{shared.live_alone_ms[0]:.2f}, {shared.live_alone_ms[1]:.2f}); job {shared.background_per_s:9,.1f} rows/s = "
        f"{shared.share:.2f} of alone (live takes {live_share:.2f})",
        flush=True,
    )
    return shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--chart", type=Path, help="also write latency over time as an HTML page")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as work:
        setting = gpu_setting(Path(work)) if _has_gpu() else cpu_setting()
        compared(setting, options.seconds, options.chart)


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
