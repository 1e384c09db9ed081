"""`python -m twoshift`, and the program itself: an interrupt during the imports ends quietly, too."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

__all__ = ["run"]

_GARBAGE = 20_000  # new objects that are looked through together: at 700 it takes a tenth of the imports


def run() -> int:
    """Import the command line and run it."""
    ending = _Ending()
    gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
    atexit.register(ending.leave)  # the first to be registered is the last to be called
    try:
        from twoshift.cli import main

        ending.code = main()
    except KeyboardInterrupt:
        ending.code = 130
    return ending.code


class _Ending:
    """How the process ends once everything in Python has ended."""

    code = 1  # where something is raised

    def leave(self) -> None:
        """Past what C++ does at the end of a process: there Arrow lets go of threads that still run, and aborts."""
        if "pyarrow" not in sys.modules:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it
                stream.flush()
        os._exit(self.code)


if __name__ == "__main__":
    sys.exit(run())
