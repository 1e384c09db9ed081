from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from twoshift.engine.host_turns import HostTurns, host_turns_beside, ran_s
from twoshift.policy.lane_values import LaneLimits


class Clocks:
    """Of people, of a thread that works and of a loop that is busy for a part of the time."""

    def __init__(self, live: float) -> None:
        self.now_s, self.worked_s, self.live, self.rested_s = 0.0, 0.0, live, 0.0

    def turns(self) -> HostTurns:
        return HostTurns(lambda: self.live * self.now_s, None, lambda: self.now_s, lambda: self.worked_s, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.rested_s += seconds

    def work(self, seconds: float) -> float:
        self.now_s += seconds
        self.worked_s += seconds
        return seconds


def test_work_gives_what_it_gives_and_rests_beside_live_requests() -> None:
    clocks = Clocks(live=0.2)
    turns = clocks.turns()
    for _ in range(1000):
        assert turns.take(clocks.work, 0.002) == 0.002
    assert 0.15 <= clocks.worked_s / clocks.now_s <= 0.25


def test_work_that_fails_has_had_its_turn() -> None:
    clocks = Clocks(live=0.5)
    turns = clocks.turns()

    def fails() -> None:
        clocks.work(0.1)
        raise ValueError("no")

    turns.take(clocks.work, 0.1)
    with pytest.raises(ValueError, match="no"):
        turns.take(fails)
    assert clocks.rested_s > 0.1
    assert turns.take(clocks.work, 0.1) == 0.1


def test_what_other_threads_do_for_a_job_counts_too() -> None:
    alone, helped = Clocks(live=0.2), Clocks(live=0.2)
    for clocks in (alone, helped):
        turns = clocks.turns()
        for _ in range(500):
            turns.take(clocks.work, 0.002)
            if clocks is helped:
                turns.also(0.002)
    assert helped.rested_s > 1.5 * alone.rested_s


def test_work_that_would_miss_its_deadline_has_its_share_in_any_case() -> None:
    clocks = Clocks(live=0.9)
    turns = clocks.turns()
    for _ in range(1000):
        turns.take(clocks.work, 0.002, owed_share=0.2)
    assert 0.18 <= clocks.worked_s / clocks.now_s <= 0.22


def test_only_one_piece_of_work_is_done_at_a_time() -> None:
    turns, inside, most = Clocks(live=0.0).turns(), [0], [0]

    def work() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.002)
        inside[0] -= 1

    threads = [threading.Thread(target=turns.take, args=(work,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]


def test_a_front_on_the_same_cores_is_seen_at_work_and_one_that_is_gone_is_at_rest() -> None:
    times = Path(f"/proc/{os.getpid()}/schedstat")
    if not times.exists():
        pytest.skip("this system does not tell another process's time")
    before_s = ran_s(times)
    while ran_s(times) < before_s + 0.01:
        sum(range(1000))
    assert ran_s(Path("/proc/0/schedstat")) == 0.0
    turns = host_turns_beside(threading.get_ident(), LaneLimits(), os.getpid())
    assert turns is None or turns.take(sum, range(10)) == 45


def test_work_goes_on_where_the_loop_has_ended() -> None:
    found: list[HostTurns | None] = []
    loop = threading.Thread(target=lambda: found.append(host_turns_beside(threading.get_ident(), LaneLimits())))
    loop.start()
    loop.join(60)
    if found[0] is None:
        pytest.skip("this system does not tell a thread's time")
    assert found[0].take(sum, range(10)) == 45


def test_a_real_loop_is_seen_at_work() -> None:
    turns, stop = host_turns_beside(threading.get_ident(), LaneLimits()), threading.Event()
    if turns is None:
        pytest.skip("this system does not tell a thread's time")
    done = threading.Thread(target=lambda: (turns.take(sum, range(100)), stop.set()))
    done.start()
    while not stop.is_set():  # this thread is the loop, and busy
        sum(range(1000))
    done.join(60)
