"""A limit on loading: native code that never returns cannot be interrupted, so the process ends with a message."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from types import TracebackType

from twoshift.durations import format_duration

__all__ = ["LoadLimit", "loading_step"]

_EXIT = 1
_GRACE_S = 10.0  # after which the process ends even where a library never gives up the interpreter
_active: list[LoadLimit] = []  # the innermost last


def loading_step(what: str) -> None:
    """Say what loading does now, for the message if it never ends."""
    if _active:
        _active[-1].step(what)


class LoadLimit:
    """Ends the process where a model is not loaded in time. None: no limit, as in a caller's own process."""

    def __init__(self, model: str, limit_s: float | None) -> None:
        self._model, self._limit_s = model, limit_s
        self._step = "it was opened"
        self._timer: threading.Timer | None = None

    def __enter__(self) -> LoadLimit:
        if self._limit_s is not None:
            self._timer = threading.Timer(self._limit_s, self._give_up)
            self._timer.daemon = True
            self._timer.start()
            if sys.__stderr__ is not None:
                faulthandler.dump_traceback_later(self._limit_s + _GRACE_S, exit=True, file=sys.__stderr__)
            _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            faulthandler.cancel_dump_traceback_later()
            _active.remove(self)

    def step(self, what: str) -> None:
        """What is done now: `its tokenizer was tried`."""
        self._step = what

    def message(self) -> str:
        """What happened, where, and what to do."""
        limit = format_duration(self._limit_s or 0.0)
        return (
            f"{self._model} was not loaded within {limit}: it has hung since {self._step}; "
            "give it more time with --load-timeout (load_timeout in a file), or fix the model"
        )

    def _give_up(self) -> None:
        sys.stderr.write(f"twoshift: {self.message()}\n")
        sys.stderr.flush()
        os._exit(_EXIT)
