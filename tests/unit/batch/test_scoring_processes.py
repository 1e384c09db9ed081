"""Shards in preparing processes: the same parts as in threads, through bad rows, failing calls, kills and stops."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import preparers as processes_of

from texts_runtime import INFO, SumRuntime, summed
from twoshift.batch.coordinator import Ending
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.inputs import ShardTarget, cut, resolve
from twoshift.batch.job import Job
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import EngineReplica, LiveFleet
from twoshift.batch.messages import Failed, FromWorker, Scored, WasRead
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location
from twoshift.batch.preparing.local_line import LocalPlaces
from twoshift.batch.preparing.messages import Given
from twoshift.batch.preparing.preparers import Preparers
from twoshift.batch.preparing.scoring import ScoringProcesses
from twoshift.batch.result_columns import output_schema
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.scoring import Scoring, ScoringThreads
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.response_lines import LINES
from twoshift.batch.table_rows import TableRows
from twoshift.blobs.local import LocalBlobs
from twoshift.engine import Engine
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import OutOfMemory
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.preparing import PreparersPolicy
from waiting import until

pytestmark = pytest.mark.slow  # each starts processes
ROWS, SHARD_ROWS = 6000, 1000
RESULTS = {"sum": pa.float64(), "wide": pa.list_(pa.float32(), 8)}


def blobs_for(_: str) -> LocalBlobs:
    return LocalBlobs()


class Bench:
    """A plan over texts, an engine, and shards in work."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runtime, self.owner = folder, SumRuntime(), BlockOwner(1)
        self.said = list[FromWorker]()
        self.engine = Engine(self.runtime, CallCost.line(0.0, 1e-7), LaneLimits(max_rows=512))
        self.opened = list[Scoring]()

    def plan(self, texts: list[str | None], output: str = "out", shard_rows: int = SHARD_ROWS) -> Plan:
        table = pa.table({"id": range(len(texts)), "body": pa.array(texts, pa.string())})
        if not (self.folder / "in.parquet").exists():
            pq.write_table(table, self.folder / "in.parquet", row_group_size=shard_rows)
        inputs, out = (str(self.folder / "in.parquet"),), str(self.folder / output)
        settings = JobSettings(inputs=inputs, output=out, model="sums", text="body", keep=("id",))
        files = tuple(resolve(inputs, blobs_for))
        shards = cut(files, blobs_for, ShardTarget(rows=shard_rows))
        schema = output_schema(pa.schema([pa.field("id", pa.int64())]), RESULTS)
        return Plan.make(settings, PlannedModel("sums", "", "fp32", ()), files, shards, schema, RowFigures(1e-5))

    def requests_plan(self, output: str) -> Plan:
        """Over the requests that lie there as in.jsonl."""
        inputs, out = (str(self.folder / "in.jsonl"),), str(self.folder / output)
        settings = JobSettings(
            inputs=inputs, output=out, model="sums", endpoint="/v1/embeddings", output_format="lines"
        )  # fmt: skip
        files = tuple(resolve(inputs, blobs_for))
        shards = cut(files, blobs_for, ShardTarget(rows=SHARD_ROWS))
        return Plan.make(settings, PlannedModel("sums", "", "fp32", ()), files, shards, LINES, RowFigures(1e-5))

    def processes(self, plan: Plan, count: int = 2) -> ScoringProcesses:
        given = Given(self.runtime.row_preparer, self.runtime.info, 0, plan, blobs_for, "here")
        asked = Preparers(LocalPlaces())
        asked.policy = PreparersPolicy(count, is_asked=True)
        made = ScoringProcesses(given, self.engine, self.owner, asked, self.said.append)
        assert made.at_once == count
        self.opened.append(made)
        return made

    def threads(self, plan: Plan) -> ScoringThreads:
        made = ScoringThreads(ShardScorer(self.engine, plan, blobs_for, "here", self.owner), self.said.append)
        self.opened.append(made)
        return made

    def all_scored(self, scoring: Scoring, plan: Plan) -> None:
        for shard in range(len(plan.shards)):
            scoring.begin(100 + shard, shard)
        until(lambda: len(self.of(Scored, Failed)) == len(plan.shards))
        assert self.of(Failed) == []

    def of(self, *kinds: type[Any]) -> list[Any]:
        return [each for each in list(self.said) if isinstance(each, kinds)]

    def close(self) -> None:
        self.runtime.gate.set()
        for each in self.opened:
            each.close()
        self.engine.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def job_of(folder: Path, runtime: SumRuntime, rows: int, **more: Any) -> Any:
    """The job's end, in the lane of an engine of this process."""
    table = pa.table({"id": range(rows), "body": pa.array(texts(rows), pa.string())})
    pq.write_table(table, folder / "in.parquet")
    inputs, output = (str(folder / "in.parquet"),), str(folder / "out")
    settings = JobSettings(inputs=inputs, output=output, model="sums", text="body", keep=("id",), **more)
    with Engine(runtime, CallCost.line(0.0, 1e-7), LaneLimits(slo_s=0.5, max_rows=512)) as engine:
        replicas = [EngineReplica(engine)]
        lane = JobOnFleet(settings, LiveFleet(lambda: replicas, list))
        return Job(settings, blobs_for, EnginePool(settings, lane, blobs_for), lane).run(lambda _: None, lambda _: None)


