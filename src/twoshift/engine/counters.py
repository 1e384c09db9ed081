"""What a device has done since the start; the engine's lock guards it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twoshift.engine.flight import Flight
from twoshift.engine.memory import MemoryCap
from twoshift.engine.stats import BESIDE_BATCH, BESIDE_NOTHING, CallRows, EngineStats, LiveTime
from twoshift.engine.waiting import LiveRow
from twoshift.errors import OutOfMemory
from twoshift.policy.lane_values import LaneUse
from twoshift.policy.lanes import LanePolicy
from twoshift.ports import Columns
from twoshift.types import Lane

__all__ = ["Counters"]


class Counters:
    """Calls, waits, failures, and the cap that follows from the memory."""

    def __init__(self, policy: LanePolicy, max_tokens: int) -> None:
        self._policy = policy
        self._memory = MemoryCap(max_tokens)
        self._waits_s = dict.fromkeys(Lane, 0.0)
        self._call_rows = {lane: CallRows() for lane in Lane}
        self.calls = 0  # those that the policy did not plan, too
        self._failed = self._out_of_memory = 0
        self._tenants: dict[str, LaneUse] = {}
        self._live = {beside: LiveTime() for beside in (BESIDE_BATCH, BESIDE_NOTHING)}

    def launched(self, flight: Flight, now_s: float) -> None:
        """A call goes onto the device: its rows have waited until now."""
        for row in flight.rows:
            self._waits_s[Lane.ONLINE] += now_s - row.arrived_s
        for piece in flight.pieces:
            self._waits_s[piece.job.lane] += len(piece) * (now_s - piece.job.arrived_s)

    def landed(self, flight: Flight, result: Columns | Exception, now_s: float) -> None:
        """A call has its result; where the memory ran out, the next ones are smaller for a while."""
        self.calls += 1
        if flight.rows:
            policy = self._policy
            beside = bool(flight.pieces or policy.background or policy.running.has_background)
            live = self._live[BESIDE_BATCH if beside else BESIDE_NOTHING]
            live.rows += len(flight.rows)
            live.seconds += sum([now_s - row.arrived_s for row in flight.rows])
        size = flight.call.size
        self._call_rows[Lane.ONLINE if flight.rows else flight.pieces[0].job.lane].add(size.rows)
        if not isinstance(result, Exception):
            if raised := self._memory.fitted(size.tokens):
                self._policy.cap_tokens(raised)
            return
        self._failed += 1
        if isinstance(result, OutOfMemory):
            self._out_of_memory += 1
            self._policy.cap_tokens(self._memory.ran_out(size.tokens))

    def paid(self, rows: Iterable[LiveRow], per_token_s: float, anew: bool = False) -> None:
        """Live rows of a call, whose time is shared by tokens. `anew`: they are counted already."""
        tenants, more = self._tenants, 0 if anew else 1
        for row in rows:
            use = tenants.get(row.tenant)
            if use is None:
                use = tenants[row.tenant] = LaneUse()
            use.rows += more
            use.tokens += row.tokens
            use.device_s += row.tokens * per_token_s

    def stats(self, busy_s: float) -> EngineStats:
        """A copy."""
        return EngineStats(
            lanes={lane: replace(use) for lane, use in self._policy.accounts.use.items()},
            waits_s=dict(self._waits_s),
            call_rows={lane: CallRows([*each.counts], each.rows) for lane, each in self._call_rows.items()},
            calls=self.calls,
            busy_s=busy_s,
            failed_calls=self._failed,
            out_of_memory=self._out_of_memory,
            max_tokens=self._policy.riders.max_tokens,
            tenants={name: replace(use) for name, use in self._tenants.items()},
            live={beside: replace(each) for beside, each in self._live.items()},
        )
