"""A program of tests: it imports what `twoshift serve` needs, once, and forks for each server that is asked for.

A fork runs `twoshift` as the installed script does: with its words, environment, folder, streams and exit code.
`forked_program` asks; this file is run by it and imports nothing of the tests.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import multiprocessing.process
import os
import random
import signal
import socket
import sys
import time
import types
from typing import Any

_NEEDED = (
    "twoshift.cli.serve",
    "typer._adapters",
    "twoshift.server",
    "sqlalchemy.dialects.sqlite",
    "httpx",
    "prometheus_client.exposition",
    "twoshift.batch.job_host",
    "twoshift.batch.requests.batch_host",
    "twoshift.streams.stream_host",
    "twoshift.store.claim",
    "twoshift.store.usage",
    "twoshift.ui.console",
    "uvloop",
)


def _asked(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next program, in a process of its own; nothing once nobody asks any more."""
    while True:
        _reap()
        data, streams, _, _ = socket.recv_fds(control, 1 << 16, 3)
        while data and not data.endswith(b"\n"):
            data += control.recv(1 << 16)
        if not data:
            return None
        if os.fork() == 0:
            control.close()
            return json.loads(data), streams
        for each in streams:
            os.close(each)


def _reap() -> None:
    """Those who watched, and whose program has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _watch(streams: list[int]) -> None:
    """Fork once more and return in the new process; this one says its number and how it has ended."""
    *inherited, told = streams
    pid = os.fork()
    if pid == 0:
        for number, stream in enumerate(inherited, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(told)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the program
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2, *inherited):
        os.dup2(null, number)
    os.write(told, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(program: str, words: list[str], environment: dict[str, str], folder: str) -> None:
    """What a process knows of itself once this program was started in it."""
    _renew_streams()
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    multiprocessing.process.ORIGINAL_DIR = folder  # pyright: ignore[reportAttributeAccessIssue] - where its children begin
    sys.argv = [program, *words]
    sys.path[0] = os.path.dirname(program)  # noqa: PTH120
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__file__ = program
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    for name, module in [*sys.modules.items()]:
        if name.startswith("twoshift"):
            for each in [*vars(module).values()]:
                if isinstance(each, random.Random):
                    each.seed()  # two servers must not draw the same numbers


def _renew_streams() -> None:
    """Those of the process that forks know what their files were: a file can be sought in, a pipe cannot."""
    for name, line_by_line, stream in (("stdout", -1, sys.stdout), ("stderr", 1, sys.stderr)):
        made = open(stream.fileno(), "w", line_by_line, stream.encoding, stream.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _main() -> int:
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:  # of an extra that is not here
            if (error.name or "").startswith("twoshift"):
                raise
    gc.collect()
    gc.freeze()
    asked = _asked(socket.socket(fileno=int(sys.argv[1])))
    if asked is None:
        return 0
    given, streams = asked
    _watch(streams)
    _become(**given)
    from twoshift.__main__ import run

    return run()


if __name__ == "__main__":
    sys.exit(_main())
