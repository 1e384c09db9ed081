"""A replica's side of live requests: one model, and what all who ask it share."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twoshift.engine.llm import FinishedSequence
from twoshift.engine.waiting import LiveRow
from twoshift.errors import Late, TryLater
from twoshift.fleet.load_board import LoadBoard
from twoshift.fleet.wire import Heartbeat, LlmBeat
from twoshift.policy.cost import CallCost
from twoshift.policy.host import TURN_S, FrameCost
from twoshift.serve.completions import Completions
from twoshift.serve.host import Host
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel
from twoshift.types import CallSize

__all__ = ["Answering", "AskingFront", "AtFront"]

_ONE = CallSize.uniform(1)
_MANY = 4096  # sequences that have ended since the last heartbeat: older ones are not told of


class AskingFront(Protocol):
    """Who asks."""

    def send(self, data: bytes, /) -> None:
        """Whole frames, from any thread."""
        ...

    def launching(self, requests: list[int], now_s: float, /) -> None:
        """Rows of these requests are about to be launched; from any thread."""
        ...


class AtFront(Protocol):
    """A request, and the front whose it is."""

    @property
    def connection(self) -> AskingFront: ...

    @property
    def number(self) -> int:
        """As that front numbers it."""
        ...


class Answering:
    """Made on the loop that answers. Where a front listens no more, nobody waits: the control line says what then."""

    def __init__(self, model: ServedModel | ServedLlm, same_clock: bool = True, board: LoadBoard | None = None) -> None:
        self.model, self.same_clock = model, same_clock
        self.offered_rows = self.refused_rows = 0
        on_gpu = isinstance(model, ServedModel) and model.engine.runtime.info.live_stream
        self.host = Host(TURN_S if on_gpu else 0.0)  # a model on the CPU has the loop's cores, too
        self.completions = Completions(self.host)
        self.asking, self.replying = FrameCost(), FrameCost()  # of all fronts
        self._unsent: list[Callable[[], None]] = []  # who has replies in this turn of the loop
        self._loop, self._board, self._is_changed = asyncio.get_running_loop(), board, False
        self._finished: deque[FinishedSequence] = deque(maxlen=_MANY)
        model.start(self.completions)
        if isinstance(model, ServedLlm):
            model.engine.on_finished = self._finished.append  # the front has the histograms
        else:
            model.engine.on_launch = _launching

    def send_replies(self) -> None:
        """What is answered by now goes out before anything else is done: it must not wait behind new requests."""
        self.completions.deliver()
        unsent, self._unsent = self._unsent, []
        for send in unsent:
            send()

    def has_replies(self, send: Callable[[], None]) -> None:
        """In this turn of the loop, or before the next frame is looked at."""
        if not self._unsent:
            self._loop.call_soon(self.send_replies)
        self._unsent.append(send)

    def refused(self, rows: int, had_s: float, error: BaseException) -> None:
        """A request of so many rows, which had so much time, ends without an answer."""
        if isinstance(error, Late) and error.begun:
            self.host.policy.was_late(had_s, time.monotonic())
        self.refused_rows += rows if isinstance(error, TryLater) else 0

    def changed(self) -> None:
        """Somebody was admitted or answered: in this turn of the loop the board is written."""
        if self._board is not None and not self._is_changed:
            self._is_changed = True
            self._loop.call_soon(self._write)

    def beat(self, cost: CallCost | None, derived: dict[str, Any] | None) -> Heartbeat:
        """How it is; the curve and what follows from it where they are to be told."""
        self.changed()
        model, policy = self.model, self.host.policy
        reserve_s = policy.reserve_s(model.derived.slo_s, time.monotonic())
        llm = LlmBeat(model.sequences(), self._taken_finished()) if isinstance(model, ServedLlm) else None
        health, curve = model.health(), None if cost is None else cost.to_dict()
        return Heartbeat(
            model.stats(), model.waiting(), health.running_s, health.reason, curve, derived, self.host.request_s,
            reserve_s, llm,
        )  # fmt: skip

    def _taken_finished(self) -> list[FinishedSequence]:
        """Told to one front: what all of them say sums up."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def _write(self) -> None:
        self._is_changed = False
        model = self.model
        if self._board is not None and isinstance(model, ServedModel):
            wait_s = model.engine.live.finish_in_s(_ONE, 0.0) + self.host.policy.ahead_s
            self._board.write(time.monotonic() + wait_s if wait_s else -math.inf)


def _launching(rows: Sequence[LiveRow]) -> None:
    """In the engine's thread, before it launches them."""
    started, before = dict[AskingFront, list[int]](), None
    for row in rows:
        asked: AtFront | None = getattr(row.future, "asked", None)
        if asked is not None and asked is not before:  # rows of one request lie side by side
            started.setdefault(asked.connection, []).append(asked.number)
        before = asked
    now_s = time.monotonic()
    for connection, numbers in started.items():
        connection.launching(numbers, now_s)
