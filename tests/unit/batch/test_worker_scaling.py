"""A job that has as many workers as its window needs, under a virtual clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import msgspec
import pytest
from test_coordinator import ROWS, FakePool, Replies, done, plan_of, run

from twoshift.batch.coordinator import Coordinator, Ending
from twoshift.batch.messages import Loading
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput
from twoshift.sim.job import JobSpec
from twoshift.sim.job_study import simulate_job


class OneByOne(FakePool):
    """Each worker does one shard after the other, in `takes_s` of the shard."""

    def __init__(self, takes_s: Callable[[int], float]) -> None:
        self.free_s: dict[int, float] = defaultdict(float)
        self.takes_s = takes_s
        super().__init__(self.work)

    def start(self) -> int:
        number = super().start()
        self.reply(number, 0.0, Loading())
        return number

    def work(self, worker: int, lease: int, shard: int) -> Replies:
        free_s = max(self.now_s, self.free_s[worker]) + self.takes_s(shard)
        self.free_s[worker] = free_s
        return done(lease, shard, free_s - self.now_s)


class Seen:
    """How many workers there were, over time."""

    def __init__(self) -> None:
        self.workers: list[int] = []

    def look(self, coordinator: Coordinator, now: JobSnapshot) -> None:
        self.workers.append(now.workers)


def scaled(
    takes_s: Callable[[int], float], shards: int, window: str, most: int = 8
) -> tuple[OneByOne, Coordinator, Seen]:
    pool, seen = OneByOne(takes_s), Seen()
    plan = plan_of(shards, workers="auto", max_workers=most, window=window)
    ending, coordinator = run(pool, plan, act=seen.look)
    assert ending is Ending.DONE
    return pool, coordinator, seen


@pytest.mark.slow
def test_a_job_ends_at_its_window_with_as_few_workers_as_that_takes() -> None:
    pool, coordinator, seen = scaled(lambda _: 1.0, shards=400, window="100s")
    assert 70 < pool.now_s <= 100
    assert 4 <= max(seen.workers) <= 8
    record = coordinator.record(0.0)
    assert record.scaling[0][1] > 1
    assert record.worker_s < 1.3 * 400  # what the work takes on one worker
    assert not record.deaths


def test_a_wide_window_needs_no_second_worker() -> None:
    pool, coordinator, seen = scaled(lambda _: 1.0, shards=50, window="1000s")
    assert (max(seen.workers), coordinator.record(0.0).scaling, pool.killed) == (1, (), [])


def test_a_window_that_cannot_be_met_gets_all_workers() -> None:
    _, _, seen = scaled(lambda _: 1.0, shards=400, window="20s", most=6)
    assert max(seen.workers) == 6


@pytest.mark.slow
def test_work_that_becomes_slower_gets_more_workers_and_quicker_work_fewer() -> None:
    pool, coordinator, _ = scaled(lambda shard: 0.5 if shard < 200 else 1.5, shards=400, window="150s")
    wanted = [workers for _, workers, _ in coordinator.record(0.0).scaling]
    assert max(wanted) > wanted[0]
    assert len(wanted) < 12  # each step once
    assert pool.now_s <= 150
    pool, coordinator, _ = scaled(lambda shard: 2.0 if shard < 100 else 0.2, shards=400, window="100s")
    wanted = [workers for _, workers, _ in coordinator.record(0.0).scaling]
    assert wanted[-1] < max(wanted)
    assert pool.killed
    assert not coordinator.record(0.0).deaths  # released, and not lost
    assert sorted(set(pool.scored())) == list(range(400))


@pytest.mark.parametrize(
    ("shards", "shard_s", "window_s", "load_s"),
    [(400, 1.0, 100.0, 1.0), (300, 4.0, 400.0, 10.0), (1000, 0.5, 60.0, 2.0), (60, 10.0, 2000.0, 30.0)],
)
@pytest.mark.slow
def test_the_simulator_predicts_time_and_workers_within_a_tenth(
    shards: int, shard_s: float, window_s: float, load_s: float
) -> None:
    pool = OneByOne(lambda _: shard_s)
    pool.load_s = load_s
    plan = plan_of(shards, workers="auto", max_workers=16, window=f"{window_s}s")
    plan = msgspec.structs.replace(plan, seconds_per_row=shard_s / ROWS)
    _, coordinator = run(pool, plan, load_s=load_s)
    spec = JobSpec(
        items=100 * shards, workers=16, scales=True, rate_items_per_s=100 / shard_s, window_s=window_s - load_s,
        shard_s=shard_s, restart_s=load_s, preemptions_per_hour=0, straggler_share=0, noise=0, runs=1,
    )  # fmt: skip
    (told,) = simulate_job(spec).with_speculation.runs
    assert pool.now_s == pytest.approx(told.finish_s + load_s, rel=0.1)
    assert coordinator.record(0.0).worker_s == pytest.approx(told.paid_s + load_s, rel=0.1)
    assert pool.now_s <= window_s


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": "auto", "max_workers": 4}, "without --window"),
        ({"workers": "auto", "window": "1h"}, "without --max-workers"),
        ({"max_workers": 4}, "without --workers auto"),
        ({"workers": "many"}, "or auto"),
        ({"workers": 0}, "or auto"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        JobSettings(inputs=("in",), output="out", model="m", **options)  # type: ignore[arg-type]
