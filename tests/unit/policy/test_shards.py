from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sampling import examples
from twoshift.errors import InvalidInput
from twoshift.policy.leases import (
    Abandon,
    Committed,
    Covered,
    Dead,
    Duplicate,
    Ended,
    Finished,
    Lease,
    Renewed,
    Retry,
    ShardLimits,
    Stale,
    Wait,
)
from twoshift.policy.shard_states import COMMITTED
from twoshift.policy.shards import ShardPolicy


def leased(policy: ShardPolicy, worker: int | str, now_s: float) -> Lease:
    answer = policy.lease(worker, now_s)
    assert isinstance(answer, Lease), answer
    return answer


def policy_with_typical_second(shards: int, limits: ShardLimits | None = None) -> ShardPolicy:
    """Shards 0 to 9 were committed after a second each; it is now 1 s."""
    policy = ShardPolicy(shards, limits)
    first = [leased(policy, f"done{i}", 0.0) for i in range(10)]
    for lease in first:
        policy.completed(lease, 1.0)
    return policy


class ShardLives(RuleBasedStateMachine):
    """Any interleaving of what can happen to leases, against a plain set of what was committed."""

    limits = ShardLimits(lease_s=10.0, max_errors=2, max_deaths=3, backoff_s=0.5, backoff_cap_s=4.0)

    @initialize(shards=st.integers(0, 12), found=st.sets(st.integers(0, 11), max_size=3))
    def start(self, shards: int, found: set[int]) -> None:
        self.shards = shards
        self.parts = {shard for shard in found if shard < shards}
        self.policy = ShardPolicy(shards, self.limits, self.parts)
        self.now_s = 0.0
        self.handed_out: list[Lease] = []  # live or not: anyone may report at any time
        self.first_commits: list[int] = sorted(self.parts)

    @rule(seconds=st.floats(0, 15))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(worker=st.integers(0, 4))
    def a_worker_asks(self, worker: int) -> None:
        answer = self.policy.lease(worker, self.now_s)
        counts = self.policy.counts()
        if isinstance(answer, Lease):
            assert answer.shard not in self.parts
            assert answer.expires_s > self.now_s
            self.handed_out.append(answer)
        elif isinstance(answer, Wait):
            assert counts.leased + counts.pending > 0
            assert answer.until_s is not None, "leases end by themselves here"
            assert answer.until_s > self.now_s
        else:
            assert counts.committed + counts.dead == self.shards

    @rule(data=st.data(), backwards=st.booleans())
    def a_worker_completes(self, data: st.DataObject, backwards: bool) -> None:
        lease = self._any(data)
        if lease is None:
            return
        answer = self.policy.completed(lease, self.now_s - 5 if backwards else self.now_s)
        if lease.shard in self.parts:
            assert answer == Duplicate(lease.shard)
        else:
            assert isinstance(answer, Committed)
            self._committed(lease.shard)

    @rule(data=st.data(), permanent=st.booleans())
    def a_worker_fails(self, data: st.DataObject, permanent: bool) -> None:
        if lease := self._any(data):
            answer = self.policy.failed(lease, self.now_s, permanent=permanent)
            assert answer.shard == lease.shard
            if permanent:
                assert not isinstance(answer, Retry)

    @rule(data=st.data())
    def a_worker_gives_back(self, data: st.DataObject) -> None:
        if lease := self._any(data):
            self.policy.released(lease, self.now_s)

    @rule(data=st.data())
    def a_worker_renews(self, data: st.DataObject) -> None:
        if lease := self._any(data):
            answer = self.policy.renew(lease, self.now_s)
            if isinstance(answer, Renewed):
                assert answer.lease.expires_s == self.now_s + self.limits.lease_s
                assert lease.shard not in self.parts

    @rule(worker=st.integers(0, 4), noticed=st.booleans())
    def a_worker_dies(self, worker: int, noticed: bool) -> None:
        ends = self.policy.worker_left if noticed else self.policy.worker_died
        assert self.parts.isdisjoint(ended.shard for ended in ends(worker, self.now_s))
        assert ends(worker, self.now_s) == []

    @rule()
    def leases_expire(self) -> None:
        self.policy.expire(self.now_s)
        assert self.policy.expire(self.now_s) == []

    @rule(on=st.booleans())
    def speculation_is_switched(self, on: bool) -> None:
        self.policy.set_speculation(on)

    @rule()
    def a_resume_knows_what_is_left(self) -> None:
        fresh = ShardPolicy(self.shards, self.limits, self.parts)
        assert drain(fresh, self.now_s) == set(range(self.shards)) - self.parts

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "policy"):
            return
        self.policy.validate()
        assert set(self.policy._states.all_in(COMMITTED)) == self.parts
        assert self.policy.counts().committed == len(self.parts)
        assert self.parts.isdisjoint(self.policy.dead_shards())

    def teardown(self) -> None:
        if not hasattr(self, "policy"):
            return
        self.now_s += 1000.0
        self.first_commits += drain(self.policy, self.now_s)
        dead = self.policy.dead_shards()
        assert sorted([*self.first_commits, *dead]) == list(range(self.shards)), "no shard lost, none twice"
        counts = self.policy.counts()
        assert (counts.leased, counts.pending) == (0, 0)
        assert counts.useful_s >= 0
        assert counts.wasted_s >= 0

    def _any(self, data: st.DataObject) -> Lease | None:
        return data.draw(st.sampled_from(self.handed_out)) if self.handed_out else None

    def _committed(self, shard: int) -> None:
        self.parts.add(shard)
        self.first_commits.append(shard)


