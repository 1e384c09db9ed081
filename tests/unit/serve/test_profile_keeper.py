from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits, Run
from twoshift.policy.lanes import LanePolicy
from twoshift.policy.profile import Profile
from twoshift.policy.threads import ThreadPlan, ThreadStep
from twoshift.serve.profile_keeper import ProfileKeeper
from twoshift.store.profiles import FileProfiles
from twoshift.types import CallSize, Item

BUSY = CallCost.line(0.04, 0.001)  # four times too slow
TRUE = BUSY.scaled(0.25)
ONE = CallSize.uniform(1)


@pytest.fixture
def store(tmp_path: Path) -> FileProfiles:
    made = FileProfiles(tmp_path)
    made.put(Profile("m", BUSY, "2026-01-01T00:00:00+00:00", 40, checksum="sum"))
    return made


CLOCK = itertools.count()


def served(policy: LanePolicy, calls: int, true: CallCost, pause_s: float = 0.0) -> None:
    now_s = 1e5 * next(CLOCK)
    for key in range(calls):
        now_s += pause_s
        policy.submit(Item(key, now_s + 10.0), now_s)
        decision = policy.decide(now_s)
        assert isinstance(decision, Run)
        elapsed_s = true.seconds(decision.call.size)
        now_s += elapsed_s
        policy.finished(decision.call, elapsed_s)
    policy.decide(now_s)


def test_a_curve_from_a_busy_moment_heals_on_disk(store: FileProfiles) -> None:
    policy = LanePolicy(BUSY, LaneLimits(slo_s=1.0))
    keeper = ProfileKeeper(store.get("m"), lambda: policy.curves.usual_pace(ONE), store)
    keeper.look()
    assert store.get("m").cost == BUSY, "nothing is known yet"
    served(policy, 40, TRUE)
    keeper.close()
    healed = store.get("m")
    assert healed.cost.seconds(ONE) == pytest.approx(TRUE.seconds(ONE), rel=0.15)
    assert healed.created_at > "2026-01-01T00:00:00+00:00"


def test_a_profile_that_heals_keeps_its_choice_of_threads(store: FileProfiles) -> None:
    plan = ThreadPlan((ThreadStep(1, 1), ThreadStep(512, 2)))
    store.put(replace(store.get("m"), threads=plan))
    ProfileKeeper(store.get("m"), lambda: 0.25, store).look()
    assert (store.get("m").cost, store.get("m").threads) == (TRUE, plan)


def test_a_slow_spell_is_never_stored_and_forgets_nothing(store: FileProfiles) -> None:
    policy = LanePolicy(BUSY, LaneLimits(slo_s=1.0))
    keeper = ProfileKeeper(store.get("m"), lambda: policy.curves.usual_pace(ONE), store)
    served(policy, 40, BUSY.scaled(3.0))
    assert policy.curves.cost.seconds(ONE) > 2 * BUSY.seconds(ONE)
    keeper.look()
    assert store.get("m").cost == BUSY


def test_a_curve_that_is_far_too_quick_heals_on_disk_after_minutes(store: FileProfiles) -> None:
    policy = LanePolicy(BUSY, LaneLimits(slo_s=1.0))
    keeper = ProfileKeeper(store.get("m"), lambda: policy.curves.usual_pace(ONE), store)
    slow = BUSY.scaled(3.0)
    served(policy, 40, slow)
    keeper.look()
    assert store.get("m").cost == BUSY, "it may be a spell"
    served(policy, 400, slow, pause_s=1.0)
    keeper.look()
    assert store.get("m").cost.seconds(ONE) == pytest.approx(slow.seconds(ONE), rel=0.15)
    served(policy, 40, BUSY)
    keeper.close()
    assert store.get("m").cost.seconds(ONE) == pytest.approx(BUSY.seconds(ONE), rel=0.15), "and back"


def test_a_profile_that_somebody_measured_since_is_not_slowed_down(store: FileProfiles) -> None:
    began = store.get("m")
    newer = Profile("m", TRUE, "2026-02-01T00:00:00+00:00", 40, checksum="sum")
    store.put(newer)
    ProfileKeeper(began, lambda: 1.0, store).look()
    assert store.get("m") == newer


def test_what_is_as_quick_as_it_was_is_not_written_again(store: FileProfiles, tmp_path: Path) -> None:
    keeper = ProfileKeeper(store.get("m"), lambda: 0.95, store)
    before = (tmp_path / "m.json").stat()
    keeper.look()
    assert (tmp_path / "m.json").stat().st_ino == before.st_ino


def test_a_profile_of_another_version_is_left_alone(store: FileProfiles) -> None:
    began = store.get("m")
    other = Profile("m", BUSY, "2026-02-01T00:00:00+00:00", 40, checksum="another")
    store.put(other)
    ProfileKeeper(began, lambda: 0.1, store).look()
    assert store.get("m") == other


def test_a_disk_that_fails_is_no_concern_of_requests(tmp_path: Path) -> None:
    gone = FileProfiles(tmp_path / "gone")
    ProfileKeeper(Profile("m", BUSY, "now", 40), lambda: 0.1, gone).look()
    assert gone.names() == []
