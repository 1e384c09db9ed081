"""What the host does of a job, without a device: rows a second through 0, 1, 2 preparing processes.

MiniLM's tokenizer over Parquet, and a runtime that answers every call at once with vectors of 384 numbers. `worker`
is the processor time of the worker's own process for a row: what a server's interpreter pays for a job on it.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _corpus import documents

from twoshift.batch.device import OwnDevice
from twoshift.batch.inputs import ShardTarget, cut, resolve
from twoshift.batch.messages import Begin, Calibrate, Calibrated, Failed, FromWorker, Score, Scored, WasRead
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, plan_location
from twoshift.batch.result_columns import output_schema
from twoshift.batch.settings import JobSettings
from twoshift.batch.worker import ShardWorker
from twoshift.ports import Columns, Launched, Prepared, RuntimeInfo
from twoshift.runtime.encoder.folder import find_minilm, read_minilm
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows
from twoshift.wiring.blob_stores import blobs_for

WIDTH, SHARD_ROWS, ROW_S = 384, 8192, 1e-5
INFO = RuntimeInfo("none", "none", "none", "gpu: none", "bf16", 256, ("embedding",), live_stream=True)


class Answers:
    """A call that is done."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def wait(self) -> Columns:
        return {"embedding": np.zeros((self._rows, WIDTH), np.float32)}


class AtOnce:
    """A device that takes no time."""

    info = INFO

    def __init__(self) -> None:
        self.row_preparer = TextTokenizer(read_minilm(), True)

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        return self.row_preparer.rows(rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Launched:
        return Answers(sum(len(part.lengths) for part in parts))

    def close(self) -> None:
        pass


class Host:
    """A worker, told what a coordinator would tell it."""

    def __init__(self, plan: Plan, preparers: int) -> None:
        self._plan, self._said, self._changed = plan, list[FromWorker](), threading.Condition()
        settings = JobSettings(inputs=plan.settings.inputs, output=plan.settings.output, model="none", text="body",
                               preparers=preparers)  # fmt: skip
        self.worker = ShardWorker(settings, "here", lambda _: OwnDevice(AtOnce()), blobs_for, self._hear)
        self.worker.start()

    def warm(self, texts: list[str]) -> None:
        self.worker.handle(Calibrate(texts[:128]))
        self.worker.handle(Begin(self._plan.settings.output, ROW_S, "none"))

    def run(self, shards: Sequence[int], at_once: int) -> tuple[float, float]:
        """Seconds, and those of this process's own processor time."""
        left, begun = list(shards), list[int]()
        self._said.clear()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        with self._changed:
            while len(self._done()) < len(shards):
                unread = len(begun) - sum(isinstance(each, WasRead) for each in self._said)
                if left and unread < at_once and len(begun) - len(self._done()) < 2 * at_once:
                    begun.append(left.pop(0))
                    self.worker.handle(Score(begun[-1], begun[-1]))
                else:
                    self._changed.wait()
        return time.monotonic() - began_s, time.process_time() - began_cpu_s

    def _done(self) -> list[FromWorker]:
        assert not (failed := [each for each in self._said if isinstance(each, Failed)]), failed
        return [each for each in self._said if isinstance(each, Scored)]

    def _hear(self, message: FromWorker) -> None:
        with self._changed:
            self._said += [message] if isinstance(message, WasRead | Scored | Failed | Calibrated) else []
            self._changed.notify_all()


def planned(folder: Path, name: str) -> Plan:
    """A plan in its folder."""
    inputs, output = (str(folder / "in.parquet"),), str(folder / name)
    settings = JobSettings(inputs=inputs, output=output, model="none", text="body", keep=("id",))
    files = tuple(resolve(inputs, blobs_for))
    schema = output_schema(pa.schema([pa.field("id", pa.int64())]), {"embedding": pa.list_(pa.float32(), WIDTH)})
    shards = cut(files, blobs_for, ShardTarget(rows=SHARD_ROWS))
    plan = Plan.make(
        settings, PlannedModel("none", "none", "bf16", ("embedding",)), files, shards, schema, RowFigures(ROW_S)
    )
    blobs_for("").create(plan_location(output), msgspec.json.encode(plan))
    return plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--tokens", type=float, default=30, help="mean of a document")
    parser.add_argument("--preparers", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    few = documents(find_minilm() / "tokenizer.json", min(20_000, options.documents), options.tokens, 254)
    texts = [few[k % len(few)] for k in range(options.documents)]
    with tempfile.TemporaryDirectory() as work:
        table = pa.table({"id": np.arange(len(texts)), "body": texts})
        pq.write_table(table, Path(work) / "in.parquet", row_group_size=SHARD_ROWS)
        for count in options.preparers:
            plan = planned(Path(work), f"out{count}")
            host = Host(plan, count)
            host.warm(few)
            host.run([0], 1)  # which starts what is not started yet
            seconds, own_s = host.run(range(1, len(plan.shards)), max(1, count))
            host.worker.close()
            rows = sum(plan.shard_rows(shard) or 0 for shard in range(1, len(plan.shards)))
            shown = f"{rows / seconds:8,.0f} rows/s, worker {own_s / rows * 1e6:5.1f} us a row"
            print(f"{count} preparing processes: {shown}", flush=True)


if __name__ == "__main__":
    main()
