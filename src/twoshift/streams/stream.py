"""A stream from its source to committed parts: collects windows, scores them, and goes on where it was stopped."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twoshift.batch.device import WorkDevice
from twoshift.batch.folder import one_coordinator, remove_leftovers
from twoshift.batch.loading import JobLoading
from twoshift.batch.plan import Plan, plan_location
from twoshift.batch.settings import JobSettings
from twoshift.batch.windows import Stopped
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput, TryLater, UnusableRows
from twoshift.policy.freshness import Close, Collect, FreshnessPolicy, WindowCost
from twoshift.policy.retries import RetryPolicy
from twoshift.policy.window_cost import ArrivalRate, WindowCostLearner
from twoshift.ports import Blobs
from twoshift.streams.commits import CommittedPart, OutputGone, StreamOutput
from twoshift.streams.compaction import Compactor
from twoshift.streams.dead_letters import DeadLetters
from twoshift.streams.outlet import Outlet, Sending
from twoshift.streams.planning import checked_plan, existing_plan, frozen_plan, write_plan
from twoshift.streams.progress import StreamCounts, StreamSnapshot
from twoshift.streams.scoring import AT_ONCE, Committed, WindowScorer
from twoshift.streams.settings import StreamSettings
from twoshift.streams.source import Arrived, StreamSource
from twoshift.streams.window import StreamWindow
from twoshift.types import Lane

__all__ = ["Stream", "StreamParts"]

_log = logging.getLogger(__name__)
_JOB_DIGITS = 16
_POLL_S = 0.5  # between looks at what was asked of it
_RATE_OVER_S = 30.0
_FIXED_S = 0.05  # of a window, until some were committed
_MOST_UNUSABLE = 1000  # rows of which none can be scored, before a stream has ever scored one
_AGAIN = RetryPolicy(0.5, 30.0, math.inf)
_JUMP_S = 5.0  # of the clock, between two looks
_BEHIND = 2.0  # windows that may wait before it is said when it will be up to date
Report = Callable[[StreamSnapshot], None]
_SHARES = AT_ONCE + 1  # of the buffer: those in work, and the one that is collected


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What a stream is made of."""

    source: StreamSource
    open_device: Callable[[JobSettings], WorkDevice]
    blobs_for: Callable[[str], Blobs]
    outlet: Outlet | None = None
    has_committed: bool = False  # whether its folder must have what it has committed before
    owner: BlockOwner = field(default_factory=lambda: BlockOwner(lane=Lane.MICRO))  # whose rows they are on the device


