"""Run in a job's folder: kills it at each write point that is `remainder` modulo `of`, and resumes it.

A third word names the index that the job builds.

Every run is a fork of this process, whose imports are done: what takes seconds otherwise takes a fraction of one.
Prints the points at which it was killed.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sitecustomize import install

from twoshift.batch.job import Job
from twoshift.batch.settings import JobSettings
from twoshift.batch.worker import ShardWorker
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.vectors.known import LIBRARIES
from twoshift.vectors.names import library_of
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import open_job_device


class ThreadPool:
    """Workers that are threads."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._heard: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._told: list[queue.Queue[Any]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> int:
        number, told = len(self._told), queue.Queue()
        self._told.append(told)
        self._threads.append(threading.Thread(target=self._work, args=(number, told), daemon=True))
        self._threads[-1].start()
        return number

    def _work(self, number: int, told: queue.Queue[Any]) -> None:
        def send(message: Any) -> None:
            self._heard.put((number, message))

        worker = ShardWorker(self._settings, str(number), open_job_device, blobs_for, send)
        worker.start()
        while (message := told.get()) is not None:
            worker.handle(message)
        worker.close()

    def send(self, worker: int, message: Any) -> None:
        self._told[worker].put(message)

    def poll(self, timeout_s: float) -> list[tuple[int, Any]]:
        try:
            return [self._heard.get(timeout=timeout_s)]
        except queue.Empty:
            return []

    def kill(self, worker: int) -> None:
        raise AssertionError("no worker hangs here")

    def close(self, grace_s: float) -> None:
        for told in self._told:
            told.put(None)
        for thread in self._threads:
            thread.join()


def _run(output: str, index: str | None) -> int:
    settings = JobSettings(
        inputs=("docs",), output=output, model="m.py:Square", columns=("x",), keep=("id",), shard_rows=50,
        index=index, index_key="id" if index else None, index_metric="l2" if index else "cos",
        index_recall=0.5 if index else 0.95,  # points on a line are hard for a graph, and kills are what is tried here
    )  # fmt: skip
    ending = Job(settings, blobs_for, ThreadPool(settings)).run(lambda _: None, lambda _: None).ending
    return EXIT_CODES[ending]


def _forked(output: str, at: int | None, index: str | None) -> int:
    """The exit code of a run in a process of its own; negative where it was killed."""
    pid = os.fork()
    if pid == 0:
        if at is not None:
            install("self", at, f"mark-{at}", str(Path(output).absolute()))
        os._exit(_run(output, index))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(remainder: int, of: int, index: str | None = None) -> None:
    at = remainder or of
    if index is not None:
        LIBRARIES[library_of(index)].module()
    while (code := _forked(f"out-{at}", at, index)) == -signal.SIGKILL:
        if (code := _forked(f"out-{at}", None, index)) != 0:
            raise SystemExit(f"the resume after a kill at write {at} ended with {code}")
        print(at, flush=True)
        at += of
    if code != 0:
        raise SystemExit(f"a run that was not killed ended with {code}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
