"""One device under a virtual clock, driven by the very policies that production runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from twoshift.policy.admission import AdmissionPolicy, Admit
from twoshift.policy.background_queue import Block
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Drop, Idle, Run
from twoshift.policy.lanes import LanePolicy
from twoshift.sim.traffic import Arrivals
from twoshift.types import Item

__all__ = ["DeviceLog", "SimulatedDevice"]

_BLOCK_ROWS = 4096


@dataclass(slots=True)
class DeviceLog:
    """What happened to the live rows, and what the device did."""

    latencies_s: list[float] = field(default_factory=list[float])  # of the answered rows
    in_slo: int = 0
    refused: int = 0
    dropped: int = 0
    background_rows: int = 0
    live_s: float = 0.0
    background_s: float = 0.0


class SimulatedDevice:
    """Runs arrivals through a lane policy; a call lasts what the true cost says, times noise."""

    def __init__(
        self,
        policy: LanePolicy,
        true_cost: CallCost,
        admission: AdmissionPolicy | None = None,
        noise: Callable[[], float] | None = None,
        progress: Callable[[float], None] | None = None,  # told the share done, now and then
    ) -> None:
        self._policy = policy
        self._cost = true_cost.at(0.5)
        self._admission = admission
        self._noise = noise
        self._progress = progress
        self._blocks = 0

    def run(self, arrivals: Arrivals, slo_s: float, background_length: int = 0) -> DeviceLog:
        """Serve the arrivals to the last row; an endless backlog rides along where a length is given."""
        log = DeviceLog()
        pending = _Pending(zip(arrivals.times_s.tolist(), arrivals.tokens.tolist(), strict=True))
        now_s = 0.0
        while now_s < arrivals.horizon_s or pending.next_s < np.inf or len(self._policy.live):
            self._arrive(pending, now_s, slo_s, log)
            if background_length and now_s < arrivals.horizon_s:
                self._refill(background_length, now_s)
            if self._progress:
                self._progress(min(1.0, now_s / arrivals.horizon_s))
            decision = self._policy.decide(now_s)
            if isinstance(decision, Run):
                now_s = self._execute(decision.call, now_s, pending, slo_s, log, arrivals.horizon_s)
            elif isinstance(decision, Drop):
                log.dropped += len(decision.live)
                if decision.background:
                    background_length = 0  # a row that fits no call: an endless backlog would be dropped for ever
            else:
                now_s = self._wait(decision, pending, arrivals.horizon_s)
        return log

    def _arrive(self, pending: _Pending, until_s: float, slo_s: float, log: DeviceLog) -> None:
        while pending.next_s <= until_s:
            at_s, tokens = pending.pop()
            item = Item(pending.count, at_s + slo_s, tokens)
            if self._admission and not isinstance(self._admission.decide([item], at_s), Admit):
                log.refused += 1
            else:
                self._policy.submit(item, at_s)

    def _refill(self, length: int, now_s: float) -> None:
        if not self._policy.background:
            self._policy.submit_block(Block(self._blocks, [length] * _BLOCK_ROWS), now_s)
            self._blocks += 1

    def _execute(
        self, call: Call, now_s: float, pending: _Pending, slo_s: float, log: DeviceLog, horizon_s: float
    ) -> float:
        elapsed_s = self._cost.seconds(call.size) * (self._noise() if self._noise else 1.0)
        end_s = now_s + elapsed_s
        self._arrive(pending, end_s, slo_s, log)
        self._policy.finished(call, elapsed_s)
        for item in call.live:
            log.latencies_s.append(end_s - (item.deadline_s - slo_s))
            log.in_slo += end_s <= item.deadline_s + 1e-9
        if end_s <= horizon_s:
            rows = sum(part.stop - part.start for part in call.background)
            tokens = sum(part.tokens for part in call.background)
            log.background_rows += rows
            log.background_s += elapsed_s * tokens / call.size.tokens
            log.live_s += elapsed_s * (1 - tokens / call.size.tokens)
        return end_s

    @staticmethod
    def _wait(idle: Idle, pending: _Pending, horizon_s: float) -> float:
        wake_s = min(pending.next_s, np.inf if idle.until_s is None else idle.until_s)
        return wake_s if wake_s < np.inf else horizon_s


class _Pending:
    """Arrivals yet to come."""

    def __init__(self, rows: Iterator[tuple[float, int]]) -> None:
        self._rows = rows
        self.count = 0
        self._next = next(rows, None)

    @property
    def next_s(self) -> float:
        return self._next[0] if self._next else np.inf

    def pop(self) -> tuple[float, int]:
        assert self._next is not None  # noqa: S101 - the caller has looked at next_s
        row, self._next = self._next, next(self._rows, None)
        self.count += 1
        return row