def texts(count: int = ROWS) -> list[str | None]:
    chance = np.random.default_rng(1)
    return ["".join(map(chr, chance.integers(97, 122, chance.integers(1, 60)))) for _ in range(count)]


def rows(plan: Plan, shard: int) -> list[dict[str, Any]]:
    return pq.read_table(part_location(plan, shard)).to_pylist()


def test_parts_hold_what_those_of_threads_hold(bench: Bench) -> None:
    given = texts()
    given[3], given[4], given[2500] = None, "! bad", "! bad, too"
    in_threads, in_processes = bench.plan(given, "threads"), bench.plan(given, "processes")
    bench.all_scored(bench.threads(in_threads), in_threads)
    bench.said.clear()
    bench.all_scored(bench.processes(in_processes), in_processes)
    for shard in range(len(in_threads.shards)):
        assert rows(in_processes, shard) == rows(in_threads, shard)
    first = rows(in_processes, 0)
    assert [row["id"] for row in first] == list(range(SHARD_ROWS))
    assert first[5]["sum"] == summed(str(given[5]))
    assert first[3]["error"].endswith("row 4: the text is null")
    assert "a good text" in first[4]["error"]
    assert sum(each.stats.errors for each in bench.of(Scored)) == 3
    assert sum(each.stats.device_s for each in bench.of(Scored)) > 0
    assert len(bench.of(WasRead)) == len(in_processes.shards)


def test_a_device_that_packs_rows_begins_with_the_first_few(bench: Bench) -> None:
    plan = bench.plan(texts(5000), shard_rows=5000)

    def windows(packs: bool) -> list[int]:
        bench.runtime.info = replace(INFO, live_stream=packs)
        table = TableRows(bench.engine, plan, blobs_for)
        return [window.batch.num_rows for window in table.windows(0, threading.Event())]

    assert windows(packs=True) == [256, 512, 1024, 2048, 1160]
    assert windows(packs=False) == [2048, 2048, 904]


def test_rows_that_fail_on_the_device_keep_their_place_and_their_error(bench: Bench) -> None:
    given = texts(2000)
    poison = summed(str(given[1234]))

    def refuse(sums: Any) -> None:
        if poison in sums:
            raise ValueError("a poisoned call")

    bench.runtime.before = refuse
    plan = bench.plan(given)
    bench.all_scored(bench.processes(plan), plan)
    failed = [row for shard in (0, 1) for row in rows(plan, shard) if row["error"]]
    assert {summed(str(given[row["id"]])) for row in failed} == {poison}
    assert all("ValueError: a poisoned call" in row["error"] for row in failed)


def test_calls_that_run_out_of_memory_are_split_as_in_threads(bench: Bench) -> None:
    def refuse(sums: Any) -> None:
        if len(sums) > 100:
            raise OutOfMemory("100 rows fit")

    bench.runtime.before = refuse
    plan = bench.plan(texts(2000))
    bench.all_scored(bench.processes(plan), plan)
    assert bench.engine.stats().out_of_memory
    assert all(row["error"] is None for shard in (0, 1) for row in rows(plan, shard))


def test_a_killed_process_loses_its_own_shards_and_the_next_takes_them(bench: Bench) -> None:
    plan = bench.plan(texts())
    scoring = bench.processes(plan)
    bench.runtime.gate.clear()
    scoring.begin(1, 0)
    scoring.begin(2, 1)
    until(lambda: len(bench.of(WasRead)) == 2)
    assert scoring.preparers == 2
    os.kill(processes_of(os.getpid())[0], signal.SIGKILL)
    until(lambda: bench.of(Failed))
    failed = bench.of(Failed)
    assert len(failed) == 1
    assert failed[0].message == "the preparing process was killed by SIGKILL"
    assert not failed[0].given_up
    bench.runtime.gate.set()
    scoring.begin(3, failed[0].lease - 1)
    until(lambda: len(bench.of(Scored)) == 2)
    assert {row["id"] for shard in (0, 1) for row in rows(plan, shard)} == set(range(2 * SHARD_ROWS))


