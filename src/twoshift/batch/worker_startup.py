"""The workers of a job before its first shard: started, replaced where they die or hang, asked a first question."""

from __future__ import annotations

import math
import time
from collections import deque

from twoshift.batch.messages import Calibrate, Calibrated, Loading, Noticed, Ready, Unusable
from twoshift.batch.plan import check_same_weights, weights_of
from twoshift.batch.pool import Died, FromPool, Joined, Left, WorkerPool
from twoshift.batch.settings import JobSettings
from twoshift.errors import Broken
from twoshift.ports import RuntimeInfo

__all__ = ["Interrupted", "WorkerStartup"]

_EARLY_DEATHS = 3  # of workers that had no shard yet: another one would die, too


class Interrupted(BaseException):
    """Asked to stop where no shard is in work; no Exception, so that nothing that tries again swallows it."""


class WorkerStartup:
    """Raises InvalidInput or Broken where no worker can be had."""

    def __init__(self, settings: JobSettings, pool: WorkerPool) -> None:
        self._settings, self._pool = settings, pool
        self.workers: dict[int, bool] = {}  # number -> whether its model is loaded
        self.heard: deque[tuple[int, FromPool]] = deque()  # and not looked at yet
        self._busy_since_s: dict[int, float] = {}  # worker -> when it began to load, or to do what it was asked
        self._hung: dict[int, str] = {}  # workers that were ended, and why
        self._early_deaths = 0
        self._model: RuntimeInfo | None = None  # of the first worker that was ready
        self.most_at_once = 1  # shards that a worker may read at the same time
        self.interrupted = False  # by another thread
        self._started_s = math.inf
        self.load_s = 0.0  # of the first worker, until its model was loaded

    def start(self) -> None:
        """As many as the job has; none is ready yet."""
        self.workers = dict.fromkeys((self._pool.start() for _ in range(self._settings.first_workers)), False)
        self._started_s = time.monotonic()

    def first_ready(self) -> RuntimeInfo:
        """What the first worker says of the model, once it is loaded."""
        while True:
            _, message = self._next_heard()
            if isinstance(message, Ready):
                return message.info

    def calibrated(self, asked: Calibrate) -> Calibrated:
        """What a worker whose model is loaded answers; another one, where it dies of that."""
        while True:
            while (worker := next((number for number, ready in self.workers.items() if ready), None)) is None:
                self._next_heard()
            self._pool.send(worker, asked)
            self._busy_since_s[worker] = time.monotonic()
            while worker in self.workers:
                number, heard = self._next_heard()
                if isinstance(heard, Calibrated):
                    self._busy_since_s.pop(number, None)
                    return heard

    def check_interrupted(self) -> None:
        """Raises Interrupted where another thread has asked for the end."""
        if self.interrupted:
            raise Interrupted

    def _next_heard(self) -> tuple[int, FromPool]:
        while not self.heard:
            self.check_interrupted()
            self._end_hung()
            self.heard.extend(self._pool.poll(0.2))
        number, message = self.heard.popleft()
        match message:
            case Unusable(error):
                raise error
            case Loading():
                self._busy_since_s[number] = time.monotonic()
            case Ready(info, worker, at_once):
                if self._model is None:
                    self._model, self.load_s = info, max(0.0, time.monotonic() - self._started_s)
                self.most_at_once = max(self.most_at_once, at_once)
                adapters = self._settings.used_adapters
                check_same_weights(worker, info, adapters, weights_of(self._model, adapters))
                self.workers[number] = True
                self._busy_since_s.pop(number, None)
            case Died(reason):
                self._replace(number, reason)
            case Noticed() if self._settings.engine != "ray":
                raise Interrupted  # the machine of all workers will be taken away
            case Noticed():
                self._pool.kill(number)
            case Joined():
                self.workers[number] = False
            case Left():
                self.workers.pop(number, None)
            case _:
                pass
        return number, message

    def _replace(self, number: int, reason: str) -> None:
        del self.workers[number]
        self._busy_since_s.pop(number, None)
        self._early_deaths += 1
        if self._early_deaths >= _EARLY_DEATHS:
            raise Broken(f"workers died before the first shard; the last error: {self._hung.get(number, reason)}")
        self.workers[self._pool.start()] = False

    def _end_hung(self) -> None:
        now_s, settings = time.monotonic(), self._settings
        for number, since_s in self._busy_since_s.items():
            is_loaded = self.workers.get(number, False)
            limit_s = settings.lease_seconds if is_loaded else settings.load_seconds
            if number not in self._hung and now_s - since_s > limit_s:
                self._hung[number] = (
                    "the worker did not return results for the first rows"
                    if is_loaded
                    else "the worker did not load the model in time"
                )
                self._pool.kill(number)
