"""Processes that share a plan: each shard has a taker while one of them lives, and two takers only after a silence."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.pieces import THE_END, PieceClaim, PiecePolicy, share_of
from twoshift.policy.shared_shards import SharedShardPolicy

TIMEOUT_S = 60.0


@given(st.integers(1, 40), st.integers(0, 200))
def test_the_shares_of_all_pieces_are_the_plan(pieces: int, shards: int) -> None:
    shares = [share_of(piece, pieces, shards) for piece in range(pieces)]
    assert [shard for share in shares for shard in share] == list(range(shards))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_piece_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="0/16 to 15/16"):
        share_of(16, 16, 100)


def _taken(policy: PiecePolicy, now_s: float = 0.0) -> list[int]:
    found = []
    while (claim := policy.next(now_s)) is not None:
        found.append(claim.shard)
        policy.settled([claim.shard])
    return found


def test_a_process_takes_its_share_and_then_the_ends_of_the_others() -> None:
    assert _taken(PiecePolicy(1, 3, 9, TIMEOUT_S)) == [3, 4, 5, 8, 7, 6, 2, 1, 0]


def test_what_is_committed_is_not_taken() -> None:
    policy = PiecePolicy(0, 2, 4, TIMEOUT_S)
    policy.settled([0, 3])
    assert _taken(policy) == [1, 2]


def _held(policy: PiecePolicy, claimant: str, now_s: float = 0.0) -> None:
    """The only shard is claimed by another."""
    claim = policy.next(now_s)
    assert claim is not None
    policy.was_claimed(claim, claimant, now_s)


def test_a_claim_is_taken_over_only_from_who_is_silent_for_long_enough() -> None:
    policy = PiecePolicy(0, 1, 1, TIMEOUT_S)
    _held(policy, "a")
    policy.heard_of("a", "beat 1", 10.0)
    policy.heard_of("a", "beat 1", 50.0)  # the same sign is no sign of life
    assert policy.next(69.0) is None
    policy.heard_of("a", "beat 2", 69.0)
    assert policy.next(128.0) is None
    assert policy.next(129.0) == PieceClaim(0, 1)


def test_a_claim_of_a_process_that_has_ended_is_free_at_once() -> None:
    policy = PiecePolicy(0, 1, 1, TIMEOUT_S)
    _held(policy, "a")
    assert policy.next(1.0) is None
    policy.heard_of("a", "beat 9", 1.0, is_over=True)
    assert policy.next(1.0) == PieceClaim(0, 1)


def test_a_claimant_that_nobody_hears_of_is_gone_after_a_while() -> None:
    policy = PiecePolicy(0, 1, 1, TIMEOUT_S)
    _held(policy, "whose file was deleted", 5.0)
    assert policy.next(64.0) is None
    assert policy.next(65.0) == PieceClaim(0, 1)


def test_the_end_is_claimed_as_shards_are() -> None:
    policy = PiecePolicy(0, 2, 0, TIMEOUT_S)
    assert policy.next_end(0.0) == PieceClaim(THE_END, 0)
    policy.was_claimed(PieceClaim(THE_END, 0), "a", 0.0)
    assert policy.next_end(1.0) is None
    policy.heard_of("a", "beat", 1.0, is_over=True)
    assert policy.next_end(1.0) == PieceClaim(THE_END, 1)


@given(pieces=st.integers(1, 6), shards=st.integers(0, 20), seed=st.integers(0, 2**32))
def test_while_one_process_lives_every_shard_is_done_and_none_twice_but_after_a_kill(
    pieces: int, shards: int, seed: int
) -> None:
    """Against a dictionary in the place of the bucket; a step is a claim, a commit, a kill or a look."""
    chance, bucket, parts, now_s = random.Random(seed), dict[PieceClaim, int](), dict[int, int](), 0.0  # noqa: S311
    policies = {piece: PiecePolicy(piece, pieces, shards, TIMEOUT_S) for piece in range(pieces)}
    in_work, killed = dict[int, int](), set[int]()
    while len(parts) < shards:
        now_s += chance.uniform(0.0, 10.0)
        piece = chance.choice(sorted(policies.keys() - killed))
        if len(killed) < pieces - 1 and chance.random() < 0.1:
            killed.add(piece)
            continue
        policy = policies[piece]
        policy.settled(parts)
        for other in range(pieces):
            sign = "still" if other in killed else f"{now_s}"
            policy.heard_of(str(other), sign, now_s)
        if piece in in_work:
            shard = in_work.pop(piece)
            assert shard not in parts or killed
            parts.setdefault(shard, piece)
        elif (claim := policy.next(now_s)) is not None:
            if bucket.setdefault(claim, piece) == piece:
                in_work[piece] = claim.shard
                policy.settled([claim.shard])
            else:
                policy.was_claimed(claim, str(bucket[claim]), now_s)
    assert sorted(parts) == list(range(shards))
    assert killed or {claim.attempt for claim in bucket} <= {0}


def test_shards_are_leased_only_once_they_are_offered() -> None:
    policy = SharedShardPolicy(4, already_committed=[0])
    assert not policy.has_ready(0.0)
    policy.offer(2)
    policy.offer(1)  # before the one that was found last
    assert [policy.lease("w", 0.0).shard for _ in range(2)] == [1, 2]  # pyright: ignore[reportAttributeAccessIssue]
    assert policy.counts().pending == 1
    policy.validate()


def test_what_others_commit_is_news_once_and_what_is_in_work_here_is_its_workers_to_tell() -> None:
    policy = SharedShardPolicy(3)
    policy.offer(0)
    policy.lease("w", 0.0)
    assert [policy.committed_elsewhere(shard, 1.0) for shard in (0, 1, 1)] == [False, True, False]
    policy.dead_elsewhere(2)
    policy.dead_elsewhere(0)
    assert policy.dead_shards() == [2]
    assert policy.committed_elsewhere(2, 2.0)  # somebody has done it after all
    policy.validate()
