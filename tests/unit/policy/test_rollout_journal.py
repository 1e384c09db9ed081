from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoshift.errors import Broken
from twoshift.policy.rollout import RolloutPolicy
from twoshift.policy.rollout_journal import RecordedRollout, rollout_replay
from twoshift.policy.rollout_values import (
    Advance,
    Compared,
    Crashed,
    Evidence,
    Keep,
    Paused,
    PromoteAsked,
    Resumed,
    RollBack,
    RollBackAsked,
    RolloutDecision,
    RolloutSettings,
    RolloutState,
    Version,
    VersionAnswered,
    Warmed,
)

UNTIMED = settings(deadline=None)
SETTINGS = RolloutSettings(disagreement_bound=0.05, slo_s=0.02, min_step_s=0.0)

events = st.one_of(
    st.just(Warmed()),
    st.builds(VersionAnswered, st.sampled_from(Version), st.floats(0.001, 0.1), st.booleans()),
    st.builds(Compared, st.integers(10, 50), st.integers(0, 10), st.none() | st.floats(0, 1), st.floats(0, 1)),
    st.builds(Crashed, st.just(Version.STABLE)),
    st.sampled_from([Paused(), Resumed(), PromoteAsked("ana")]),
)


def stored(state: RolloutState) -> RolloutState:
    return RolloutState.from_dict(json.loads(json.dumps(state.to_dict())))


def stream(seed: int, count: int = 4000, fails: float = 0.001) -> list[tuple[Evidence, float]]:
    """A plausible rollout that goes through the shadow and up the ladder."""
    rng = random.Random(seed)  # noqa: S311
    found: list[tuple[Evidence, float]] = [(Warmed(), 0.0)]
    for number in range(count):
        now_s = number / 20
        version = Version.CANDIDATE if rng.random() < 0.05 else Version.STABLE
        failed = rng.random() < (fails if version is Version.CANDIDATE else 0.001)
        found.append((VersionAnswered(version, rng.lognormvariate(-5, 0.4), failed), now_s))
        if number % 4 == 0:
            copy = Compared(2, int(rng.random() < 0.01), rng.lognormvariate(-5, 0.3), rng.lognormvariate(-5, 0.3))
            found.append((copy, now_s))
    return found


def run(policy: RolloutPolicy, seen: list[tuple[Evidence, float]]) -> list[RolloutDecision]:
    made = list[RolloutDecision]()
    for number, (event, now_s) in enumerate(seen):
        policy.observe(event, now_s)
        if number % 20 == 0:
            made.append(policy.decide(now_s))
    return made


@pytest.mark.parametrize("fails", [0.001, 0.3])
@pytest.mark.slow
def test_a_record_of_every_event_replays_to_the_same_decisions(fails: float) -> None:
    entries = list[Any]()
    policy = RecordedRollout(SETTINGS, 0.0, entries.append, events=True)
    made = run(policy, stream(1, fails=fails))
    assert any(isinstance(each, Advance | RollBack) for each in made)
    replayed = list(rollout_replay(json.loads(json.dumps(entries))))
    assert len(replayed) > 10
    assert not any(step.differs for step in replayed)
    assert [step.decided for step in replayed] == made[: len(replayed)]


@pytest.mark.parametrize("fails", [0.001, 0.3])
@pytest.mark.slow
def test_a_record_without_events_replays_each_of_its_decisions_by_itself(fails: float) -> None:
    entries = list[Any]()
    made = run(RecordedRollout(SETTINGS, 0.0, entries.append), stream(1, fails=fails))
    told = json.loads(json.dumps(entries))
    replayed = list(rollout_replay(told))
    assert not any(step.differs for step in replayed)
    changes = [each for each in made if not isinstance(each, Keep)]
    ends = [each for number, each in enumerate(changes) if each not in changes[:number]]
    assert [step.decided for step in replayed if not isinstance(step.decided, Keep)] == ends
    assert len(told) < 2 * len(replayed) + 2
    alone = [told[0], *told[-2:]]
    assert [step.differs for step in rollout_replay(alone)] == [False]


