from __future__ import annotations

from twoshift.engine.memory import MemoryCap


def until_raised(cap: MemoryCap, tokens: int) -> int:
    for _ in range(10_000):
        if raised := cap.fitted(tokens):
            return raised
    return tokens


def test_the_cap_is_halved_from_what_failed_and_climbs_back_to_the_configured_one() -> None:
    cap = MemoryCap(1000)
    now = cap.ran_out(600)
    assert now == 300
    climbed = [now]
    while climbed[-1] < 1000:
        climbed.append(until_raised(cap, climbed[-1]))
    assert climbed == sorted(climbed)
    assert 599 in climbed, "just under what failed is tried before what failed"


def test_small_calls_are_no_evidence_for_a_higher_cap() -> None:
    cap = MemoryCap(1000)
    cap.ran_out(600)
    assert until_raised(cap, 100) == 100


def test_the_cap_never_falls_below_one_token() -> None:
    cap = MemoryCap(1000)
    assert [cap.ran_out(1) for _ in range(3)] == [1, 1, 1]
