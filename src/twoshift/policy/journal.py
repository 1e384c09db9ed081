"""A record of what a device's policies were told and what they decided, and its replay.

A journal is a header and a list of entries, all plain JSON values. The same events give the same decisions, so a
recorded hour of production can be replayed, stopped and looked at on a laptop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, assert_never

from twoshift.errors import Broken
from twoshift.policy.admission import AdmissionPolicy, Admit, Answer, Never, Refuse, Try
from twoshift.policy.background_queue import Block, Slice
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import Call, Drop, Idle, LaneLimits, Run, Slot
from twoshift.policy.lanes import LanePolicy
from twoshift.types import Item, Lane

__all__ = ["RecordedAdmission", "RecordedLanes", "Replay", "replay"]

_Entry = list[Any]
_FORMAT = 2
_MOST_ROWS = 10_000_000


class RecordedLanes(LanePolicy):
    """A LanePolicy that reports every event and every decision to `sink`."""

    def __init__(
        self,
        cost: CallCost,
        limits: LaneLimits,
        sink: Callable[[_Entry], None],
        lane_cost: CallCost | None = None,
    ) -> None:
        super().__init__(cost, limits, lane_cost)
        self.sink = sink
        in_lane = [] if lane_cost is None else [lane_cost.to_dict()]
        sink(["twoshift-lanes", _FORMAT, cost.to_dict(), asdict(limits), *in_lane])

    def submit(self, item: Item, now_s: float) -> None:
        self.sink(["submit", now_s, *_item(item)])
        super().submit(item, now_s)

    def submit_together(self, items: Sequence[Item], now_s: float) -> None:
        for item in items:
            self.submit(item, now_s)

    def submit_block(self, block: Block, now_s: float) -> None:
        runs = [[length, len(list(group))] for length, group in itertools.groupby(block.lengths)]
        flags = [block.owed, block.alone, block.owner, block.weight, block.signature]
        self.sink(["block", now_s, block.key, runs, block.lane.value, _finite(block.deadline_s), *flags])
        super().submit_block(block, now_s)

    def hold(self, owner: int) -> None:
        self.sink(["hold", owner])
        super().hold(owner)

    def release(self, owner: int) -> None:
        self.sink(["release", owner])
        super().release(owner)

    def cancel(self, key: int) -> bool:
        self.sink(["cancel", key])
        return super().cancel(key)

    def cancel_block(self, key: int) -> Slice | None:
        self.sink(["cancel_block", key])
        return super().cancel_block(key)

    def finished(self, call: Call, elapsed_s: float, failed: bool = False, device_s: float | None = None) -> None:
        self.sink(["finished", call.number, elapsed_s, failed, device_s])
        super().finished(call, elapsed_s, failed, device_s)

    def cap_tokens(self, max_tokens: int) -> None:
        self.sink(["cap_tokens", max_tokens])
        super().cap_tokens(max_tokens)

    def slow_down(self, factor: float, now_s: float) -> None:
        self.sink(["slow_down", factor, now_s])
        super().slow_down(factor, now_s)

    def decide(self, now_s: float, slot: Slot = Slot.SHARED) -> Run | Drop | Idle:
        decision = super().decide(now_s, slot)
        self.sink(["decide", now_s, slot.value, _decision(decision)])
        return decision


class RecordedAdmission(AdmissionPolicy):
    """An AdmissionPolicy that records its answers in the journal of its lanes."""

    def __init__(self, lanes: RecordedLanes, max_waiting: int = 4096) -> None:
        super().__init__(lanes, max_waiting)
        self._sink = lanes.sink
        self._sink(["max_waiting", max_waiting])

    def decide(self, items: Sequence[Item], now_s: float, since_s: float | None = None, spare_s: float = 0.0) -> Answer:
        answer = super().decide(items, now_s, since_s, spare_s)
        since = [] if since_s is None else [since_s, spare_s] if spare_s else [since_s]
        self._sink(["admit", now_s, [_item(item) for item in items], _answer(answer), *since])
        return answer


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay, compared with its record."""

    decisions: int
    difference: str | None  # None: every decision was the same


