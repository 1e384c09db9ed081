"""Observe, decide, act: without a clock and without processes."""

from __future__ import annotations

import json
import logging
import math
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.fleet.observer import Backlog, FleetObserver, ModelCounts, most_urgent
from twoshift.fleet.scale_log import ScaleLog
from twoshift.fleet.scaler import Scaler
from twoshift.policy.autoscale import AutoscalePolicy, ReplicaSettings, Signal, WorkerSettings
from twoshift.policy.scale_journal import ReplayedScale, scale_replay
from twoshift.types import ReplicaCounts

NOTHING = ModelCounts(0, 0, 0, 0, 0, 1000.0, 10.0)  # 100 rows per second


@dataclass
class FakeFleet:
    """Replicas that start when they are told to."""

    ready: int = 1
    starting: int = 0
    asked: list[int] = field(default_factory=list[int])

    def replicas(self) -> ReplicaCounts:
        return ReplicaCounts(self.ready, self.starting)

    def scale_to(self, replicas: int) -> None:
        self.asked.append(replicas)
        self.starting = max(0, replicas - self.ready)
        self.ready = min(self.ready, replicas)

    def started(self) -> None:
        self.ready, self.starting = self.ready + self.starting, 0


class World:
    """A fleet whose traffic a test says, a second at a time."""

    def __init__(self, policy: AutoscalePolicy, log: ScaleLog | None = None, fleet: FakeFleet | None = None) -> None:
        self.fleet, self.now_s, self.counts = fleet or FakeFleet(), 0.0, NOTHING
        self.backlogs: list[Backlog] = []
        observer = FleetObserver(lambda: self.counts, lambda: self.backlogs, self.fleet)
        self.scaler = Scaler(policy, observer.observe, self.fleet, log, lambda: self.now_s)

    def live(
        self, seconds: int, offered: int, refused: int = 0, harvested: int = 0, starts: bool = True, **now: Any
    ) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            self.counts = replace(
                self.counts,
                offered_rows=self.counts.offered_rows + offered,
                refused_rows=self.counts.refused_rows + refused,
                harvested_rows=self.counts.harvested_rows + harvested,
                **now,
            )
            self.scaler.step()
            if starts:
                self.fleet.started()


def policy(most: int = 4, cooldown_s: float = 30.0, quota: int = 0) -> AutoscalePolicy:
    replicas = ReplicaSettings(max_replicas=most, cooldown_s=cooldown_s)
    return AutoscalePolicy(replicas, WorkerSettings(quota=quota, start_s=0.0, cooldown_s=5.0), most, shared=True)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def replayed(path: Path, **overrides: Any) -> list[ReplayedScale]:
    return [*scale_replay(lines(path), overrides)]


def test_load_beyond_one_replica_adds_one_and_the_cool_down_gives_it_back() -> None:
    world = World(policy())
    world.live(20, offered=50)
    assert world.fleet.asked == []
    world.live(20, offered=150)
    assert world.fleet.asked == [2]
    world.live(30, offered=10)
    assert world.fleet.ready == 2  # it was needed a moment ago
    world.live(20, offered=10)
    assert world.fleet.asked == [2, 1]
    assert world.scaler.decisions["up", Signal.RATE] == 1
    assert world.scaler.decisions["down", Signal.COOLDOWN] == 1


def test_a_fleet_that_sleeps_is_woken_by_rows_that_a_job_has_left_even_before_they_are_counted() -> None:
    world = World(AutoscalePolicy(ReplicaSettings(min_replicas=0, cooldown_s=5.0), device_limit=8, shared=True))
    world.live(8, offered=0)
    assert world.fleet.asked == [0]
    world.backlogs = [Backlog(0, math.inf)]  # it has not looked at its input yet
    world.live(20, offered=0)
    assert world.fleet.asked == [0, 1]
    world.backlogs = []
    world.live(8, offered=0)
    assert world.fleet.asked == [0, 1, 0]


def test_who_waits_for_a_replica_does_not_wait_for_the_next_look() -> None:
    looked = threading.Event()
    world = World(policy())
    world.scaler.step = looked.set  # type: ignore[method-assign]
    world.scaler.start(3600.0)
    try:
        world.scaler.look_now()
        assert looked.wait(120)
    finally:
        world.scaler.close()