class Stream:
    """One output folder, worked on by one stream at a time."""

    def __init__(self, settings: StreamSettings, job: JobSettings, parts: StreamParts) -> None:
        self._loading = JobLoading(job)
        self._settings, self._job = settings, self._loading.shown_settings
        self._source, self._open, self._blobs_for = parts.source, parts.open_device, parts.blobs_for
        self._outlet, self._owner, self._has_committed = parts.outlet, parts.owner, parts.has_committed
        self._sending: Sending | None = None
        self._output = self._blobs_for(job.output)
        self._counts = StreamCounts(settings.fresh, job.price_usd_per_hour)
        self._policy = FreshnessPolicy(settings.fresh)
        self._rate, self._cost = ArrivalRate(_RATE_OVER_S), WindowCostLearner(WindowCost(_FIXED_S, 1e-3))
        self._stop, self._stop_now, self._stop_at_s = threading.Event(), False, math.inf
        self._attempts, self._failing_since_s = 0, 0.0  # of a source that does not answer
        self._retry_s = 0.0
        self._behind: float | None = None
        self._is_drained = False  # whether the source had nothing when it was last asked
        self._clock_s = time.time() - time.monotonic()
        self._window = StreamWindow(0)
        self._scorer: WindowScorer | None = None
        self._compactor: Compactor | None = None

    @property
    def counts(self) -> StreamCounts:
        """Of this run."""
        return self._counts

    def stop(self, now: bool = False) -> None:
        """Commit what is in work, or give it up; for signal handlers and other threads."""
        self._stop_now = self._stop_now or now
        self._stop_at_s = min(self._stop_at_s, time.monotonic() + self._job.grace_seconds)
        self._stop.set()
        if now and self._scorer is not None:
            self._scorer.give_up()
        if self._sending is not None and (now or not self._sending.is_begun):
            self._sending.stop()

    def run(self, report: Report, loaded: Callable[[], None] = lambda: None) -> StreamSnapshot:
        """Until it is stopped, or with `once` until nothing waits; raises InvalidInput, Broken.

        `loaded` is called once the model is loaded.
        """
        self._check_not_gone()
        with one_coordinator(self._job.output), contextlib.closing(self._source):
            remove_leftovers(self._job.output)
            begun = existing_plan(self._output, self._job)
            folder = StreamOutput(self._output, self._job.output)
            committed = folder.recover()
            self._check_ours(begun, committed)
            marks = folder.marks(committed if self._source.needs_all_marks else committed[-1:])
            self._window = StreamWindow(committed[-1].last + 1 if committed else 0)
            DeadLetters(self._output, self._job.output).remove_from(self._window.number)
            device = self._open(self._job)
            try:
                loaded()
                self._job.check_prompt_name(device.info.prompts)
                self._source.begin([mark.position for mark in marks])
                plan = checked_plan(begun, self._job, device) if begun else self._first_plan(device, report)
                if plan is not None:
                    self._score(plan, device, committed, report)
            finally:
                device.close()
        return self._counts.snapshot

    def _check_not_gone(self) -> None:
        """Before anything is written, so that the folder can be put back."""
        if self._has_committed and self._output.stat(plan_location(self._job.output)) is None:
            raise OutputGone.on_server(self._job.output)

    def _check_ours(self, begun: Plan | None, committed: list[CommittedPart]) -> None:
        folder = f"{self._job.output.rstrip('/')}/"
        if begun is None and (committed or any(not name.startswith(("_", ".")) for name in self._output.names(folder))):
            accepted = "an empty or new folder; this folder contains files, but no stream"
            raise InvalidInput("output", self._job.output, accepted)

    def _first_plan(self, device: WorkDevice, report: Report) -> Plan | None:
        """Once a row can be scored; None where it was stopped before."""
        while not self._stop.is_set():
            arrived = self._take(_MOST_UNUSABLE, _POLL_S, self._room)
            report(self._counts.snapshot)
            if arrived is None:
                if self._settings.once and not self._attempts and self._behind is None:
                    return None
                continue
            self._window.add(arrived, time.monotonic())
            try:
                plan = frozen_plan(self._window, self._job, device, self._blobs_for)
            except UnusableRows as error:
                if self._window.rows >= _MOST_UNUSABLE or self._settings.once:
                    raise error.renamed("source") from error
                _log.warning("the stream waits for a row that can be scored: %s", error)
                continue
            self._loading.check(plan.schema, is_whole=True)
            write_plan(self._output, plan)
            return plan
        return None

    # While it runs

    def _score(
        self, plan: Plan, device: WorkDevice, committed: list[CommittedPart],
        report: Report,
    ) -> None:  # fmt: skip
        engine, owner = device.begin(plan.seconds_per_row), self._owner
        self._cost = WindowCostLearner(WindowCost(_FIXED_S, plan.seconds_per_row))
        self._scorer = WindowScorer(engine, plan, self._blobs_for, owner, self._source.merged, self._counts)
        self._compactor = Compactor(plan, self._output, self._source.merged, committed, self._settings.compact)
        self._counts.has_parts(len(committed))
        self._begin_loading(plan, committed)
        try:
            self._begin_sending(plan, committed)
            while not self._is_over():
                self._step(self._scorer)
                report(self._counts.snapshot)
            while self._scorer.in_work and not self._stop_now and time.monotonic() < self._stop_at_s:
                self._reap(self._scorer, _POLL_S)
                report(self._counts.snapshot)
            self._loading.finish(range(self._committed_windows), lambda _: None)
            if self._sending is not None:
                left_s = self._stop_at_s - time.monotonic()
                self._sending.finish(None if math.isinf(left_s) else max(0.0, left_s))
        except Stopped:
            _log.warning("windows in progress were abandoned; run the same command again to score these windows")
        finally:
            self._scorer.close(now=True)
            self._compactor.close()
            self._loading.close()
            if self._sending is not None:
                self._sending.close()

    @property
    def _committed_windows(self) -> int:
        return self._window.number - (len(self._scorer.in_work) if self._scorer else 0)

    def _begin_loading(self, plan: Plan, committed: list[CommittedPart]) -> None:
        self._loading.begin(plan, self._output, [part.first for part in committed if part.windows == 1])
        first = self._loading.next_shard
        if first is not None and any(part.windows > 1 and part.last >= first for part in committed):
            accepted = (
                "a store that already has the rows of the parts that `compact` has merged, because the stream cannot "
                "load these rows any more"
            )
            raise InvalidInput("into", self._job.into, accepted)

    def _begin_sending(self, plan: Plan, committed: list[CommittedPart]) -> None:
        if self._outlet is not None:
            frozen = self._output.read(plan_location(self._job.output)) or b""
            job = hashlib.sha256(frozen).hexdigest()[:_JOB_DIGITS]
            self._sending = Sending(self._outlet, job, plan, self._output, self._counts)
            self._sending.begin([part.first for part in committed if part.windows == 1], self._committed_windows)

    def _is_over(self) -> bool:
        if self._stop.is_set():
            return True
        if not self._settings.once or self._attempts or self._window.taken or self._scorer is None:
            return False
        return not self._scorer.in_work and self._is_drained and self._behind is None

    def _step(self, scorer: WindowScorer) -> None:
        """One thing: a window that is committed, closed, or has more rows."""
        is_full = len(scorer.in_work) >= AT_ONCE
        if self._reap(scorer, _POLL_S if is_full else 0.0) or is_full:
            return
        cost, now_s = self._cost.cost, time.monotonic()
        decision = self._policy.decide(
            self._window.state, cost, self._rate.rows_per_s, self._busy_until_s(scorer, now_s), now_s
        )
        room = self._room
        if isinstance(decision, Close) or (self._window.taken and room <= 0):
            self._close(scorer)
            return
        self._collect(scorer, decision, room, now_s)

    @property
    def _room(self) -> int:
        """Bytes that the window may still take."""
        return int(self._settings.buffer / _SHARES) - self._window.size_bytes

    def _collect(self, scorer: WindowScorer, decision: Collect, room: int, now_s: float) -> None:
        """What waits already comes first; then as long as the window may stay open."""
        until_s = math.inf if decision.until_s is None else decision.until_s
        wait_s = min(_POLL_S, max(0.0, until_s - now_s)) if self._behind is None else 0.0
        if scorer.in_work:
            wait_s = min(wait_s, 0.05)  # a window that is committed is not to wait for rows
        arrived = self._take(decision.most_rows, wait_s, room)
        while arrived is not None:
            self._window.add(arrived, time.monotonic())
            left, room = decision.most_rows - self._window.rows, room - arrived.size_bytes
            if not arrived.has_more or left <= 0 or room <= 0 or self._stop.is_set():
                return
            arrived = self._take(left, 0.0, room)
        if self._settings.once and self._window.taken and not self._attempts:
            self._close(scorer)

    def _close(self, scorer: WindowScorer) -> None:
        scorer.begin(self._window)
        self._window = StreamWindow(self._window.number + 1)

    def _reap(self, scorer: WindowScorer, wait_s: float) -> bool:
        """Whether a window is committed."""
        done = scorer.committed(wait_s)
        if done is None:
            return False
        now_s = time.monotonic()
        self._account(done, now_s)
        if self._compactor is not None:
            self._compactor.add(done.part, self._mergeable_below)
            self._counts.has_parts(*self._compactor.counts())
        return True

    def _account(self, done: Committed, now_s: float) -> None:
        stats, window = done.stats, done.window
        self._cost.observe(max(1, stats.rows), done.took_s)
        ages = window.ages_at(now_s)
        longest_s = max((age.seconds for age in ages), default=0.0)
        self._counts.committed(stats.rows, stats.errors, done.dead_letters, ages, longest_s)
        self._loading.add([window.number])
        if self._sending is not None:
            self._sending.add(window.number + 1)
        if self._loading.problem:
            self._counts.problem("store", self._loading.problem)
            self._loading.raise_failure()

    @property
    def _mergeable_below(self) -> int | None:
        """Windows before this one are wherever they have to go; None: all."""
        ahead = (self._loading.next_shard, None if self._sending is None else self._sending.next_window)
        return min((each for each in ahead if each is not None), default=None)

    def _busy_until_s(self, scorer: WindowScorer, now_s: float) -> float:
        """When the windows in work are done, about: all but the last, beside whose end the next one is read."""
        ahead = scorer.in_work[1:]
        return now_s + sum(self._cost.cost.seconds(each.rows) for each in ahead) if ahead else now_s

    def _take(self, most_rows: int, wait_s: float, most_bytes: int) -> Arrived | None:
        """The source's next rows; a source that does not answer is asked again later, and later."""
        now_s = time.monotonic()
        if self._attempts and now_s < self._retry_s:
            self._stop.wait(min(wait_s, self._retry_s - now_s))
            return None
        try:
            arrived = self._source.take(most_rows, most_bytes, wait_s)
        except TryLater as error:
            self._failing_since_s = self._failing_since_s if self._attempts else now_s
            self._attempts += 1
            pause_s = _AGAIN.pause_s(self._attempts, now_s - self._failing_since_s) or _AGAIN.longest_s
            self._retry_s = time.monotonic() + pause_s
            self._counts.problem("source", str(error))
            _log.warning("%s does not answer; next attempt in %.1f s: %s", self._source.name, pause_s, error)
            return None
        if self._attempts:
            self._attempts = 0
            self._counts.solved()
        self._is_drained = arrived is None
        self._look(0 if arrived is None else arrived.rows)
        return arrived

    def _look(self, taken: int) -> None:
        """How many rows arrive and wait."""
        self._look_at_clock()
        now_s, waiting = time.monotonic(), self._source.waiting()
        behind = waiting.rows or 0.0
        self._rate.saw(max(0, taken + round(behind - (self._behind or 0.0))), now_s)
        self._behind = behind or None
        windows = [*(self._scorer.in_work if self._scorer else ()), self._window]
        oldest = (now_s - each.state.oldest_s for each in windows if each.taken)
        cost = self._cost.cost
        is_behind = behind > _BEHIND * self._policy.most_rows(cost)
        catch_up = self._policy.catch_up(behind, self._rate.rows_per_s, cost) if is_behind else None
        self._counts.stands(waiting, max((waiting.oldest_s, *oldest)), catch_up)

    def _look_at_clock(self) -> None:
        """Windows follow a clock that never jumps; ages of rows are told by the other one, too."""
        offset_s = time.time() - time.monotonic()
        jump_s, self._clock_s = offset_s - self._clock_s, offset_s
        if abs(jump_s) >= _JUMP_S:
            self._counts.happened("clock")
            _log.warning("this machine's clock has jumped by %.1f s: the waiting times of rows may be wrong", jump_s)