def replay(entries: Iterable[_Entry]) -> Replay:
    """Feed recorded events to new policies and compare the decisions; raises Broken if the journal cannot be read."""
    decisions = 0
    try:
        stream = iter(entries)
        player = _Player(next(stream, list[Any]()))
        for number, entry in enumerate(stream, start=2):
            if entry[:1] == ["end"]:
                if entry[1:] != [number - 1]:
                    last = ", ".join(map(str, entry[1:]))
                    return Replay(
                        decisions,
                        f"the journal has {number - 1} entries, but its last line counts {last}: "
                        "some entries are missing",
                    )
                continue
            for recorded, decided in player.play(entry):
                decisions += 1
                if recorded != decided:
                    return Replay(
                        decisions,
                        f"entry {number}: the recorded decision is {recorded!s:.200}, "
                        f"but the replayed decision is {decided!s:.200}",
                    )
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise Broken(f"the journal cannot be replayed: {error}"[:500]) from error
    return Replay(decisions, None)


class _Player:
    def __init__(self, header: _Entry) -> None:
        if header[:2] != ["twoshift-lanes", _FORMAT]:
            raise Broken(
                f"the journal cannot be replayed: it does not begin with a twoshift-lanes header of format {_FORMAT}; "
                "record the journal again with `twoshift sim lanes --record`"
            )
        in_lane = CallCost.from_dict(header[4]) if len(header) > 4 else None
        self._lanes = LanePolicy(CallCost.from_dict(header[2]), _limits(header[3]), in_lane)
        self._admission = AdmissionPolicy(self._lanes)
        self._calls: dict[int, Call] = {}  # number -> a call that runs

    def play(self, entry: _Entry) -> Iterable[tuple[_Entry, _Entry]]:
        """Apply one entry; yields (recorded, decided) where it holds a decision."""
        match entry:
            case ["submit", now_s, *item]:
                self._lanes.submit(_read_item(item), now_s)
            case ["block", now_s, key, runs, lane, deadline_s, *flags]:
                if sum(abs(count) for _, count in runs) > _MOST_ROWS:
                    raise ValueError(f"a block of more than {_MOST_ROWS:,} rows")
                lengths = [length for length, count in runs for _ in range(count)]
                deadline_s = float("inf") if deadline_s is None else deadline_s
                self._lanes.submit_block(Block(key, lengths, Lane(lane), deadline_s, *flags), now_s)
            case ["hold", owner]:
                self._lanes.hold(owner)
            case ["release", owner]:
                self._lanes.release(owner)
            case ["max_waiting", max_waiting]:
                self._admission.max_waiting = max_waiting
            case ["cancel", key]:
                self._lanes.cancel(key)
            case ["cancel_block", key]:
                self._lanes.cancel_block(key)
            case ["finished", number, elapsed_s, failed, device_s]:
                if number not in self._calls:
                    raise ValueError("the journal contains the end of a call, but not the start of that call")
                self._lanes.finished(self._calls.pop(number), elapsed_s, failed, device_s)
            case ["cap_tokens", max_tokens]:
                self._lanes.cap_tokens(max_tokens)
            case ["slow_down", factor, now_s]:
                self._lanes.slow_down(factor, now_s)
            case ["decide", now_s, slot, recorded]:
                decision = self._lanes.decide(now_s, Slot(slot))
                if isinstance(decision, Run):
                    self._calls[decision.call.number] = decision.call
                yield recorded, _decision(decision)
            case ["admit", now_s, items, recorded, *since]:
                yield recorded, _answer(self._admission.decide([_read_item(item) for item in items], now_s, *since))
            case _:
                raise ValueError(f"unknown entry {entry[:1]}")


def _limits(data: Mapping[str, Any]) -> LaneLimits:
    return LaneLimits(**data)


def _item(item: Item) -> _Entry:
    return [item.key, _finite(item.deadline_s), item.tokens, *([item.signature] if item.signature else [])]


def _read_item(entry: _Entry) -> Item:
    key, deadline_s, *rest = entry
    return Item(key, float("inf") if deadline_s is None else deadline_s, *rest)


def _finite(seconds: float) -> float | None:
    return seconds if seconds < float("inf") else None


def _slices(slices: Iterable[Slice]) -> list[list[int]]:
    return [[part.block, part.start, part.stop] for part in slices]


def _decision(decision: Run | Drop | Idle) -> _Entry:
    match decision:
        case Run(call):
            return ["run", [item.key for item in call.live], _slices(call.background), call.predicted_s]
        case Drop(live, background):
            return ["drop", [item.key for item in live], _slices(background)]
        case Idle(until_s):
            return ["idle", until_s]
        case _:
            assert_never(decision)


def _answer(answer: Answer) -> _Entry:
    match answer:
        case Admit(finish_s):
            return ["admit", finish_s]
        case Refuse(retry_after_s, reason):
            return ["refuse", retry_after_s, reason]
        case Try(until_s):
            return ["try", until_s]
        case Never(reason):
            return ["never", reason]
        case _:
            assert_never(answer)
