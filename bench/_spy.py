"""Stacks of a server's processes while it is under load, sampled by py-spy."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

_RATE = "100"  # samples a second
_WRITES_S = 20.0


@contextlib.contextmanager
def spied(pid: int, folder: Path | None, name: str) -> Iterator[None]:
    """Into NAME.txt in the folder: a line a stack, with process, thread and samples. Nothing without a folder."""
    if folder is None:
        yield
        return
    program = shutil.which("py-spy")
    if program is None:
        raise RuntimeError("--spy needs py-spy on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    words = [program, "record", "--pid", str(pid), "--subprocesses", "--threads", "--nonblocking", "--rate", _RATE]
    words += ["--format", "raw", "--output", str(folder / f"{name}.txt")]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as spy:
        try:
            yield
        finally:
            spy.send_signal(signal.SIGINT)  # it writes, and ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                spy.wait(_WRITES_S)
            spy.kill()
