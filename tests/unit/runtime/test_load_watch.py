"""The limit on loading leaves nothing behind."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from twoshift.errors import Broken
from twoshift.runtime import load_limit
from twoshift.runtime.load_limit import load_within


class _Watch:
    """In place of the one that ends the process."""

    def __init__(self) -> None:
        self.is_on = False

    def dump_traceback_later(self, *_: object, **__: object) -> None:
        self.is_on = True

    def cancel_dump_traceback_later(self) -> None:
        self.is_on = False


class _AtOnce(threading.Timer):
    """As on a machine so busy that the time is over before the next line runs."""

    def start(self) -> None:
        self.function()


def test_a_limit_that_is_over_at_once_does_not_end_the_process_later(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, discarded = _Watch(), threading.Event()
    monkeypatch.setattr(load_limit, "faulthandler", watch)
    monkeypatch.setattr(threading, "Timer", _AtOnce)
    with pytest.raises(Broken, match="was not loaded within"):
        load_within("m", 0.01, lambda: "late", lambda _: discarded.set(), Future())
    discarded.wait()
    assert not watch.is_on