def test_a_record_that_was_changed_differs() -> None:
    entries = list[Any]()
    run(RecordedRollout(SETTINGS, 0.0, entries.append, events=True), stream(1, 500))
    told = json.loads(json.dumps(entries))
    decisions = [entry for entry in told if entry[0] == "decide"]
    decisions[3][2] = ["promote", *decisions[3][2][1:]]
    assert [step.differs for step in rollout_replay(told)].count(True) == 1


def test_other_settings_may_be_tried_on_a_record() -> None:
    entries = list[Any]()
    run(RecordedRollout(SETTINGS, 0.0, entries.append, events=True), stream(1, fails=0.3))
    again = list(rollout_replay(json.loads(json.dumps(entries)), {"alpha": 1e-9}))
    assert any(step.differs for step in again)


@UNTIMED
@given(st.lists(st.tuples(events, st.floats(0, 3)), max_size=60), st.integers(0, 60))
def test_a_restart_anywhere_goes_on_with_the_same_evidence(seen: list[tuple[Evidence, float]], cut: int) -> None:
    whole, restarted, now_s = RolloutPolicy(SETTINGS, 0.0), RolloutPolicy(SETTINGS, 0.0), 0.0
    for number, (event, wait_s) in enumerate(seen):
        if number == cut:
            restarted = RolloutPolicy.restored(SETTINGS, stored(restarted.state()))
        now_s += wait_s
        for policy in (whole, restarted):
            policy.observe(event, now_s)
        assert whole.decide(now_s) == restarted.decide(now_s)
    assert whole.state() == restarted.state()


@pytest.mark.parametrize("cut", [1, 500, 1500, 3000, 4500])
@pytest.mark.slow
def test_a_restart_in_any_stage_changes_no_decision(cut: int) -> None:
    seen = stream(2)
    whole = RolloutPolicy(SETTINGS, 0.0)
    made = run(whole, seen)
    first = RolloutPolicy(SETTINGS, 0.0)
    before = run(first, seen[: cut - cut % 20])
    after = run(RolloutPolicy.restored(SETTINGS, stored(first.state())), seen[cut - cut % 20 :])
    assert [*before, *after] == made
    assert any(isinstance(each, Advance) for each in made)


def test_a_state_does_not_grow() -> None:
    policy = RolloutPolicy(SETTINGS, 0.0)
    sizes = list[int]()
    for count in (1000, 4000):
        run(policy, stream(3, count))
        sizes.append(len(json.dumps(policy.state().to_dict())))
    assert sizes[1] < 1.3 * sizes[0] < 8000


def test_a_state_is_a_copy() -> None:
    policy = RolloutPolicy(SETTINGS, 0.0)
    state = policy.state()
    run(policy, stream(3, 100))
    assert state == RolloutPolicy(SETTINGS, 0.0).state()


@pytest.mark.parametrize(
    "event",
    [
        Warmed(),
        VersionAnswered(Version.CANDIDATE, 0.5, True),
        Compared(3, 1, None, 0.5, True),
        Crashed(Version.CANDIDATE, "out of memory"),
        Paused(),
        Resumed(),
        PromoteAsked("ana"),
        RollBackAsked("ana", "wrong"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_every_event_is_read_as_it_was_written(event: Evidence) -> None:
    entries = list[Any]()
    policy = RecordedRollout(RolloutSettings(), 0.0, entries.append, events=True)
    policy.observe(Warmed(), 1.0)
    policy.observe(event, 2.0)
    policy.decide(3.0)
    [step] = rollout_replay(json.loads(json.dumps(entries)))
    assert not step.differs
    assert step.decided.reason == step.recorded.reason


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([["warmed", 1.0]], "does not begin with"),
        ([["twoshift-rollout", 99, {}, {}]], "format of the record is 99"),
        ([["twoshift-rollout", 1, {"ladder": [2]}, {}]], "ladder"),
        ([["nothing", 1.0]], "begin"),
    ],
)
def test_what_is_no_record_is_refused(entries: list[list[Any]], why: str) -> None:
    with pytest.raises(Broken, match=why):
        list(rollout_replay(entries))


def test_an_unknown_entry_is_refused_with_its_number() -> None:
    entries = list[Any]()
    RecordedRollout(None, 0.0, entries.append)
    with pytest.raises(Broken, match="entry 2: unknown entry 'sang'"):
        list(rollout_replay([*entries, ["sang", 1.0]]))
