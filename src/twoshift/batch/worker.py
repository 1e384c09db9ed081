"""A job's worker: a model, an engine, and shards one after the other; told what to do by messages."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

import msgspec

from twoshift.batch.device import WorkDevice
from twoshift.batch.messages import (
    Begin,
    Calibrate,
    Failed,
    FromWorker,
    GiveUp,
    Loading,
    Noticed,
    Ready,
    Recheck,
    Rechecked,
    Score,
    Scored,
    ToWorker,
    Unusable,
    WorkerHeartbeat,
)
from twoshift.batch.parity_report import ParityReport, take_receipt
from twoshift.batch.plan import Plan, check_same_weights, read_plan
from twoshift.batch.preparing.fingerprint import rows_fingerprint
from twoshift.batch.preparing.local_line import LocalPlaces
from twoshift.batch.preparing.messages import Given
from twoshift.batch.preparing.preparers import Places, Preparers
from twoshift.batch.preparing.scoring import ScoringProcesses
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.scoring import Scoring, ScoringThreads, message_for
from twoshift.batch.settings import JobSettings
from twoshift.batch.spot_notices import SpotNotice
from twoshift.batch.spot_watch import noticed, watch_for_notice
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.long_texts import split_cost
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import described
from twoshift.errors import Broken, TwoshiftError
from twoshift.ports import Blobs

__all__ = ["ShardWorker"]

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
        places: Places | None = None,  # of its preparing processes; None: this machine
    ) -> None:
        self._settings, self._name, self._open, self._blobs_for, self._send = (
            settings, name, open_device, blobs_for, send,
        )  # fmt: skip
        self._device: WorkDevice | None = None
        self._engine: BlockEngine | None = None
        self._plan: Plan | None = None
        self._scoring: Scoring | None = None
        self._preparers = Preparers(places or LocalPlaces(settings.preparers))
        self._owner, self._is_alone = owner or BlockOwner(), owner is None
        self._closed = threading.Event()

    def start(self) -> None:
        """Load the model and say so."""
        self._send(Loading())
        folder = Path.cwd()
        if self._is_alone:
            self._preparers.start_early(self._settings)
        try:
            self._device = self._open(self._settings)
            os.chdir(folder)  # names begin where the command was run, wherever a model has gone
        except Exception as error:
            self._send(_unusable(error))
            return
        self._preparers.device_known(self._device)
        self._send(Ready(self._device.info, self._name, max(1, self._preparers.policy.most)))
        threading.Thread(target=self._beat, name="twoshift-beat", daemon=True).start()
        if self._is_alone and (where := self._settings.spot_notice) is not None:
            self.watch_for_notice(lambda: noticed(where))

    def watch_for_notice(self, look: Callable[[], SpotNotice | None]) -> None:
        """Ask now and then whether its machine will be taken away, and say so."""
        watch_for_notice(look, lambda found: self._send(Noticed(found)), self._closed)

    def handle(self, message: ToWorker) -> None:
        """Do what it says, or begin to."""
        try:
            self._handle(message)
        except Exception as error:  # whatever it was, the coordinator has to know
            self._send(_unusable(error, is_beginning=isinstance(message, Begin)))

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Calibrate(rows):
                self._calibrate(rows)
            case Begin():
                self._begin(message)
            case Score(lease, shard):
                if self._scoring is not None:  # or it could not begin, and has said so
                    self._scoring.begin(lease, shard)
            case GiveUp(lease):
                if self._scoring is not None:
                    self._scoring.give_up(lease)
            case Recheck(shards, rows):
                self._send(Rechecked(self._receipt(list(shards), rows)))
            case _:
                assert_never(message)

    def close(self) -> None:
        """Give up what is in work and let the model go."""
        self._closed.set()
        if self._scoring is not None:
            self._scoring.close()
        self._preparers.close()
        if self._device is not None:
            self._device.close()

    def _calibrate(self, rows: list[Any]) -> None:
        measured = self._loaded().calibrate(rows)
        if self._settings.too_long == "split":
            began_s = time.perf_counter()
            cost = split_cost(self._loaded().row_preparer, rows)
            host_s = (time.perf_counter() - began_s) / max(1, len(rows)) if measured.host_s_per_row else 0.0
            row_s = measured.seconds_per_row * cost
            measured = replace(measured, seconds_per_row=row_s, host_s_per_row=host_s)
        self._send(measured)
        if (preparer := self._loaded().row_preparer) is not None and measured.schema is not None:
            self._preparers.warm(preparer, rows, measured.seconds_per_row)

    def _begin(self, told: Begin) -> None:
        plan = read_plan(self._blobs_for(told.output), told.output)
        if plan is None:
            raise Broken(
                f"{told.output} contains no _twoshift/plan.json: the file was deleted, or this path is another folder "
                "on this machine; start the job again with another output folder that all machines share"
            )
        # The folder may have been moved since the job was begun, and the command may be run elsewhere
        mine = {name: getattr(self._settings, name) for name in ("adapter", "index", "index_key")}
        settings = msgspec.structs.replace(plan.settings, output=told.output, **mine)
        plan = msgspec.structs.replace(plan, settings=settings).with_files(told.files)
        check_same_weights(self._name, self._loaded().info, self._settings.used_adapters, told.checksum)
        self._engine = self._loaded().begin(told.seconds_per_row)
        self._plan = plan
        self._scoring = self._new_scoring(self._engine, plan)
        self._send(self._state())  # how many shards it reads at the same time

    def _new_scoring(self, engine: BlockEngine, plan: Plan) -> Scoring:
        preparer = self._loaded().row_preparer
        if preparer is None or not self._preparers.are_for(plan):
            self._preparers.close()
            scorer = ShardScorer(engine, plan, self._blobs_for, self._name, self._owner)
            return ScoringThreads(scorer, self._say)
        fingerprint = rows_fingerprint(preparer) if self._preparers.are_elsewhere else ""
        given = Given(preparer, self._loaded().info, engine.most_rows, plan, self._blobs_for, self._name, fingerprint)
        return ScoringProcesses(given, engine, self._owner, self._preparers, self._say)

    def _receipt(self, shards: list[int], rows: int) -> ParityReport:
        assert self._engine is not None  # noqa: S101 - Begin comes before Recheck
        assert self._plan is not None  # noqa: S101
        try:
            return take_receipt(self._engine, self._plan, shards, rows, self._blobs_for)
        except Exception as error:  # the job is done all the same
            return ParityReport(0, None, None, 0, problem=message_for(error))

    def _say(self, message: FromWorker) -> None:
        """What became of a shard."""
        assert self._engine is not None  # noqa: S101 - Begin comes before Score
        if isinstance(message, Scored):
            self._send(self._state())  # a short run has no other
        elif isinstance(message, Failed) and not message.given_up and not self._engine.health(math.inf).healthy:
            message = Unusable(Broken(message.message))  # the device is lost: no shard could be done here any more
        self._send(message)

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            with contextlib.suppress(OSError):  # the coordinator is gone; somebody else will notice
                self._send(self._state())

    def _state(self) -> WorkerHeartbeat:
        padding = self._device.padding_tokens if self._device else 0
        if self._engine is None:
            return WorkerHeartbeat(0, 0.0, 0, padding, 0, 0, 0)
        stats, had = self._engine.stats(), self._owner.use
        failed, ran_out = stats.failed_calls, stats.out_of_memory
        rows = had.rows if self._scoring is None else self._scoring.rows_done(had.rows)
        at_once, preparers = (1, 0) if self._scoring is None else (self._scoring.at_once, self._scoring.preparers)
        return WorkerHeartbeat(
            rows, had.device_s, had.tokens, padding, failed, ran_out, stats.max_tokens, at_once, preparers, had.output_s
        )  # fmt: skip

    def _loaded(self) -> WorkDevice:
        if self._device is None:
            raise Broken("the model is not loaded")
        return self._device


def _unusable(error: BaseException, is_beginning: bool = False) -> Unusable:
    return Unusable(error if isinstance(error, TwoshiftError) else Broken(described(error)), is_beginning)
