"""Preparing processes that may have to wait for room, or are of no use where they are; and how far ahead they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_scoring_processes import Bench, rows, texts

from texts_runtime import CharacterPreparer
from twoshift.batch.messages import Failed, Scored
from twoshift.batch.preparing.fingerprint import rows_fingerprint
from twoshift.batch.preparing.line import Unfit
from twoshift.batch.preparing.local_line import LocalLine
from twoshift.batch.preparing.messages import Given
from twoshift.batch.preparing.object_store import StoredBlocks
from twoshift.batch.preparing.preparers import NOT_RUNNING, Preparers
from twoshift.batch.preparing.scoring import ScoringProcesses
from twoshift.policy.preparing import PreparersPolicy
from twoshift.runtime.encoder.tokens import TokenRows
from twoshift.wiring.blob_stores import blobs_for
from waiting import until


class Cluster:
    """Places for processes of this machine, which have room when a test says so."""

    is_at_once = False

    def __init__(self) -> None:
        self.room, self.noted, self.lines = threading.Event(), list[str](), list[Line]()
        self.problem, self.late_problem = "", ""

    def policy(self, on_cpu: bool) -> PreparersPolicy:
        return PreparersPolicy(2, is_asked=True)

    def start(self) -> Line:
        self.lines.append(Line(self))
        return self.lines[-1]

    def note(self, told: str) -> None:
        self.noted.append(told)


class Line(LocalLine):
    """To a process that waits for room."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster, self._killed = cluster, threading.Event()

    def wait_for_room(self) -> None:
        until(lambda: self._cluster.room.is_set() or self._killed.is_set())
        if self._killed.is_set():
            raise ConnectionError("killed")
        if self._cluster.problem:
            raise Unfit(self._cluster.problem)

    def begin(self, given: bytes) -> None:
        if self._cluster.late_problem:
            raise Unfit(self._cluster.late_problem)
        super().begin(given)

    def kill(self) -> None:
        self._killed.set()
        super().kill()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def begun(bench: Bench, cluster: Cluster) -> tuple[ScoringProcesses, Any]:
    plan = bench.plan(texts())
    preparers = Preparers(cluster)
    preparers.policy = cluster.policy(on_cpu=True)
    given = Given(bench.runtime.row_preparer, bench.runtime.info, 0, plan, blobs_for, "here")
    made = ScoringProcesses(given, bench.engine, bench.owner, preparers, bench.said.append)
    bench.opened.append(made)
    return made, plan


@pytest.mark.slow
def test_threads_do_the_shards_until_a_process_has_room(bench: Bench) -> None:
    cluster = Cluster()
    scoring, plan = begun(bench, cluster)
    assert scoring.at_once == 1
    scoring.begin(1, 0)
    until(lambda: bench.of(Scored))
    assert scoring.preparers == 0
    assert scoring.rows_done(by_model=0) == 0  # of a table the model's own rows are counted
    cluster.room.set()
    until(lambda: scoring.at_once == 2)
    scoring.begin(2, 1)
    scoring.begin(3, 2)
    until(lambda: len(bench.of(Scored)) == 3)
    assert scoring.preparers == 2
    found = [row["id"] for shard in range(3) for row in rows(plan, shard)]
    assert found == list(range(len(found)))


def test_a_shard_that_threads_have_can_be_given_up(bench: Bench) -> None:
    scoring, _ = begun(bench, Cluster())
    bench.runtime.gate.clear()
    scoring.begin(1, 0)
    scoring.give_up(1)
    until(lambda: bench.of(Failed))
    bench.runtime.gate.set()
    assert [(each.lease, each.given_up) for each in bench.of(Failed)] == [(1, True)]


def test_who_waits_for_room_for_long_is_told_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.batch.preparing.preparers._ROOM_S", 0.0)
    cluster = Cluster()
    scoring, _ = begun(bench, cluster)
    until(lambda: scoring.at_once and cluster.noted)
    assert set(cluster.noted) == {NOT_RUNNING}


