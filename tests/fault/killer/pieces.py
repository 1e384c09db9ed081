"""Run in a job's folder: a process for each piece of one job, killed at random moments, half of them for good.

Every process is a fork of this one, whose imports are done. Prints how many were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from every_point import ThreadPool

from twoshift.batch.job import Job
from twoshift.batch.settings import JobSettings
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.wiring.blob_stores import blobs_for


def _run(inputs: str, output: str, piece: str) -> int:
    settings = JobSettings(
        inputs=(inputs,), output=output, model="m.py:Square", columns=("x",), keep=("id",), shard_rows=25, piece=piece
    )
    result = Job(settings, blobs_for, ThreadPool(settings)).run(lambda _: None, lambda _: None)
    return EXIT_CODES[result.ending]


def _forked(inputs: str, output: str, piece: str) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_run(inputs, output, piece))
        except BaseException as error:
            print(f"piece {piece}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    return pid


def main(inputs: str, output: str, pieces: int, kills: int, seed: int) -> None:
    chance, killed = random.Random(seed), 0  # noqa: S311
    living = {_forked(inputs, output, f"{piece}/{pieces}"): piece for piece in range(pieces)}
    while living:
        if killed < kills and len(living) > 1 and chance.random() < 0.5:
            pid = chance.choice(sorted(living))
            os.kill(pid, signal.SIGKILL)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(chance.uniform(0.0, 0.2))
            continue
        piece, code = living.pop(pid), os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            killed += 1
            if not living or chance.random() < 0.5:  # as Kubernetes does; the others are for the rest to take over
                living[_forked(inputs, output, f"{piece}/{pieces}")] = piece
        elif code != 0:
            raise SystemExit(f"piece {piece} ended with {code}")
    print(killed)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(each) for each in sys.argv[3:]))