def test_batch_rows_give_way_before_a_replica_is_added(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "twoshift.scale")
    world = World(policy())
    world.live(15, offered=88, harvested=20)  # above the target load of 0.8, below 0.9
    assert world.fleet.asked == []
    assert world.scaler.decisions["hold", Signal.BORROW] > 5
    assert [record.message for record in caplog.records if "no replica is added" in record.message] == [
        "no replica is added, because holding back batch rows frees enough capacity: keep 1: 88 rows/s fit on "
        "1 replica if batch rows are held back"
    ]
    world.live(15, offered=95, harvested=5)
    assert world.fleet.asked == [2]


def test_a_fleet_whose_replicas_do_not_start_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    class GivenUp(FakeFleet):
        """What a supervisor tells once it has given up: nothing is starting."""

        def scale_to(self, replicas: int) -> None:
            self.asked.append(replicas)

    caplog.set_level(logging.WARNING, "twoshift.scale")
    world = World(policy(), fleet=GivenUp())
    world.live(20, offered=150)
    assert set(world.fleet.asked) == {2}  # it is still wanted
    assert sum("scaling replicas to 2" in record.message for record in caplog.records) == 1


def test_what_is_refused_adds_a_replica_where_the_queue_never_forms() -> None:
    world = World(policy())
    world.live(5, offered=100, refused=20, replica_tokens_per_s=1e7)
    assert world.fleet.asked[0] == 2
    assert world.scaler.decisions["up", Signal.REFUSED] >= 1


def test_live_sequences_that_fill_the_kv_cache_add_a_replica() -> None:
    world = World(policy())
    world.live(5, offered=1, starts=False, levels={"kv_saturation": 0.81})
    assert world.fleet.asked == [2]
    assert world.scaler.decisions["up", Signal.KV] == 1


def test_a_replica_that_starts_slowly_calls_for_no_second_one() -> None:
    world = World(policy())
    world.live(30, offered=100, refused=20, starts=False, replica_tokens_per_s=1e7)
    assert world.fleet.asked == [2]


def test_a_job_that_would_miss_its_window_gets_replicas_live_load_does_not_need_and_gives_them_back() -> None:
    world = World(policy(quota=2))
    world.backlogs = [Backlog(10_000, 60.0)]
    world.live(3, offered=10, harvested=20)
    assert world.fleet.asked[-1] == 3
    assert world.scaler.decisions["up", Signal.QUOTA] + world.scaler.decisions["up", Signal.WINDOW] >= 1
    world.backlogs = []
    world.live(2, offered=10)
    assert world.fleet.asked[-1] == 1


def test_a_job_without_a_window_calls_for_nothing() -> None:
    world = World(policy(quota=2))
    world.backlogs = [Backlog(10**9, math.inf)]
    world.live(20, offered=10, harvested=0)
    assert world.fleet.asked == []


def test_capacity_follows_the_length_of_the_rows_that_come() -> None:
    world = World(policy())
    world.live(3, offered=30)
    for _ in range(20):
        rows, tokens = world.counts.answered_rows, world.counts.answered_tokens
        world.live(1, offered=30, answered_rows=rows + 30, answered_tokens=tokens + 30 * 40)
    assert world.scaler.state is not None
    assert world.scaler.state.replicas.replica_rows_per_s == 25  # of 40 tokens each
    assert world.fleet.asked == [2]


def test_counts_that_begin_again_are_no_negative_rate() -> None:
    world = World(policy())
    world.live(5, offered=50)
    world.counts = NOTHING
    world.live(5, offered=10)
    assert world.scaler.state is not None
    assert world.scaler.state.replicas.live_rows_per_s == 10