def test_closing_ends_those_that_wait_for_room(bench: Bench) -> None:
    cluster = Cluster()
    scoring, _ = begun(bench, cluster)
    assert scoring.at_once == 1
    bench.opened.clear()
    scoring.close()
    assert len(cluster.lines) == 2


@pytest.mark.slow
def test_places_where_nothing_can_be_done_are_told_of_and_not_tried_for_ever(bench: Bench) -> None:
    cluster = Cluster()
    cluster.problem = "on a node cannot run there"
    cluster.room.set()
    scoring, _ = begun(bench, cluster)
    until(lambda: scoring.at_once == 1 and len(cluster.noted) >= 3)
    tried = len(cluster.lines)
    scoring.begin(1, 0)
    until(lambda: bench.of(Scored))
    assert scoring.at_once == 1
    assert set(cluster.noted) == {"A preparing process on a node cannot run there"}
    assert len(cluster.lines) == tried <= 4


@pytest.mark.slow
def test_a_process_that_is_of_no_use_gives_its_shard_back_and_no_shard_is_blamed(bench: Bench) -> None:
    cluster = Cluster()
    cluster.late_problem = "prepares rows differently"
    cluster.room.set()
    scoring, _ = begun(bench, cluster)
    until(lambda: scoring.at_once == 2)
    scoring.begin(1, 0)
    until(lambda: bench.of(Failed))
    assert [(each.lease, each.given_up) for each in bench.of(Failed)] == [(1, True)]
    assert cluster.noted == ["A preparing process prepares rows differently"]


class Store:
    """Ray's, as far as blocks use it."""

    class ObjectRef:
        def __init__(self, value: Any) -> None:
            self.value = value

    def put(self, value: Any) -> Any:
        return Store.ObjectRef(value)

    def get(self, ref: Any) -> Any:
        return ref.value


def test_rows_wait_while_too_many_bytes_are_ahead_of_the_device() -> None:
    blocks, put = StoredBlocks(Store(), most_bytes=100), list[Any]()
    first = blocks.put({"ids": np.zeros(60, np.int8)}, result_bytes=20)
    waiting = threading.Thread(target=lambda: put.append(blocks.put({"ids": np.zeros(30, np.int8)}, 0)))
    waiting.start()
    assert put == []
    blocks.give_back(first)
    waiting.join()
    assert len(blocks.results(put[0].arrays)["ids"]) == 30


def test_a_block_that_is_larger_than_all_that_may_be_ahead_goes_alone() -> None:
    blocks = StoredBlocks(Store(), most_bytes=100)
    blocks.give_back(blocks.put({"ids": np.zeros(1000, np.int8)}, result_bytes=20))
    assert blocks.results({}) == {}
    blocks.put({"ids": np.zeros(100, np.int8)}, 0)


class Lower(CharacterPreparer):
    """As a library of another version might do it."""

    def prepare(self, rows: Any) -> TokenRows:
        return super().prepare([row.lower() for row in rows])


def test_whoever_prepares_other_rows_has_another_fingerprint() -> None:
    assert rows_fingerprint(CharacterPreparer()) == rows_fingerprint(CharacterPreparer())
    assert rows_fingerprint(CharacterPreparer()) != rows_fingerprint(Lower())


class NoRoom(Cluster):
    """A machine that starts no process."""

    is_at_once = True

    def start(self) -> Line:
        raise BlockingIOError("no more processes")


def test_where_no_process_can_be_started_threads_do_the_work(bench: Bench) -> None:
    machine = NoRoom()
    preparers = Preparers(machine)
    for _ in range(3):
        child = preparers.take()
        assert child is not None
        until(lambda each=child: bool(each.unfit))
        preparers.was_unfit(child)
        child.begin(None)
    assert (preparers.take(), preparers.can_take) == (None, 0)
    assert machine.noted == ["A preparing process could not be started: no more processes"] * 3
