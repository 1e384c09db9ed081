"""The coordinator under a virtual clock, with workers that do what a test says."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from twoshift.batch.coordinator import Coordinator, Ending
from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.messages import Begin, Failed, GiveUp, Ready, Score, Scored, Unusable, WasRead, WorkerHeartbeat
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, PlannedModel, RowFigures
from twoshift.batch.pool import Died
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.run_start import EarlierRuns, StartedWorkers
from twoshift.batch.settings import JobSettings
from twoshift.errors import Broken, TryLater
from twoshift.ports import RuntimeInfo

ROWS = 10
INFO = RuntimeInfo("m", "sum", "fake", "cpu", "fp32", 1, ("y",))
Replies = list[tuple[float, Any]]


def plan_of(shards: int, **settings: Any) -> Plan:
    made = JobSettings(inputs=("in",), output="out", model="m", **settings)
    file = InputFile("in", 100, "1", "parquet")
    pieces = tuple((Piece(0, ROWS * k, ROWS * (k + 1), ROWS, 100),) for k in range(shards))
    schema = pa.schema([pa.field("y", pa.float64()), pa.field("error", pa.string())])
    return Plan.make(made, PlannedModel.of(INFO), (file,), pieces, schema, RowFigures(0.1))


def stats(shard: int, errors: int = 0) -> PartStats:
    return PartStats(shard, ROWS, errors, ROWS, 0, 1.0, 1.0, "w", {"bad": errors} if errors else {})


def done(lease: int, shard: int, after_s: float = 1.0, errors: int = 0) -> Replies:
    return [(after_s / 2, WasRead(lease)), (after_s, Scored(lease, stats(shard, errors), published=True))]


@dataclass
class FakePool:
    """Workers are numbers; `scores` says what one replies to a shard, and when."""

    scores: Callable[[int, int, int], Replies]  # worker, lease, shard
    load_s: float = 1.0
    loads: Callable[[int], Any] = lambda _: Ready(INFO)
    now_s: float = 0.0
    sent: list[tuple[int, Any]] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    _events: list[tuple[float, int, int, Any]] = field(default_factory=list)
    _order: Any = field(default_factory=itertools.count)
    _numbers: Any = field(default_factory=itertools.count)

    def reply(self, worker: int, after_s: float, message: Any) -> None:
        heapq.heappush(self._events, (self.now_s + after_s, next(self._order), worker, message))

    def start(self) -> int:
        number = next(self._numbers)
        self.reply(number, self.load_s, self.loads(number))
        return number

    def send(self, worker: int, message: Any) -> None:
        self.sent.append((worker, message))
        if isinstance(message, Score):
            for after_s, reply in self.scores(worker, message.lease, message.shard):
                self.reply(worker, after_s, reply)

    def poll(self, timeout_s: float) -> list[tuple[int, Any]]:
        if not self._events or self._events[0][0] > self.now_s + timeout_s:
            self.now_s += timeout_s
            return []
        self.now_s, _, worker, message = heapq.heappop(self._events)
        self.now_s = max(self.now_s, 0.0)
        if worker in self.gone:
            return []
        if isinstance(message, Died):
            self.gone.add(worker)
        return [(worker, message)]

    def kill(self, worker: int) -> None:
        self.killed.append(worker)
        self.reply(worker, 0.0, Died("killed by SIGKILL"))

    def close(self, grace_s: float) -> None:
        return

    def scored(self) -> list[int]:
        return [message.shard for _, message in self.sent if isinstance(message, Score)]


def run(
    pool: FakePool, plan: Plan, workers: int = 1, most_s: float = 5000.0, **more: Any
) -> tuple[Ending, Coordinator]:
    started = dict.fromkeys((pool.start() for _ in range(workers)), False)
    earlier = EarlierRuns(more.get("committed", set()), more.get("before", ()), more.get("counted"))
    coordinator = Coordinator(
        plan, earlier, pool, StartedWorkers(started, load_s=more.get("load_s", 0.0)), lambda: pool.now_s
    )
    act = more.get("act", lambda _coordinator, _now: None)

    def report(now: JobSnapshot) -> None:
        assert pool.now_s < most_s, "it does not end"
        act(coordinator, now)

    return coordinator.run(report), coordinator


def test_every_shard_is_leased_once_where_nothing_goes_wrong() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard))
    ending, coordinator = run(pool, plan_of(20), workers=3)
    assert ending is Ending.DONE
    assert sorted(pool.scored()) == list(range(20))
    assert coordinator.snapshot().rows == 200
    assert coordinator.snapshot().share == 1


def test_committed_shards_are_not_done_again() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard))
    ending, _ = run(pool, plan_of(5), committed={0, 3})
    assert ending is Ending.DONE
    assert sorted(pool.scored()) == [1, 2, 4]


def test_a_worker_has_the_next_shard_while_the_last_rows_of_one_are_out() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, after_s=10.0))
    run(pool, plan_of(4))
    # Each is read after 5 s, so that four take 10 s and three more halves
    assert pool.now_s < 27


def test_every_worker_is_asked_for_the_model_of_the_plan() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard))
    run(pool, plan_of(10), workers=3)
    assert {(worker, said.checksum) for worker, said in pool.sent if isinstance(said, Begin)} == {
        (worker, INFO.checksum) for worker in range(3)
    }


def test_late_workers_join_in() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, after_s=5.0))
    pool.load_s = 0.0
    first = pool.start()
    assert [worker for worker, _ in pool.poll(0.0)] == [first]  # it was ready before the coordinator began
    pool.load_s = 60.0
    late = pool.start()
    coordinator = Coordinator(
        plan_of(40), EarlierRuns(), pool, StartedWorkers({first: True, late: False}), lambda: pool.now_s
    )
    assert coordinator.run(lambda _: None) is Ending.DONE
    assert {worker for worker, message in pool.sent if isinstance(message, Score)} == {first, late}
    assert [worker for worker, message in pool.sent if isinstance(message, Begin)].count(late) == 1


def test_a_dead_worker_is_replaced_and_its_shards_done_again() -> None:
    def scores(worker: int, lease: int, shard: int) -> Replies:
        return [(0.5, Died("killed by SIGKILL"))] if worker == 0 else done(lease, shard)

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(6))
    assert ending is Ending.DONE
    assert coordinator.log.deaths == ["killed by SIGKILL"]
    assert sorted(set(pool.scored())) == list(range(6))


def test_rows_that_a_worker_takes_to_its_end_are_not_counted_twice() -> None:
    workers: list[int] = []

    def scores(worker: int, lease: int, shard: int) -> Replies:
        workers.append(worker)
        if worker == workers[0]:
            return [
                (0.1, WasRead(lease)),
                (0.5, WorkerHeartbeat(8, 0.5, 8, 0, 0, 0, 0)),
                (1.0, Died("exited with code 7")),
            ]
        count = ROWS * workers.count(worker)
        return [*done(lease, shard), (0.9, WorkerHeartbeat(count, count / 10, count, 0, 0, 0, 0))]

    shown: list[int] = []
    ending, coordinator = run(FakePool(scores), plan_of(3), act=lambda _, now: shown.append(now.rows))
    assert ending is Ending.DONE
    assert coordinator.snapshot().rows == 3 * ROWS
    assert 8 in shown  # what is in work counts until it is lost
    assert max(shown) <= 3 * ROWS


def test_a_deadly_shard_is_dead_after_its_attempts_and_no_other_is() -> None:
    def scores(_: int, lease: int, shard: int) -> Replies:
        if shard == 2:
            return [(0.1, WasRead(lease)), (30.0, Died("exited with code 7"))]
        return done(lease, shard, after_s=20.0)

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(8), workers=2)
    assert ending is Ending.DEAD_SHARDS
    assert coordinator.dead_shards() == {2: "the worker died: exited with code 7"}
    assert coordinator.snapshot().shards_done == 7
    assert pool.scored().count(2) == 4


def test_a_shard_that_was_lost_is_alone_with_its_worker() -> None:
    """Or one that kills its workers would take a neighbour with it each time, until both are dead."""
    held: dict[int, set[int]] = {}

    def scores(worker: int, lease: int, shard: int) -> Replies:
        held.setdefault(worker, set()).add(shard)
        if shard == 0:
            return [(0.1, WasRead(lease)), (5.0, Died("gone"))]
        return done(lease, shard, after_s=10.0)

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(2))
    assert ending is Ending.DEAD_SHARDS
    assert list(coordinator.dead_shards()) == [0]


def test_workers_that_all_die_on_their_shards_end_it_early() -> None:
    pool = FakePool(lambda *_: [(0.5, Died("exited with code 139"))])
    ending, coordinator = run(pool, plan_of(1000), workers=2)
    assert ending is Ending.DEAD_SHARDS
    assert len(coordinator.dead_shards()) < 20
    assert len(coordinator.log.deaths) < 100


def test_workers_that_die_before_they_have_a_shard_end_it() -> None:
    pool = FakePool(lambda *_: [], loads=lambda _: Died("exited with code 1"))
    with pytest.raises(
        Broken, match="workers in a row died before they got a shard; the last reason: exited with code 1"
    ):
        run(pool, plan_of(3))


def test_many_workers_that_die_at_once_end_nothing() -> None:
    def scores(worker: int, lease: int, shard: int) -> Replies:
        return [(2.0, Died("killed by SIGKILL"))] if worker < 16 else done(lease, shard)

    ending, _ = run(FakePool(scores), plan_of(40), workers=16)
    assert ending is Ending.DONE


def test_a_worker_that_is_of_no_use_any_more_is_replaced() -> None:
    """Its device is lost, say: it would fail every shard of the job, one after the other."""

    def scores(worker: int, lease: int, shard: int) -> Replies:
        return [(0.1, Unusable(Broken("the device does not answer")))] if worker == 0 else done(lease, shard)

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(10))
    assert ending is Ending.DONE
    assert pool.killed == [0]
    assert coordinator.log.deaths == ["the device does not answer"]
    assert len([shard for worker, shard in pool.sent if worker == 0 and isinstance(shard, Score)]) == 1


def test_a_worker_that_cannot_begin_costs_no_shard_an_attempt() -> None:
    def scores(worker: int, lease: int, shard: int) -> Replies:
        cannot = Unusable(Broken("it has loaded other weights"), is_beginning=True)
        return done(lease, shard) if worker == 1 else [(0.1, cannot)]

    ending, coordinator = run(FakePool(scores), plan_of(10), workers=2)
    assert ending is Ending.DONE
    assert coordinator.log.failures == {}
    with pytest.raises(Broken, match=r"^it has loaded other weights$"):  # nobody else is there
        run(FakePool(scores), plan_of(10), workers=1)


def test_a_worker_without_progress_is_killed_once_and_its_shard_done_elsewhere() -> None:
    beat = WorkerHeartbeat(5, 1.0, 5, 0, 0, 0, 0)

    def scores(worker: int, lease: int, shard: int) -> Replies:
        return [(float(k), beat) for k in range(1, 200)] if worker == 0 else done(lease, shard)

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(3, lease_seconds=20.0))
    assert ending is Ending.DONE
    assert pool.killed == [0]
    assert coordinator.log.deaths == ["it made no progress for 20 s"]
    assert pool.now_s < 60


def test_a_slow_worker_that_goes_on_is_left_alone() -> None:
    def scores(_: int, lease: int, shard: int) -> Replies:
        beats: Replies = [(float(k), WorkerHeartbeat(k, float(k), k, 0, 0, 0, 0)) for k in range(1, 300)]
        return [*beats, *done(lease, shard, after_s=300.0)]

    pool = FakePool(scores)
    ending, _ = run(pool, plan_of(1, lease_seconds=20.0))
    assert ending is Ending.DONE
    assert pool.killed == []


def test_a_shard_that_fails_is_tried_again_and_dies_of_its_third_error() -> None:
    failures = itertools.count()

    def scores(_: int, lease: int, shard: int) -> Replies:
        if shard == 1:
            return [(0.1, Failed(lease, f"failure {next(failures)}"))]
        return done(lease, shard)

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(4))
    assert ending is Ending.DEAD_SHARDS
    assert pool.scored().count(1) == 3
    assert coordinator.dead_shards() == {1: "failure 2"}


def test_a_permanent_failure_is_not_tried_again() -> None:
    def scores(_: int, lease: int, shard: int) -> Replies:
        return [(0.1, Failed(lease, "no such file", permanent=True))] if shard == 1 else done(lease, shard)

    pool = FakePool(scores)
    assert run(pool, plan_of(4))[0] is Ending.DEAD_SHARDS
    assert pool.scored().count(1) == 1


def test_a_full_disk_ends_it_and_kills_no_shard() -> None:
    pool = FakePool(lambda _, lease, shard: [(0.1, Failed(lease, "no space is left", delayed=True))])
    with pytest.raises(TryLater, match="no space is left"):
        run(pool, plan_of(100))
    assert len(pool.scored()) < 20


def test_a_delay_now_and_then_ends_nothing() -> None:
    seen = itertools.count()

    def scores(_: int, lease: int, shard: int) -> Replies:
        if next(seen) % 3:
            return [(0.1, Failed(lease, "the endpoint does not answer", delayed=True))]
        return done(lease, shard)

    assert run(FakePool(scores), plan_of(30))[0] is Ending.DONE


def test_a_straggler_gets_a_second_copy_and_the_loser_is_told_to_give_up() -> None:
    held: list[int] = []  # who has the last shard

    def scores(worker: int, lease: int, shard: int) -> Replies:
        held.extend([worker] if shard == 9 else [])
        slow = shard == 9 and len(held) == 1
        beats: Replies = (
            [(float(k), WorkerHeartbeat(k, float(k), k, 0, 0, 0, 0)) for k in range(1, 1000, 10)] if slow else []
        )
        return [*beats, *done(lease, shard, after_s=1000.0 if slow else 1.0)]

    pool = FakePool(scores)
    ending, coordinator = run(pool, plan_of(10), workers=2)
    assert ending is Ending.DONE
    assert len(held) == 2
    assert pool.now_s < 100
    assert [worker for worker, message in pool.sent if isinstance(message, GiveUp)] == held[:1]
    assert sum(each.rows for each in coordinator.log.stats) == 100


def test_a_late_completion_counts_once() -> None:
    """The lease was over and the shard was given to another: whoever comes first has committed it."""
    counted = itertools.count()

    def scores(_: int, lease: int, shard: int) -> Replies:
        first = next(counted) == 0
        return [*done(lease, shard, 2.0), *done(lease, shard, 3.0)] if first else done(lease, shard)

    ending, coordinator = run(FakePool(scores), plan_of(5))
    assert ending is Ending.DONE
    assert sorted(each.shard for each in coordinator.log.stats) == list(range(5))


def test_too_many_errors_end_it() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, errors=4))
    ending, coordinator = run(pool, plan_of(100, max_errors="10"))
    assert ending is Ending.TOO_MANY_ERRORS
    assert coordinator.snapshot().errors == 12


def test_a_share_of_errors_is_judged_when_there_are_some_rows() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, errors=4))
    ending, coordinator = run(pool, plan_of(200, max_errors="10%"))
    assert ending is Ending.TOO_MANY_ERRORS
    assert coordinator.snapshot().rows == 1000


def test_errors_of_earlier_runs_count() -> None:
    first, coordinator = run(FakePool(lambda _, lease, shard: done(lease, shard, errors=4)), plan_of(2))
    assert first is Ending.DONE
    pool = FakePool(lambda _, lease, shard: done(lease, shard, errors=4))
    ending, _ = run(pool, plan_of(100, max_errors="10"), committed={0, 1}, before=[coordinator.record(0.0)])
    assert ending is Ending.TOO_MANY_ERRORS
    assert len(coordinator.log.stats) == 2


def test_what_the_parts_say_counts_and_not_what_a_run_that_was_killed_has_recorded() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, errors=4))
    ending, coordinator = run(pool, plan_of(100, max_errors="10"), committed={0, 1}, counted=(8, 20))
    assert ending is Ending.TOO_MANY_ERRORS
    assert (coordinator.snapshot().errors_before, coordinator.snapshot().errors) == (8, 4)


def test_a_worker_whose_model_is_never_loaded_is_replaced() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard))
    pool.loads = lambda number: Ready(INFO) if number else WorkerHeartbeat(0, 0.0, 0, 0, 0, 0, 0)
    ending, coordinator = run(pool, plan_of(3, load_seconds=60.0))
    assert ending is Ending.DONE
    assert pool.killed == [0]
    assert coordinator.log.deaths == ["the model was not loaded within 60 s"]


def test_a_stop_lets_what_is_in_work_finish() -> None:
    def act(coordinator: Coordinator, now: JobSnapshot) -> None:
        if now.elapsed_s > 5 and not asked:
            asked.append(len(pool.scored()))
            coordinator.stop()

    asked: list[int] = []
    pool = FakePool(lambda _, lease, shard: done(lease, shard, after_s=4.0))
    ending, coordinator = run(pool, plan_of(50, grace_seconds=30.0), workers=2, act=act)
    assert ending is Ending.STOPPED
    assert len(pool.scored()) == asked[0]
    assert coordinator.snapshot().shards_done == asked[0]


@pytest.mark.parametrize(("now", "within_s"), [(False, 31.0), (True, 1.0)])
def test_a_stop_waits_no_longer_than_its_grace(now: bool, within_s: float) -> None:
    asked: list[float] = []

    def act(coordinator: Coordinator, at: JobSnapshot) -> None:
        if at.elapsed_s > 5 and not asked:
            asked.append(pool.now_s)
            coordinator.stop(now)

    pool = FakePool(lambda *_: [])
    ending, _ = run(pool, plan_of(5, grace_seconds=30.0), act=act)
    assert ending is Ending.STOPPED
    assert pool.now_s - asked[0] <= within_s


def test_a_worker_that_dies_while_it_stops_is_not_replaced() -> None:
    def act(coordinator: Coordinator, at: JobSnapshot) -> None:
        if at.elapsed_s > 2:
            coordinator.stop()

    pool = FakePool(lambda *_: [(5.0, Died("killed by SIGKILL"))])
    ending, coordinator = run(pool, plan_of(5), act=act)
    assert ending is Ending.STOPPED
    assert coordinator.snapshot().workers == 0


@pytest.mark.slow
def test_a_window_that_cannot_be_made_is_seen_with_the_workers_it_would_take() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, after_s=10.0))
    seen: list[int | None] = []
    run(pool, plan_of(100, window="100s"), act=lambda _, now: seen.append(now.outlook.workers_needed))
    assert seen[0] is not None  # by what the first rows took, before anything is committed
    assert any(workers is not None and 5 <= workers <= 30 for workers in seen)


@pytest.mark.slow
def test_the_timeline_stays_small_whatever_time_passes() -> None:
    pool = FakePool(lambda _, lease, shard: done(lease, shard, after_s=2000.0))
    _, coordinator = run(pool, plan_of(3, lease_seconds=1e6), most_s=1e6)
    assert len(coordinator.log.timeline) <= 1000
    assert coordinator.log.timeline[0][0] < 2