def test_requests_have_the_lines_that_threads_write_them(bench: Bench) -> None:
    bench.runtime.info, bench.runtime.names = replace(INFO, outputs=("embedding",)), ("sum", "embedding")
    inputs = [["ab", "c"], "d", "! bad", ["e"] * 3]
    lines = [
        {"custom_id": f"r{at}", "method": "POST", "url": "/v1/embeddings", "body": {"model": "sums", "input": each}}
        for at, each in enumerate(inputs)
    ]
    (bench.folder / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = []
    for output, scored in (("threads", bench.threads), ("processes", bench.processes)):
        plan = bench.requests_plan(output)
        bench.said.clear()
        scoring = scored(plan)
        bench.all_scored(scoring, plan)
        assert scoring.rows_done(by_model=0) == len(inputs)
        found.append((bench.folder / output / "part-000000.lines").read_bytes())
        assert bench.of(Scored)[0].stats.errors == 1
    assert b"a good text" in found[0]
    assert _bodies(found[0]) == _bodies(found[1])


def _bodies(part: bytes) -> list[Any]:
    """Of the replies, without what is made of the output's name."""
    lines = [json.loads(line) for line in part.split(b"\n") if line.startswith(b'{"id"')]
    assert lines
    return [(line["custom_id"], line["response"]["status_code"], line["response"]["body"]) for line in lines]


def test_what_is_given_up_is_neither_published_nor_run(bench: Bench) -> None:
    plan = bench.plan(texts())
    scoring = bench.processes(plan)
    bench.runtime.gate.clear()
    scoring.begin(1, 0)
    scoring.begin(2, 1)
    until(lambda: len(bench.of(WasRead)) == 2)
    scoring.give_up(1)
    until(lambda: bench.of(Failed))
    bench.runtime.gate.set()
    until(lambda: bench.of(Scored))
    assert [(each.lease, each.given_up) for each in bench.of(Failed)] == [(1, True)]
    assert not Path(part_location(plan, 0)).exists()
    assert Path(part_location(plan, 1)).exists()


def test_shards_of_an_engine_that_drains_are_given_back(bench: Bench) -> None:
    plan = bench.plan(texts())
    scoring = bench.processes(plan, 1)
    bench.engine.hold(bench.owner)
    scoring.begin(1, 0)
    until(lambda: bench.of(WasRead))
    bench.engine.drain(0.0)
    until(lambda: bench.of(Failed))
    assert bench.of(Failed)[0].given_up
    scoring.begin(2, 0)  # and the next one, too, as one to come back with
    until(lambda: len(bench.of(Failed)) == 2)
    assert bench.of(Failed)[1].given_up or bench.of(Failed)[1].delayed


def test_rows_that_are_held_back_wait_and_then_run(bench: Bench) -> None:
    plan = bench.plan(texts(2000))
    scoring = bench.processes(plan)
    bench.engine.hold(bench.owner)
    for shard in (0, 1):
        scoring.begin(shard, shard)
    until(lambda: len(bench.of(WasRead)) == 2)
    assert bench.runtime.rows == 0
    bench.engine.release(bench.owner)
    until(lambda: len(bench.of(Scored)) == 2)
    assert bench.owner.use.rows == 2000


def test_closing_leaves_no_process_and_no_part(bench: Bench) -> None:
    plan = bench.plan(texts())
    scoring = bench.processes(plan)
    bench.runtime.gate.clear()
    scoring.begin(1, 0)
    until(lambda: bench.of(WasRead))
    bench.opened.clear()
    scoring.close()
    assert scoring.preparers == 0
    assert processes_of(os.getpid()) == []
    assert not Path(part_location(plan, 0)).exists()


@pytest.mark.parametrize(("rows", "preparers"), [(30_000, 1), (2000, 0)])
def test_a_device_that_is_no_cpu_has_processes_for_a_job_that_is_worth_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, preparers: int
) -> None:
    monkeypatch.setattr("twoshift.batch.preparing.local_line.usable_threads", lambda: 3)
    runtime = SumRuntime()
    result = job_of(tmp_path, runtime, rows)
    assert result.ending is Ending.DONE
    assert [run.preparers for run in result.summary.runs] == [preparers]
    table = pq.read_table(sorted((tmp_path / "out").glob("part-*.parquet")))
    assert table["id"].to_pylist() == list(range(rows))
    assert table["sum"].to_pylist() == [summed(str(text)) for text in texts(rows)]
    assert result.summary.harvested_s > 0
    until(lambda: not processes_of(os.getpid()))


def test_a_model_on_the_cpu_has_none(tmp_path: Path) -> None:
    runtime = SumRuntime()
    runtime.info = replace(INFO, device="cpu: some, 2 threads")
    result = job_of(tmp_path, runtime, 20_000)
    assert [run.preparers for run in result.summary.runs] == [0]