def drain(policy: ShardPolicy, now_s: float) -> set[int]:
    """A worker that never fails does all that is left; returns what it committed."""
    committed: set[int] = set()
    while not isinstance(answer := policy.lease("drain", now_s), Finished):
        if isinstance(answer, Wait):
            assert answer.until_s is not None
            assert answer.until_s > now_s
            now_s = answer.until_s
            continue
        assert isinstance(policy.completed(answer, now_s), Committed)
        policy.validate()
        committed.add(answer.shard)
    return committed


TestShardLives = ShardLives.TestCase
TestShardLives.settings = settings(max_examples=examples(120), stateful_step_count=40)


def test_shards_are_handed_out_in_the_order_of_the_plan_without_those_already_committed() -> None:
    policy = ShardPolicy(5, already_committed=[1, 3, 3])
    assert [leased(policy, w, 0.0).shard for w in range(3)] == [0, 2, 4]


def test_an_empty_plan_is_finished_at_once() -> None:
    assert ShardPolicy(0).lease("w", 0.0) == Finished(0, 0)


def test_a_late_completion_of_an_expired_lease_commits_and_cancels_the_copy_that_replaced_it() -> None:
    policy = ShardPolicy(1, ShardLimits(lease_s=10.0, backoff_s=0.0))
    slow = leased(policy, "slow", 0.0)
    second = leased(policy, "second", 10.0)
    assert policy.renew(slow, 10.0) == Abandon(0)
    assert policy.completed(slow, 12.0) == Committed(0, cancel=(second,))
    assert policy.completed(second, 13.0) == Duplicate(0)
    counts = policy.counts()
    assert (counts.late, counts.duplicates, counts.deaths, counts.retries) == (1, 1, 1, 1)
    assert (counts.lost_s, counts.duplicated_s) == (10.0, 2.0)


def test_a_late_completion_saves_a_dead_shard() -> None:
    policy = ShardPolicy(1, ShardLimits(max_errors=1))
    lease = leased(policy, "w", 0.0)
    assert policy.failed(lease, 1.0) == Dead(0)
    assert policy.lease("w", 2.0) == Finished(0, 1)
    assert policy.completed(lease, 3.0) == Committed(0, ())
    assert policy.lease("w", 4.0) == Finished(1, 0)


def test_a_renewed_lease_does_not_expire_at_its_first_time() -> None:
    policy = ShardPolicy(2, ShardLimits(lease_s=10.0))
    kept, dropped = leased(policy, "a", 0.0), leased(policy, "b", 0.0)
    assert isinstance(policy.renew(kept, 6.0), Renewed)
    assert [ended.shard for ended in policy.expire(10.0)] == [dropped.shard]
    assert [ended.shard for ended in policy.expire(16.0)] == [kept.shard]


def test_a_lease_past_its_time_cannot_be_renewed_even_before_it_is_taken_back() -> None:
    policy = ShardPolicy(1, ShardLimits(lease_s=10.0))
    lease = leased(policy, "w", 0.0)
    assert policy.renew(lease, 10.0) == Abandon(0)
    assert policy.expire(10.0) == [Retry(0, 11.0)]


