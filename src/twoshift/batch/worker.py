"""A job's worker: a model, an engine, and shards one after the other; told what to do by messages."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import assert_never

import msgspec

from twoshift.batch.device import WorkDevice
from twoshift.batch.messages import (
    Begin,
    Calibrate,
    Failed,
    FromWorker,
    GiveUp,
    Heartbeat,
    Loading,
    Ready,
    Recheck,
    Rechecked,
    Score,
    Scored,
    ToWorker,
    Unusable,
    WasRead,
)
from twoshift.batch.parity_report import ParityReport, take_receipt
from twoshift.batch.plan import Plan, check_same_weights, read_plan
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.settings import JobSettings
from twoshift.batch.windows import Stopped
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import described
from twoshift.errors import Broken, InvalidInput, TryLater, TwoshiftError
from twoshift.ports import Blobs

__all__ = ["ShardWorker"]

_SHARDS_AT_ONCE = 2  # the next one is read while the last rows of one are on the device
_BEAT_S = 1.0


class ShardWorker:
    """Handles messages one at a time; answers go to `send`, from several threads."""

    def __init__(
        self,
        settings: JobSettings,
        name: str,
        open_device: Callable[[JobSettings], WorkDevice],
        blobs_for: Callable[[str], Blobs],
        send: Callable[[FromWorker], None],
        owner: BlockOwner | None = None,
    ) -> None:
        self._settings, self._name, self._open, self._blobs_for, self._send = (
            settings, name, open_device, blobs_for, send,
        )  # fmt: skip
        self._device: WorkDevice | None = None
        self._engine: BlockEngine | None = None
        self._plan: Plan | None = None
        self._scorer: ShardScorer | None = None
        self._threads = ThreadPoolExecutor(_SHARDS_AT_ONCE, "twoshift-shard")
        self._owner = owner or BlockOwner()
        self._stops: dict[int, threading.Event] = {}  # lease -> set where the shard is to be given up
        self._lock = threading.Lock()  # guards the one above
        self._closed = threading.Event()

    def start(self) -> None:
        """Load the model and say so."""
        self._send(Loading())
        folder = Path.cwd()
        try:
            self._device = self._open(self._settings)
            os.chdir(folder)  # names begin where the command was run, wherever a model has gone
        except Exception as error:
            self._send(_unusable(error))
            return
        self._send(Ready(self._device.info, self._name))
        threading.Thread(target=self._beat, name="twoshift-beat", daemon=True).start()

    def handle(self, message: ToWorker) -> None:
        """Do what it says, or begin to."""
        try:
            self._handle(message)
        except Exception as error:  # whatever it was, the coordinator has to know
            self._send(_unusable(error, is_beginning=isinstance(message, Begin)))

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Calibrate(rows):
                self._send(self._loaded().calibrate(rows))
            case Begin():
                self._begin(message)
            case Score(lease, shard):
                if self._scorer is None:  # it could not begin, and has said so
                    return
                with self._lock:
                    stop = self._stops[lease] = threading.Event()
                self._threads.submit(self._score, lease, shard, stop)
            case GiveUp(lease):
                with self._lock:
                    for each, stop in self._stops.items():
                        if lease in (None, each):
                            stop.set()
            case Recheck(shards, rows):
                self._send(Rechecked(self._receipt(list(shards), rows)))
            case _:
                assert_never(message)

    def close(self) -> None:
        """Give up what is in work and let the model go."""
        self.handle(GiveUp())
        self._closed.set()
        self._threads.shutdown(wait=True)
        if self._scorer is not None:
            self._scorer.close()
        if self._device is not None:
            self._device.close()

    def _begin(self, told: Begin) -> None:
        plan = read_plan(self._blobs_for(told.output), told.output)
        if plan is None:
            raise Broken(f"{told.output} has no plan")
        # The folder may have been moved since the job was begun, and the command may be run elsewhere
        settings = msgspec.structs.replace(plan.settings, output=told.output)
        plan = msgspec.structs.replace(plan, settings=settings).with_files(told.files)
        check_same_weights(self._name, self._loaded().info, told.checksum)
        self._engine = self._loaded().begin(told.seconds_per_row)
        self._plan = plan
        self._scorer = ShardScorer(self._engine, plan, self._blobs_for, self._name, self._owner)

    def _receipt(self, shards: list[int], rows: int) -> ParityReport:
        assert self._engine is not None  # noqa: S101 - Begin comes before Recheck
        assert self._plan is not None  # noqa: S101
        try:
            return take_receipt(self._engine, self._plan, shards, rows, self._blobs_for)
        except Exception as error:  # the job is done all the same
            return ParityReport(0, None, None, 0, problem=_told(error))

    def _score(self, lease: int, shard: int, stop: threading.Event) -> None:
        assert self._scorer is not None  # noqa: S101 - Begin comes before Score
        try:
            stats, published = self._scorer.score(shard, stop, lambda: self._send(WasRead(lease)))
            self._send(self._state())  # a short run has no other
            self._send(Scored(lease, stats, published))
        except Stopped:
            self._send(Failed(lease, "given up", given_up=True))
        except BaseException as error:  # whatever it was, the coordinator has to know
            self._send(self._failure(lease, error))
        finally:
            with self._lock:
                del self._stops[lease]

    def _failure(self, lease: int, error: BaseException) -> Failed | Unusable:
        assert self._engine is not None  # noqa: S101 - Begin comes before Score
        if not self._engine.health(math.inf).healthy:  # the device is lost: no shard could be done here any more
            return _unusable(error)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        told = "no space is left for the output: free disk space" if full else _told(error)
        delayed = full or isinstance(error, TryLater)
        return Failed(lease, told, permanent=isinstance(error, InvalidInput), delayed=delayed)

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            with contextlib.suppress(OSError):  # the coordinator is gone; somebody else will notice
                self._send(self._state())

    def _state(self) -> Heartbeat:
        padding = self._device.padding_tokens if self._device else 0
        if self._engine is None:
            return Heartbeat(0, 0.0, 0, padding, 0, 0, 0)
        stats, had = self._engine.stats(), self._owner.use
        failed, ran_out = stats.failed_calls, stats.out_of_memory
        rows = had.rows if self._scorer is None else self._scorer.rows_done(had.rows)
        return Heartbeat(rows, had.device_s, had.tokens, padding, failed, ran_out, stats.max_tokens)

    def _loaded(self) -> WorkDevice:
        if self._device is None:
            raise Broken("the model is not loaded")
        return self._device


def _unusable(error: BaseException, is_beginning: bool = False) -> Unusable:
    return Unusable(error if isinstance(error, TwoshiftError) else Broken(described(error)), is_beginning)


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, TwoshiftError) else described(error)
