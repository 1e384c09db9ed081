"""A preparing process, from inside: shards in, parts out, rows to the worker's engine and back."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from multiprocessing.connection import Connection
from typing import assert_never

import pyarrow as pa

from twoshift.batch.messages import GiveUp, Score
from twoshift.batch.preparing.arena import Arena
from twoshift.batch.preparing.messages import Answered, FromPreparer, Given, ToPreparer, Wrote
from twoshift.batch.preparing.remote_engine import RemoteEngine
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.scoring import ScoringThreads
from twoshift.parent_process import end_with, name_process

__all__ = ["SIGNALS", "main"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # whether it ends is for its worker to say
_NICER = 15  # than its worker: live requests on the same cores go first


def main(line: int, arena: int, worker: int) -> None:
    """The process, from its start to its end; `line` and `arena` are open files, `worker` is who started it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    end_with(worker)
    name_process("ts-preparer")
    os.nice(_NICER)
    pa.set_cpu_count(1)  # its siblings have the other cores
    with contextlib.suppress(EOFError, OSError):  # the worker is gone
        _work(_Line(Connection(line)), Arena(arena))
    os._exit(0)  # threads of libraries must not keep us


class _Line:
    """To the worker, for several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: FromPreparer) -> None:
        with self._lock:
            try:
                self._connection.send(message)
            except OSError:  # the worker is gone
                os._exit(0)

    def given(self) -> Given:
        return pickle.loads(self._connection.recv_bytes())  # noqa: S301 - of the worker that has started us

    def receive(self) -> ToPreparer | None:
        return self._connection.recv()


def _work(line: _Line, arena: Arena) -> None:
    given = line.given()
    engine = RemoteEngine(given, arena, line.send)
    scorer = ShardScorer(
        engine, given.plan, given.blobs_for, given.worker, wrote=lambda rows: line.send(Wrote(rows))
    )  # fmt: skip
    scoring = ScoringThreads(scorer, line.send)
    ending: threading.Thread | None = None
    while True:
        message = line.receive()
        match message:
            case Score(lease, shard):
                scoring.begin(lease, shard)
            case GiveUp(lease):
                scoring.give_up(lease)
            case Answered():
                engine.answered(message)
            case None:
                ending = ending or _end_once_done(scoring)
            case _:
                assert_never(message)


def _end_once_done(scoring: ScoringThreads) -> threading.Thread:
    """Beside us: what is given up waits for its last answers."""

    def end() -> None:
        scoring.close()
        os._exit(0)

    ending = threading.Thread(target=end, name="twoshift-end", daemon=True)
    ending.start()
    return ending
