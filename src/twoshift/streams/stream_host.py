"""Streams on a server: wanted by the store, run at its replicas, and continued after a restart."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from twoshift.batch.allowance import Allowance
from twoshift.batch.job_seats import LiveFleet, Payer, Used
from twoshift.closable_thread import ClosableThread
from twoshift.errors import Elsewhere, TwoshiftError, WrongState
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord, JobStore
from twoshift.streams.hosted_stream import HostedStream
from twoshift.streams.progress import StreamSnapshot
from twoshift.streams.stream_intake import StreamIntake, stream_of
from twoshift.streams.stream_records import StreamRecords, Usd
from twoshift.streams.stream_worker import StreamTask
from twoshift.types import JobState

__all__ = ["StreamHost"]

_log = logging.getLogger("twoshift.streams")
_TICK_S, _LOOK_EVERY_S = 0.25, 5.0
_TELL_EVERY_S = 1.0
MOST_AT_ONCE = 32
_CLOSE_S = 5.0
_RETRY_S = 5.0


class StreamHost:
    """Any thread may call it. One thread of its own compares what the store wants with what runs, and acts.

    Streams go on while the database does not answer. Where another server has its claim they stop here.
    """

    def __init__(
        self,
        store: JobStore,  # of streams alone
        fleet_of: Callable[[str], LiveFleet],  # raises NotFound
        allowance_of: Callable[[str], Allowance],  # by owner
        check_ours: Callable[[], None] = lambda: None,  # raises Elsewhere where another server has the store
        usd: Usd = lambda _model, _device_s: None,
    ) -> None:
        self._store, self._fleet_of, self._allowance_of = store, fleet_of, allowance_of
        self._check_ours, self._records = check_ours, StreamRecords(store, usd)
        self._intake = StreamIntake(fleet_of, allowance_of)
        self._running: dict[str, HostedStream] = {}
        self._ended: dict[Payer, Used] = {}  # what streams that run no more have had
        self._lock = threading.RLock()  # guards these
        self._look_s = self._tell_s = 0.0
        self._poked = threading.Event()
        self._keeper = ClosableThread(self._keep, "twoshift-streams", _CLOSE_S, self._poked)

    def start(self) -> None:
        """Go on with what an earlier server has left."""
        self._keeper.start()

    def close(self, grace_s: float) -> bool:
        """Stop every stream; the next server goes on with them. False where one has not ended in time."""
        self._keeper.close()
        until_s, running = time.monotonic() + grace_s, list(self._running.values())
        for each in running:
            each.stop()
            each.tick("", Counter())  # all are asked before one is waited for
        in_time = [each.join(max(0.0, until_s - time.monotonic())) for each in running]
        with contextlib.suppress(TwoshiftError):  # the next server should know what they have committed
            self._records.progressed({each.id: each for each in running if not each.is_told})
        return all(in_time)

    def submit(self, data: dict[str, Any], owner: str = "") -> JobRecord:
        """A new stream, or the very same one that is not over; raises InvalidInput, NotFound."""
        self._check_ours()
        record = self._intake.submit(self._store, data, owner)
        self._look_now()
        return record

    def get(self, stream_id: str) -> JobRecord:
        """Raises NotFound."""
        self._check_ours()
        return self._store.get(stream_id)

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        """The newest first, of that owner or of all."""
        self._check_ours()
        return self._store.list(limit, after, owner)

    def notes(self, stream_id: str) -> list[tuple[float, str]]:
        """Its log; raises NotFound."""
        self.get(stream_id)
        return self._store.notes(stream_id)

    def pause(self, stream_id: str) -> JobRecord:
        """Stop it after the windows in work, until it is told to go on; raises NotFound, InvalidInput."""
        return self._moved(stream_id, JobMove.PAUSE, "only a running stream can be paused")

    def resume(self, stream_id: str) -> JobRecord:
        """Go on with one that was paused, or that failed; raises NotFound, InvalidInput."""
        return self._moved(stream_id, JobMove.RESUME, "only a stream that is paused or has failed can be resumed")

    def cancel(self, stream_id: str) -> JobRecord:
        """Stop it now and for good; what it has committed stays. Raises NotFound, InvalidInput."""
        return self._moved(stream_id, JobMove.CANCEL, "a stream that has ended cannot be cancelled")

    def snapshots(self) -> dict[tuple[str, str], tuple[StreamSnapshot, float]]:
        """How those that run stand, with their objectives; by id and model."""
        with self._lock:
            return {
                (each.id, each.model): (replace(each.last, usd=self._records.usd(each)), each.task.settings.fresh)
                for each in self._running.values()
                if each.last is not None
            }

    def backlog(self, model: str) -> list[tuple[int, float, int]]:
        """As jobs tell theirs: a stream needs a replica for as long as it runs, and asks for no more."""
        with self._lock:
            found = [each for each in self._running.values() if each.model == model]
        return [(1 + int((each.last and each.last.lag_rows) or 0), math.inf, 0) for each in found]

    def used(self) -> dict[Payer, Used]:
        """By owner and model: what streams have had of the devices since this start."""
        with self._lock:
            found = dict(self._ended)
            for each in self._running.values():
                found[each.payer] = found.get(each.payer, Used()).plus(each.used())
            return found

    def let_go(self, model: str, timeout_s: float) -> bool:
        """The streams of a model that goes stop until it is there again; False where one has not stopped in time."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            with self._lock:
                if all(each.is_idle for each in self._running.values() if each.model == model):
                    return True
            self._poked.set()
            time.sleep(_TICK_S / 5)
        return False

    # What the store wants, and what is

    def _moved(self, stream_id: str, move: JobMove, why_not: str) -> JobRecord:
        """The store says it first: whoever starts this server again must know."""
        self._check_ours()
        before = self._store.get(stream_id)
        if not self._store.move(stream_id, move, str(move.after)):
            raise WrongState("stream", str(before.state), why_not)
        self._store.note(stream_id, str(move.after))
        self._look_now()
        return self._store.get(stream_id)

    def _look_now(self) -> None:
        self._look_s = 0.0
        self._poked.set()

    def _keep(self, closed: threading.Event) -> None:
        while not closed.is_set():
            self._poked.wait(_TICK_S)
            self._poked.clear()
            with self._lock:
                try:
                    self._tick()
                except Elsewhere:
                    self._let_all_go()
                except TwoshiftError:  # the database does not answer: the next time
                    pass
                except Exception:  # the others go on
                    _log.exception("streams")

    def _tick(self) -> None:
        if self._keeper.closed.is_set():
            return
        streams_at = Counter(each.replica for each in self._running.values() if each.replica is not None)
        for each in self._running.values():
            each.tick(self._allowance_of(each.owner).withheld(), streams_at)
        self._check_ours()
        now_s = time.monotonic()
        if now_s >= self._look_s + _LOOK_EVERY_S:
            self._look_s = now_s
            self._reconcile({each.id: each for each in self._store.unfinished()})
        for each in self._running.values():
            self._records.noted(each)
        self._settle()
        if now_s >= self._tell_s + _TELL_EVERY_S:
            self._tell_s = now_s
            untold = {name: each for name, each in self._running.items() if not each.is_told or each.why_waits}
            self._records.progressed(untold)

    def _reconcile(self, known: dict[str, JobRecord]) -> None:
        wanted = {
            name: each for name, each in known.items() if each.state in (JobState.QUEUED, JobState.RUNNING)
        }  # fmt: skip
        for each in self._running.values():
            if each.id not in wanted:
                is_paused = each.id in known and known[each.id].state is JobState.PAUSED
                each.stop(now=not is_paused)
            else:
                each.go_on()
        for record in wanted.values():
            if record.id in self._running:
                continue
            if why := self._why_waits(record):
                if record.reason != why:
                    self._store.move(record.id, JobMove.PUT_OFF, why)
            else:
                self._begin(record)

    def _why_waits(self, record: JobRecord) -> str:
        if len(self._running) >= MOST_AT_ONCE:
            return f"at most {MOST_AT_ONCE} streams run at once on a server"
        of_owner = sum(each.owner == record.owner for each in self._running.values())
        return self._allowance_of(record.owner).why_waits(of_owner)

    def _begin(self, record: JobRecord) -> None:
        try:
            settings, job = stream_of(record)
            allowed = self._allowance_of(record.owner)
            allowed.check_output(job.output)  # an earlier server may have had other roots
            fleet = self._fleet_of(job.model)
        except (TwoshiftError, msgspec.ValidationError) as error:  # the server serves something else now
            self._store.move(record.id, JobMove.BEGIN)
            self._records.failed(record.id, str(error))
            return
        if record.state is JobState.RUNNING:
            self._store.note(record.id, "the server was restarted")
        elif not self._store.move(record.id, JobMove.BEGIN):
            return
        progress = record.progress or {}
        has_committed = any(progress.get(name) for name in ("has_committed", "windows", "parts"))
        task = StreamTask(settings, job, allowed.blobs_for, has_committed)
        self._running[record.id] = HostedStream(record.id, task, fleet, record.owner)

    def _settle(self) -> None:
        """Tell the store of those that have ended, and forget them."""
        for each in list(self._running.values()):
            if each.end is not None:
                self._records.ended(each.id, each.end)
            elif each.is_wanted or not each.is_idle:
                continue
            self._records.progressed({each.id: each})
            self._ended[each.payer] = self._ended.get(each.payer, Used()).plus(each.used())
            del self._running[each.id]

    def _let_all_go(self) -> None:
        """Another server has the streams: what they have committed is there, and that one goes on."""
        if self._running:
            _log.warning("another server runs the streams now: %d streams stop on this server", len(self._running))
        for each in self._running.values():
            each.stop(now=True)
            each.tick("", Counter())
            if each.is_idle:
                self._ended[each.payer] = self._ended.get(each.payer, Used()).plus(each.used())
        self._running = {name: each for name, each in self._running.items() if not each.is_idle}
        self._look_s = 0.0
