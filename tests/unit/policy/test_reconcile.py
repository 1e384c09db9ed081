"""From any state to what is wanted, without a clock and without processes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.reconcile import ReconcilePolicy, ReconcileSettings
from twoshift.policy.reconcile_values import (
    Action,
    Drain,
    Failure,
    Kill,
    Observed,
    Replica,
    ReplicaStage,
    Shift,
    Start,
    Stop,
    VersionWanted,
    Wait,
    Wanted,
)
from twoshift.sim.fleet import SimFleet

READY, STARTING = ReplicaStage.READY, ReplicaStage.STARTING
DRAINING, STOPPING = ReplicaStage.DRAINING, ReplicaStage.STOPPING
VERSIONS = ("1", "2", "3")
STEP_S = 0.5


def one(replicas: int, floor: int = 1) -> Wanted:
    return Wanted((VersionWanted("1", replicas),), floor)


def ready(number: int, version: str = "1", since_s: float = 0.0, load: int = 0, fault: str = "") -> Replica:
    return Replica(number, version, READY, since_s, since_s, load, fault)


def decide(
    wanted: Wanted, *replicas: Replica, failures: tuple[Failure, ...] = (), now_s: float = 100.0
) -> list[Action]:
    return ReconcilePolicy().decide(wanted, Observed(replicas, failures), now_s)


@st.composite
def wanted_states(draw: st.DrawFn) -> Wanted:
    replicas = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any))
    weights = [draw(st.integers(0, 5)) if each else 0 for each in replicas]
    if not any(weights):
        weights = replicas
    versions = zip(VERSIONS, replicas, weights, strict=False)
    made = tuple(VersionWanted(version, count, weight / sum(weights)) for version, count, weight in versions)
    return Wanted(made, draw(st.integers(0, sum(replicas))), draw(st.integers(1, 3)))


@st.composite
def replica_lists(draw: st.DrawFn) -> list[Replica]:
    stages = draw(st.lists(st.tuples(st.sampled_from(VERSIONS), st.sampled_from(ReplicaStage)), max_size=8))
    return [
        Replica(
            number,
            version,
            stage,
            since_s=(since_s := -draw(st.floats(0, 100))),
            ready_s=None if stage is STARTING else since_s - draw(st.floats(0, 100)),
            load=draw(st.integers(0, 3)) if stage is not STARTING else 0,
            fault=draw(st.sampled_from(("", "", "", "it hangs"))),
        )
        for number, (version, stage) in enumerate(stages)
    ]


shares = st.dictionaries(st.sampled_from(VERSIONS), st.integers(1, 5), min_size=1).map(
    lambda weights: {version: weight / sum(weights.values()) for version, weight in weights.items()}
)


@dataclass
class Stormy:
    """A world in which replicas start slowly, hang and crash for a while; then it is calm."""

    fleet: SimFleet
    random: np.random.Generator
    crashes: float
    now_s: float = 0.0

    def live(self, wanted: Wanted, steps: int, calm: bool) -> list[Action]:
        done: list[Action] = []
        for _ in range(steps):
            if not calm:
                self._trouble()
            self._finish_requests()
            self.fleet.advance(self.now_s)
            before = dict(self.fleet.replicas)
            actions = self.fleet.step(wanted, self.now_s)
            check_step(wanted, before, actions)
            done += actions
            self.now_s += STEP_S
        return done

    def _trouble(self) -> None:
        for number, each in [*self.fleet.replicas.items()]:
            if self.random.random() < self.crashes:
                self.fleet.crash(number, self.now_s)
            elif each.stage is READY and self.random.random() < self.crashes:
                self.fleet.replicas[number] = replace(each, fault="it hangs")

    def _finish_requests(self) -> None:
        for number, each in self.fleet.replicas.items():
            self.fleet.replicas[number] = replace(each, load=max(0, each.load - 1))


def check_step(wanted: Wanted, before: dict[int, Replica], actions: list[Action]) -> None:
    """What holds of every step, whatever the world is like."""
    started = {each.version for each in actions if isinstance(each, Start)}
    drained = [before[each.number] for each in actions if isinstance(each, Drain)]
    assert not started & {each.version for each in drained}, "it starts and drains the same version"
    touched = Counter(each.number for each in actions if isinstance(each, Drain | Stop | Kill))
    assert all(count == 1 for count in touched.values()), "two actions for one replica"
    serving = sum(each.serves for each in before.values())
    taken = sum(before[each.number].serves for each in actions if isinstance(each, Drain | Stop | Kill))
    assert serving - taken >= min(serving, wanted.floor), "below the warm floor"
    assert not any(isinstance(each, Wait) for each in actions) or len(actions) == 1


def is_reached(wanted: Wanted, fleet: SimFleet) -> bool:
    counts = Counter(each.version for each in fleet.replicas.values() if each.serves)
    same = counts == Counter({each.version: each.replicas for each in wanted.versions})
    shares = fleet.shares or {}
    return (
        same
        and len(fleet.replicas) == counts.total()
        and all(math.isclose(shares.get(each.version, 0.0), each.share, abs_tol=1e-6) for each in wanted.versions)
    )


@settings(max_examples=examples(60))
@given(wanted_states(), replica_lists(), shares, st.floats(0, 0.3), st.floats(0, 20), st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_from_any_state_and_after_any_storm_it_reaches_what_is_wanted_and_stays_there(
    wanted: Wanted, replicas: list[Replica], shares: dict[str, float], crashes: float, start_s: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    fleet = SimFleet(lambda _: random.uniform(0, start_s), replicas, shares)
    world = Stormy(fleet, random, crashes)
    world.live(wanted, 60, calm=False)
    steps = 0
    while not is_reached(wanted, fleet):
        world.live(wanted, 1, calm=True)
        steps += 1
        assert steps * STEP_S < 60 + 60 + 12 * (start_s + 3), (fleet.observed, wanted)
    assert {type(each) for each in world.live(wanted, 300, calm=True)} == {Wait}


@given(wanted_states(), replica_lists(), shares)
def test_in_a_world_where_nothing_changes_by_itself_it_has_soon_done_all_it_can(
    wanted: Wanted, replicas: list[Replica], shares: dict[str, float]
) -> None:
    fleet = SimFleet(lambda _: math.inf, replicas, shares)
    steps = 0
    while not isinstance(fleet.step(wanted, 0.0)[0], Wait):
        steps += 1
        assert steps < 12


@settings(max_examples=examples(20))
@given(st.integers(1, 6), st.integers(0, 4), st.floats(0.0, 3.0))
def test_replicas_that_always_fail_to_start_are_tried_ever_more_rarely(
    replicas: int, healthy: int, lasts_s: float
) -> None:
    """However many are missing, one at a time is tried, in the end every 30 s."""
    first = [ready(number) for number in range(min(healthy, replicas - 1))]
    fleet = SimFleet(lambda _: math.inf, first)
    starts = Counter[int]()
    for step in range(1200):
        now_s = float(step)
        for number, each in [*fleet.replicas.items()]:
            if each.stage is STARTING and now_s - each.since_s >= lasts_s:
                fleet.crash(number, now_s)
        starts[int(now_s // 300)] += sum(isinstance(each, Start) for each in fleet.step(one(replicas), now_s))
    assert starts[0] <= replicas + 18
    assert max(starts[1], starts[2], starts[3]) <= 10


@settings(max_examples=examples(40))
@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 3), st.floats(0, 10))
def test_a_new_version_takes_over_without_a_moment_below_the_wanted_number(
    replicas: int, floor: int, surge: int, start_s: float
) -> None:
    """The old one keeps its traffic until the new one has replicas for it, and is drained only after that."""
    fleet = SimFleet(lambda _: start_s, [ready(number, "1") for number in range(replicas)], {"1": 1.0})
    wanted = Wanted((VersionWanted("2", replicas),), min(floor, replicas), surge)
    for step in range(400):
        fleet.step(wanted, step * STEP_S)
        serving = Counter(each.version for each in fleet.replicas.values() if each.serves)
        assert serving.total() >= replicas
        assert sum(each.is_live for each in fleet.replicas.values()) <= replicas + surge
        for version, share in (fleet.shares or {}).items():
            assert serving[version] >= share * replicas - 1e-6
    assert is_reached(wanted, fleet)


def test_a_new_version_that_does_not_start_leaves_the_old_one_as_it_is() -> None:
    fleet = SimFleet(lambda _: math.inf, [ready(0), ready(1)], {"1": 1.0})
    wanted = Wanted((VersionWanted("2", 2),))
    for step in range(400):
        for number, each in [*fleet.replicas.items()]:
            if each.version == "2":
                fleet.crash(number, step * STEP_S)
        fleet.step(wanted, step * STEP_S)
        assert fleet.shares == {"1": 1.0}
        assert fleet.count(READY) == 2


def test_a_canary_gets_its_share_when_it_is_ready_and_loses_it_when_it_crashes() -> None:
    fleet = SimFleet(lambda _: 1.0, [ready(0), ready(1)], {"1": 1.0})
    wanted = Wanted((VersionWanted("1", 2, 0.9), VersionWanted("2", 1, 0.1)))
    assert fleet.step(wanted, 0.0) == [Start("2")]
    fleet.settle(wanted, 1.0)
    assert fleet.shares == pytest.approx({"1": 0.9, "2": 0.1})
    fleet.crash(2, 2.0)
    assert fleet.step(wanted, 2.0) == [Shift({"1": 1.0}), Start("2")]


def test_the_first_replica_starts_alone_and_the_others_follow_it() -> None:
    assert decide(one(3)) == [Start("1")]
    assert decide(one(3), Replica(0, "1", STARTING, 99.0)) == [Wait(99.0 + 1800.0)]
    assert decide(one(3), ready(0)) == [Start("1"), Start("1")]


def test_who_has_not_begun_goes_first_and_then_who_has_the_least_to_finish() -> None:
    busy, idle, young = ready(0, load=5), ready(1, load=1), Replica(2, "1", STARTING, 99.0)
    assert decide(one(2), busy, idle, young) == [Drain(2)]
    assert decide(one(1), busy, idle, young) == [Drain(2), Drain(1)]


def test_a_replica_that_drains_is_stopped_when_it_is_idle_or_patience_ends_and_killed_if_it_stays() -> None:
    leaving = Replica(1, "1", DRAINING, 50.0, 0.0, load=1)
    assert decide(one(1), ready(0), leaving, now_s=100.0) == [Wait(110.0)]
    assert decide(one(1), ready(0), replace(leaving, load=0)) == [Stop(1)]
    assert decide(one(1), ready(0), leaving, now_s=110.0) == [Stop(1)]
    assert decide(one(1), ready(0), Replica(1, "1", STOPPING, 95.0), now_s=99.0) == [Wait(100.0)]
    assert decide(one(1), ready(0), Replica(1, "1", STOPPING, 95.0)) == [Kill(1, "")]


def test_a_hanging_replica_is_killed_and_replaced_when_it_is_gone() -> None:
    assert decide(one(2), ready(0), ready(1, fault="it hangs")) == [Kill(1, "it hangs")]
    gone = Failure("1", 100.0, 0.0, "it hangs")
    assert decide(one(2), ready(0), failures=(gone,)) == [Start("1")]
    assert decide(one(1), ready(0), ready(1, fault="it hangs")) == [Kill(1, "it hangs")]  # that makes it one


def test_a_start_that_takes_too_long_is_ended() -> None:
    (killed,) = decide(one(1), Replica(0, "1", STARTING, 0.0), now_s=1800.0)
    assert killed == Kill(0, "the replica was not ready within 1800 s")


def test_the_wait_doubles_with_each_failure_and_a_replica_that_lasted_ends_the_series() -> None:
    failures = tuple(Failure("1", 90.0 + each, None, "it broke") for each in range(4))
    assert decide(one(1), failures=failures[:1], now_s=90.0) == [Start("1")]
    assert decide(one(1), failures=failures, now_s=93.0) == [Wait(93.0 + 4.0)]
    assert decide(one(1), failures=failures, now_s=97.0) == [Start("1")]
    lasted = Failure("1", 200.0, 100.0, "killed")
    assert decide(one(1), failures=(*failures, lasted), now_s=200.0) == [Start("1")]
    assert decide(one(4), ready(9, since_s=100.0), failures=failures, now_s=131.0) == [Start("1")] * 3
    assert decide(one(4), ready(9, since_s=100.0), failures=failures, now_s=129.0) == [Start("1")]


def test_it_gives_up_in_words_after_five_failed_starts_until_one_is_ready_or_another_number_is_asked_for() -> None:
    policy, want = ReconcilePolicy(), VersionWanted("1", 1)
    failures = tuple(Failure("1", float(each), None, f"no {each}") for each in range(6))
    assert policy.gave_up(want, Observed((), failures[:4])) == ""
    told = "6 replicas in a row failed to start: no 5"
    assert policy.gave_up(want, Observed((), failures)) == told
    assert policy.gave_up(want, Observed((ready(1, since_s=6.0),), failures)) == ""
    assert policy.gave_up(replace(want, asked_s=5.0), Observed((), failures)) == ""
    assert policy.gave_up(want, Observed((ready(1, "2", 6.0),), failures)) == told


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (lambda: Wanted((VersionWanted("1", 1), VersionWanted("1", 1, 0.0))), "versions"),
        (lambda: Wanted((VersionWanted("1", -1),)), "versions"),
        (lambda: Wanted((VersionWanted("1", 1, 0.5),)), "share"),
        (lambda: Wanted((VersionWanted("1", 2, 0.5), VersionWanted("2", 0, 0.5))), "share"),
        (lambda: Wanted((VersionWanted("1", 2),), floor=3), "floor"),
        (lambda: Wanted((VersionWanted("1", 2),), surge=0), "surge"),
    ],
)
def test_what_cannot_be_wanted_is_refused(wanted: object, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        wanted()  # type: ignore[operator]


def test_the_patience_is_a_setting() -> None:
    quick = ReconcilePolicy(ReconcileSettings(start_s=1.0))
    assert isinstance(quick.decide(one(1), Observed((Replica(0, "1", STARTING, 0.0),)), 1.0)[0], Kill)