@given(st.lists(st.builds(Backlog, st.integers(0, 1000), st.floats(-10, 1e4) | st.just(math.inf)), max_size=6))
def test_the_most_urgent_backlog_asks_for_at_least_the_rate_of_every_other(backlogs: list[Backlog]) -> None:
    found = most_urgent(backlogs)
    rate = found.pending_rows / max(1.0, found.time_left_s)
    with_window = [each for each in backlogs if each.time_left_s < math.inf]
    for each in with_window:
        due = sum(other.pending_rows for other in with_window if other.time_left_s <= each.time_left_s)
        assert rate >= due / max(1.0, each.time_left_s) * (1 - 1e-9)


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50), st.integers(0, 50), st.integers(0, 60)), max_size=60),
    st.integers(1_000, 60_000),
)
def test_a_log_replays_to_the_same_decisions_however_it_is_rotated(
    tmp_path_factory: pytest.TempPathFactory, seen: list[tuple[int, int, int, int]], most_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "scale.jsonl"
    log = ScaleLog(path, most_bytes)
    world = World(policy(cooldown_s=5.0, quota=1), log)
    for offered, refused, harvested, waiting in seen:
        world.backlogs = [Backlog(100 * waiting, 50.0)]
        world.live(1, offered, min(refused, offered), harvested, levels={"waiting": waiting})
    world.scaler.close()
    for part in (path, path.with_name("scale.jsonl.1")):
        if part.exists():
            assert not [each for each in replayed(part) if each.differs]
    if most_bytes == 60_000:
        assert len(replayed(path)) == len(seen)


def test_a_log_can_be_tried_with_other_settings(tmp_path: Path) -> None:
    world = World(policy(), ScaleLog(tmp_path / "log"))
    world.live(20, offered=500)
    world.scaler.close()
    assert max(each.recorded.target for each in replayed(tmp_path / "log")) == 4
    assert max(each.decided.target for each in replayed(tmp_path / "log", max_replicas=6)) == 6
    with pytest.raises(InvalidInput, match="max_replicas"):
        replayed(tmp_path / "log", max_replicas=0)


def test_a_log_that_was_changed_says_where(tmp_path: Path) -> None:
    world = World(policy(), ScaleLog(tmp_path / "log"))
    world.live(5, offered=150)
    world.scaler.close()
    entries = lines(tmp_path / "log")
    entries[4]["replicas"]["live_rows_per_s"] = 10_000.0
    assert [each.number for each in scale_replay(entries) if each.differs] == [4]
    with pytest.raises(InvalidInput, match=r"line 3: .* entry 2 in this line; part of the log is missing"):
        list(scale_replay(entries[:2] + entries[3:]))
    with pytest.raises(InvalidInput, match=r"line 1: .* a decision log .* begins with a twoshift-scale header"):
        list(scale_replay(entries[1:]))


@pytest.mark.parametrize(
    "entry", [3, [], "x", {}, {"log": "other"}, {"log": "twoshift-scale", "format": 1, "settings": 3}]
)
def test_a_foreign_file_is_told_so(entry: Any) -> None:
    with pytest.raises(InvalidInput, match="line 1"):
        list(scale_replay([entry]))


def test_a_restarted_server_goes_on_in_the_same_log_past_the_half_line_of_a_killed_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = World(policy(), ScaleLog(path))
    first.live(5, offered=150)
    first.scaler.close()
    path.write_bytes(path.read_bytes() + b'{"n":6,"at":"2026')
    second = World(policy(), ScaleLog(path))
    second.live(5, offered=10)
    second.scaler.close()
    assert [each.number for each in replayed(path)] == [1, 2, 3, 4, 5] * 2


def test_two_servers_do_not_write_one_log(tmp_path: Path) -> None:
    first = ScaleLog(tmp_path / "log")
    with pytest.raises(InvalidInput, match="another server writes to this file"):
        ScaleLog(tmp_path / "log")
    first.close()
    ScaleLog(tmp_path / "log").close()


def test_a_log_that_cannot_be_written_does_not_stop_the_scaling(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ScaleLog(tmp_path / "folder" / "log")
    (tmp_path / "folder" / "log").mkdir()
    world = World(policy(), log)
    world.live(10, offered=150)
    assert world.fleet.asked == [2]
    assert sum("decisions are not logged" in record.message for record in caplog.records) == 1
    (tmp_path / "folder" / "log").rmdir()
    world.live(3, offered=150)
    world.scaler.close()
    assert len(replayed(tmp_path / "folder" / "log")) == 3


def test_the_loop_outlives_what_it_looks_at(caplog: pytest.LogCaptureFixture) -> None:
    fleet, seen = FakeFleet(), []

    def observe(now_s: float) -> Any:
        seen.append(now_s)
        raise RuntimeError("nobody is there")

    scaler = Scaler(policy(), observe, fleet)
    scaler.start(0.001)
    while len(seen) < 3:
        pass
    scaler.close()
    assert "scaling failed" in caplog.text
