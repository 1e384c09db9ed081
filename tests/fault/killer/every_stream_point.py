"""Run in a folder with docs: kills a stream at each write point that is `remainder` modulo `of`, and starts it again.

Every run is a fork of this process, whose imports are done. Prints the points at which it was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sitecustomize import install

from twoshift.streams.settings import make_stream
from twoshift.wiring.streams import stream_for


def _run(output: str) -> int:
    settings, job = make_stream(
        {
            "source": "docs", "output": output, "model": "m.py:Square", "columns": ["x"], "keep": ["id"],
            "once": True, "settle": 0.0, "buffer": 3.0, "compact": 2,
        }
    )  # fmt: skip
    stream_for(settings, job).run(lambda _: None)
    return 0


def _forked(output: str, at: int | None) -> int:
    """The exit code of a run in a process of its own; negative where it was killed."""
    pid = os.fork()
    if pid == 0:
        if at is not None:
            install("self", at, f"mark-{at}", str(Path(output).absolute()))
        os._exit(_run(output))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(remainder: int, of: int) -> None:
    at = remainder or of
    while (code := _forked(f"out-{at}", at)) == -signal.SIGKILL:
        if (code := _forked(f"out-{at}", None)) != 0:
            raise SystemExit(f"the run after a kill at write {at} ended with {code}")
        print(at, flush=True)
        at += of
    if code != 0:
        raise SystemExit(f"a run that was not killed ended with {code}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