def lose(policy: ShardPolicy, lease: Lease, how: str, now_s: float) -> list[Ended | Stale]:
    match how:
        case "error":
            return [policy.failed(lease, now_s)]
        case "death":
            return [*policy.worker_died(lease.worker, now_s)]
        case "expiry":
            return [*policy.expire(lease.expires_s)]
        case _:
            return [*policy.worker_left(lease.worker, now_s)]


@pytest.mark.parametrize(("how", "last"), [("error", 3), ("death", 8), ("expiry", 8), ("preemption", None)])
def test_raised_errors_kill_a_shard_sooner_than_dying_workers_and_preemptions_never_do(
    how: str, last: int | None
) -> None:
    policy = ShardPolicy(1, ShardLimits(max_errors=3, max_deaths=8))
    for attempt in range(1, 50 if last is None else last + 1):
        lease = leased(policy, "w", attempt * 200.0)
        assert lease.attempt == attempt
        (ended,) = lose(policy, lease, how, attempt * 200.0)
        assert isinstance(ended, Dead if attempt == last else Retry)


def test_a_failed_shard_comes_back_only_after_a_growing_pause() -> None:
    policy = ShardPolicy(1, ShardLimits(max_errors=9, max_deaths=9, backoff_s=2.0, backoff_cap_s=5.0))
    now_s = 0.0
    for pause_s in (2.0, 4.0, 5.0, 5.0):
        assert policy.failed(leased(policy, "w", now_s), now_s) == Retry(0, now_s + pause_s)
        assert policy.lease("w", now_s) == Wait(now_s + pause_s)
        now_s += pause_s


def test_a_permanent_error_is_not_tried_again() -> None:
    policy = ShardPolicy(1)
    assert policy.failed(leased(policy, "w", 0.0), 0.0, permanent=True) == Dead(0)


def test_news_of_a_lease_that_has_ended_changes_nothing() -> None:
    policy = ShardPolicy(1, ShardLimits(backoff_s=0.0))
    old = leased(policy, "w", 0.0)
    policy.worker_left("w", 1.0)
    new = leased(policy, "w", 1.0)
    assert policy.failed(old, 2.0) == Stale(0)
    assert policy.released(old, 2.0) == Stale(0)
    assert isinstance(policy.renew(new, 2.0), Renewed)
    assert policy.counts().errors == 0


def test_a_retry_goes_before_fresh_shards() -> None:
    policy = ShardPolicy(3)
    policy.released(leased(policy, "a", 0.0), 1.0)
    assert leased(policy, "b", 1.0).shard == 0


def test_a_shard_well_past_the_typical_time_gets_one_second_copy_and_the_first_commit_wins() -> None:
    policy = policy_with_typical_second(11)
    slow = leased(policy, "slow", 1.0)
    typical_s = policy.typical_s or math.nan
    assert typical_s == pytest.approx(1.0, rel=0.05)
    wait = policy.lease("idle", 1.5)
    assert isinstance(wait, Wait)
    assert wait.until_s == pytest.approx(1.0 + 1.5 * 1.1 * typical_s)
    assert isinstance(policy.lease("idle", math.nextafter(wait.until_s or 0.0, 0.0)), Wait)
    copy = leased(policy, "idle", wait.until_s or 0.0)
    assert (copy.shard, copy.speculative, copy.attempt) == (10, True, 2)
    assert isinstance(policy.lease("third", 40.0), Wait)
    assert policy.completed(copy, 41.0) == Committed(10, cancel=(slow,))
    assert policy.completed(slow, 42.0) == Duplicate(10)
    counts = policy.counts()
    assert (counts.speculated, counts.speculated_won, counts.duplicates) == (1, 1, 1)
    assert counts.duplicated_s == pytest.approx(40.0)


@given(st.lists(st.floats(1e-4, 1e6), min_size=1, max_size=60))
def test_the_typical_time_is_the_median_to_a_bucket(durations_s: list[float]) -> None:
    policy = ShardPolicy(len(durations_s), ShardLimits(lease_s=math.inf))
    leases = [leased(policy, index, 0.0) for index in range(len(durations_s))]
    started_s = 0.0
    for lease, seconds in zip(leases, durations_s, strict=True):  # one after the other, as one worker would
        policy.released(lease, started_s)
        again = leased(policy, lease.worker, started_s)
        policy.completed(again, started_s + seconds)
        started_s += seconds
    low, high = statistics.median_low(durations_s), statistics.median_high(durations_s)
    assert policy.typical_s is not None
    assert max(low, 1e-3) / 1.06 <= policy.typical_s <= max(high, 1e-3) * 1.06


