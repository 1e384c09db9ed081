from __future__ import annotations

import threading

from twoshift.closable_thread import ClosableThread


def test_it_works_from_its_start_until_it_is_closed() -> None:
    began, ended = threading.Event(), threading.Event()

    def run(closed: threading.Event) -> None:
        began.set()
        closed.wait()
        ended.set()

    thread = ClosableThread(run, "twoshift-tried")
    thread.start()
    assert began.wait(60)
    assert not ended.is_set()
    thread.close()
    assert ended.is_set()


def test_one_that_was_never_started_is_closed_at_once() -> None:
    ClosableThread(lambda _: None, "twoshift-tried").close()


def test_one_that_does_not_end_in_time_is_left_behind() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def run(_: threading.Event) -> None:
        may_end.wait()
        ended.set()

    thread = ClosableThread(run, "twoshift-tried", close_s=0.01)
    thread.start()
    thread.close()
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(60)


def test_one_that_waits_to_be_woken_is_woken_by_the_close() -> None:
    woken, ended = threading.Event(), threading.Event()

    def run(closed: threading.Event) -> None:
        woken.wait()
        assert closed.is_set()
        ended.set()

    thread = ClosableThread(run, "twoshift-tried", woken=woken)
    thread.start()
    thread.close()
    assert ended.is_set()
