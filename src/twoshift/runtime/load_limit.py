"""A limit on loading. Native code that never returns cannot be interrupted: its process ends, or its thread is left."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from types import TracebackType
from typing import NoReturn, TypeVar

from twoshift.durations import format_duration
from twoshift.errors import Broken

__all__ = ["LoadLimit", "is_loading", "load_within", "loading_step", "when_given_up"]

_EXIT = 1
_GRACE_S = 10.0  # after which the process ends even where a library never gives up the interpreter
_THREAD = "twoshift-load"
_T = TypeVar("_T")


class _Active(threading.local):
    """The limits of this thread, the innermost last."""

    def __init__(self) -> None:
        self.limits: list[LoadLimit] = []


_active = _Active()


def loading_step(what: str) -> None:
    """Say what loading does now, for the message if it never ends: `reading the tokenizer`."""
    if _active.limits:
        _active.limits[-1].step = what


def when_given_up(act: Callable[[], None]) -> None:
    """Do this where the time of what loads in this thread is over: what it holds, nobody else shall wait for."""
    if _active.limits:
        _active.limits[-1].when_let_go(act)


def _end_process(message: str) -> NoReturn:
    sys.stderr.write(f"twoshift: {message}\n")
    sys.stderr.flush()
    os._exit(_EXIT)


class LoadLimit:
    """Gives up where a model is not loaded in time. None: no limit, as in a caller's own process."""

    def __init__(self, model: str, limit_s: float | None, give_up: Callable[[str], None] = _end_process) -> None:
        self._model, self._limit_s, self._give_up = model, limit_s, give_up
        self.step = "opening the model"
        self._acts: list[Callable[[], None]] = []
        self._is_let_go = False
        self._timer: threading.Timer | None = None
        self._gave_up = False

    def __enter__(self) -> LoadLimit:
        _active.limits.append(self)
        if self._limit_s is not None:
            if sys.__stderr__ is not None:
                faulthandler.dump_traceback_later(self._limit_s + _GRACE_S, exit=True, file=sys.__stderr__)
            self._timer = threading.Timer(self._limit_s, self._expired)  # after the watch that it ends
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.limits.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            if not self._gave_up:  # else it is by now the watch over another model
                faulthandler.cancel_dump_traceback_later()

    def message(self) -> str:
        """What happened, where, and what to do."""
        limit = format_duration(self._limit_s or 0.0)
        return (
            f"{self._model} was not loaded within {limit} (last reported step: {self.step}); set a longer "
            "--load-timeout (`load_timeout` in a configuration file), or fix the model"
        )

    def _expired(self) -> None:
        self._gave_up = True
        faulthandler.cancel_dump_traceback_later()  # the interpreter is not held
        self.let_go()
        self._give_up(self.message())

    def let_go(self) -> None:
        """Nobody waits for the model any longer: what it holds is free, although it may hang for ever."""
        self._is_let_go = True
        for act in [*self._acts]:
            act()

    def when_let_go(self, act: Callable[[], None]) -> None:
        """At once, where it is by now."""
        self._acts.append(act)
        if self._is_let_go:
            act()


def load_within(
    model: str,
    limit_s: float | None,
    load: Callable[[], _T],
    discard: Callable[[_T], None],
    cancelled: Future[None],
) -> _T:
    """Load in a thread of its own, which is left behind if it hangs or nobody waits any longer.

    What it still loads is discarded. Raises Broken.
    """
    loaded: Future[_T] = Future()
    limit = LoadLimit(model, limit_s, lambda why: give_up(why))

    def give_up(why: str) -> None:
        with contextlib.suppress(InvalidStateError):
            loaded.set_exception(Broken(why))

    def work() -> None:
        try:
            with limit:
                found = load()
        except BaseException as error:  # a model's own code may raise anything
            with contextlib.suppress(InvalidStateError):
                loaded.set_exception(error)
            return
        try:
            loaded.set_result(found)
        except InvalidStateError:
            discard(found)

    def cancel(_: object) -> None:
        give_up(f"{model} was not loaded, because loading was cancelled")
        limit.let_go()

    cancelled.add_done_callback(cancel)
    if not loaded.done():
        threading.Thread(target=work, name=_THREAD, daemon=True).start()
    return loaded.result()


def is_loading() -> bool:
    """Whether this process still loads a model, perhaps one that nobody waits for."""
    return any(each.name == _THREAD for each in threading.enumerate())
