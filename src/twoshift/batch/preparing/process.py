"""A preparing process of the worker's own machine, from inside."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from multiprocessing.connection import Connection

import pyarrow as pa

from twoshift.batch.preparing.arena import Arena, ArenaBlocks
from twoshift.batch.preparing.messages import FromPreparer
from twoshift.batch.preparing.shard_preparer import ShardPreparer
from twoshift.logs import follow_parent_log
from twoshift.parent_process import begin_child

__all__ = ["main"]

_NICER = 15  # than its worker: live requests on the same cores go first


def main(line: int, arena: int, worker: int) -> None:
    """The process, from its start to its end; `line` and `arena` are open files, `worker` is who started it."""
    begin_child(worker, "ts-preparer")
    follow_parent_log()
    os.nice(_NICER)
    pa.set_cpu_count(1)  # its siblings have the other cores
    with contextlib.suppress(EOFError, OSError):  # the worker is gone
        _work(Connection(line), Arena(arena))
    os._exit(0)  # threads of libraries must not keep us


def _work(line: Connection, arena: Arena) -> None:
    lock = threading.Lock()  # several threads have something to say

    def send(message: FromPreparer) -> None:
        with lock:
            try:
                line.send(message)
            except OSError:  # the worker is gone
                os._exit(0)

    given = pickle.loads(line.recv_bytes())  # noqa: S301 - of the worker that has started us
    preparer = ShardPreparer(given, ArenaBlocks(arena), send, ended=lambda: os._exit(0))
    while True:
        preparer.handle(line.recv())
