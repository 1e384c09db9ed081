from __future__ import annotations

import threading
import time

from twoshift.store.turn import WriteTurn

_LONG_S = 60.0


def _wait_for(turn: WriteTurn, count: int) -> None:
    while len(turn._waiting) < count:
        time.sleep(1e-3)


def test_those_who_wait_have_it_in_the_order_in_which_they_came():
    turn, had, threads = WriteTurn(), list[int](), list[threading.Thread]()
    assert turn.take(_LONG_S)

    def take(number: int) -> None:
        assert turn.take(_LONG_S)
        had.append(number)
        turn.give()

    for number in range(5):
        threads.append(threading.Thread(target=take, args=(number,)))
        threads[-1].start()
        _wait_for(turn, number + 1)
    turn.give()
    for thread in threads:
        thread.join()
    assert had == [0, 1, 2, 3, 4]


def test_who_gives_it_and_asks_again_comes_after_those_who_waited():
    turn, had = WriteTurn(), list[str]()
    assert turn.take(_LONG_S)

    def take() -> None:
        assert turn.take(_LONG_S)
        had.append("waited")
        turn.give()

    thread = threading.Thread(target=take)
    thread.start()
    _wait_for(turn, 1)
    turn.give()
    assert turn.take(_LONG_S)
    had.append("asked again")
    turn.give()
    thread.join()
    assert had == ["waited", "asked again"]


def test_who_gave_up_waiting_is_not_called():
    turn = WriteTurn()
    assert turn.take(_LONG_S)
    assert not turn.take(0.0)
    turn.give()
    assert turn.take(0.0)


def test_one_thread_at_a_time_has_it():
    turn, inside, seen = WriteTurn(), [0], list[int]()

    def take() -> None:
        for _ in range(200):
            assert turn.take(_LONG_S)
            inside[0] += 1
            seen.append(inside[0])
            inside[0] -= 1
            turn.give()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 800