def test_nobody_gets_a_second_copy_while_shards_are_pending() -> None:
    policy = policy_with_typical_second(13)
    leased(policy, "slow", 1.0)
    assert [leased(policy, "idle", 50.0).shard for _ in range(2)] == [11, 12]
    assert leased(policy, "other", 50.0).shard == 10


def test_a_worker_is_never_given_a_copy_of_its_own_shard() -> None:
    policy = policy_with_typical_second(11)
    leased(policy, "slow", 1.0)
    assert isinstance(policy.lease("slow", 50.0), Wait)
    assert leased(policy, "idle", 50.0).speculative


def test_a_copy_is_not_queued_behind_a_shard_that_does_not_end() -> None:
    policy = policy_with_typical_second(12)
    leased(policy, "slow", 1.0)
    last = leased(policy, "last", 1.0)
    assert isinstance(policy.lease("last", 50.0), Wait)
    policy.completed(last, 51.0)
    assert leased(policy, "last", 51.0).speculative


def test_without_speculation_idle_workers_wait() -> None:
    policy = policy_with_typical_second(11, ShardLimits(speculate=False, lease_s=math.inf))
    leased(policy, "slow", 1.0)
    assert policy.lease("idle", 1e6) == Wait(None)
    policy.set_speculation(True)
    assert leased(policy, "idle", 1e6).speculative


def test_when_one_of_two_copies_fails_the_other_covers_it_and_may_be_copied_again() -> None:
    policy = policy_with_typical_second(11)
    slow = leased(policy, "slow", 1.0)
    copy = leased(policy, "idle", 10.0)
    assert policy.failed(slow, 11.0) == Covered(10)
    again = leased(policy, "third", 20.0)
    assert (again.shard, again.speculative) == (10, True)
    assert policy.failed(copy, 21.0) == Covered(10)
    assert policy.failed(again, 22.0) == Dead(10)


def test_a_clock_that_steps_back_does_not_revive_or_reorder_leases() -> None:
    policy = ShardPolicy(2, ShardLimits(lease_s=10.0))
    first, second = leased(policy, "a", 5.0), leased(policy, "b", 0.0)
    assert second.started_s == first.started_s
    policy.validate()
    assert len(policy.expire(15.0)) == 2


def test_a_lease_from_before_a_restart_is_not_mistaken_for_the_one_that_has_its_id_now() -> None:
    before = leased(ShardPolicy(2), "old", 0.0)
    policy = ShardPolicy(2)
    now = leased(policy, "new", 0.0)
    assert before.id == now.id
    assert policy.failed(before, 1.0) == Stale(0)
    assert policy.completed(before, 2.0) == Committed(0, cancel=(now,))


def test_a_resume_of_two_hundred_thousand_shards_does_only_those_that_are_left() -> None:
    policy = ShardPolicy(200_000, already_committed=range(199_990))
    assert sorted(drain(policy, 0.0)) == list(range(199_990, 200_000))
    policy.validate()


@pytest.mark.parametrize(
    ("field", "limits"),
    [
        ("lease_s", {"lease_s": 0.0}),
        ("max_errors", {"max_errors": 0}),
        ("max_deaths", {"max_errors": 5, "max_deaths": 4}),
        ("max_deaths", {"max_deaths": 201}),
        ("backoff_s", {"backoff_s": -1.0}),
        ("backoff_cap_s", {"backoff_cap_s": 0.5}),
        ("speculate_factor", {"speculate_factor": math.nan}),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(field: str, limits: dict[str, float]) -> None:
    with pytest.raises(InvalidInput) as caught:
        ShardLimits(**limits)  # pyright: ignore[reportArgumentType]
    assert caught.value.field == field


def test_a_shard_outside_the_plan_is_refused() -> None:
    for shard in (2, -1):
        with pytest.raises(InvalidInput, match=f"shard: {shard}"):
            ShardPolicy(2, already_committed=[shard])
