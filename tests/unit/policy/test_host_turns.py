from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.host_turns import HostTurnsPolicy


def job_share(
    live: float, piece_s: float, beside: float = 0.0, seconds: float = 30.0, slowdown: float | None = None
) -> float:
    """What a job has of a core whose loop takes so much of it, in pieces; with so much more elsewhere for each."""
    policy, now_s, worked_s = HostTurnsPolicy(slowdown), 0.0, 0.0
    while now_s < seconds:
        now_s += piece_s
        worked_s += (1 + beside) * piece_s
        policy.worked((1 + beside) * piece_s)
        now_s += policy.rest_s(now_s, live * now_s)
    return worked_s / now_s


@given(st.one_of(st.floats(0.0, 0.0099), st.floats(0.0101, 1.0)), st.floats(0.0002, 0.02), st.floats(0.0, 2.0))
def test_a_job_has_no_more_of_the_interpreter_than_live_requests_leave(
    live: float, piece_s: float, beside: float
) -> None:
    most = 1.0 if live < 0.01 else max(0.03, 1 - 4 * live)
    found = job_share(live, piece_s, beside)
    capped = (1 + beside) * piece_s / (0.25 + piece_s)  # a rest has an end
    if most == 1.0:
        assert found == pytest.approx(1 + beside), "it never rests"
    else:
        assert 0.7 * most <= found <= 1.1 * max(most, capped) + 0.01


def test_alone_a_job_never_rests() -> None:
    assert job_share(0.0, 0.003) == pytest.approx(1.0)
    assert job_share(0.005, 0.003) == pytest.approx(1.0)


def test_however_busy_the_loop_is_a_job_goes_on() -> None:
    assert 0.025 <= job_share(0.95, 0.003) <= 0.035


@pytest.mark.parametrize(("slowdown", "share"), [(1.0, 0.005), (1.02, 0.02), (1.2, 0.2), (2.0, 0.96), (5.0, 0.96)])
def test_who_bounds_what_live_requests_lose_bounds_the_interpreter_too(slowdown: float, share: float) -> None:
    assert job_share(0.01, 0.001, slowdown=slowdown) == pytest.approx(share, rel=0.1, abs=0.002)
    assert job_share(0.0, 0.001, slowdown=slowdown) == pytest.approx(1.0)


def test_a_job_has_the_interpreter_again_soon_after_live_requests_have_gone() -> None:
    policy, now_s, loop_s = HostTurnsPolicy(), 0.0, 0.0
    for _ in range(100):
        now_s, loop_s = now_s + 0.003, loop_s + 0.002
        policy.worked(0.003)
        rest_s = policy.rest_s(now_s, loop_s)
        now_s, loop_s = now_s + rest_s, loop_s + 0.7 * rest_s
    quiet_s = now_s
    while policy.share < 1.0:
        now_s += 0.003
        policy.worked(0.003)
        now_s += policy.rest_s(now_s, loop_s)
    assert now_s - quiet_s < 0.5
