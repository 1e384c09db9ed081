"""A model whose replicas run elsewhere: requests go to the one that will have done first."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence

from twoshift.endpoints.facts import characters_of
from twoshift.errors import Late, TryLater
from twoshift.fleet.control import Loaded
from twoshift.fleet.fleet_backend import FleetBackend
from twoshift.fleet.front_rows import FrontPreparing, FrontRows
from twoshift.fleet.link import ReplicaLost
from twoshift.fleet.load_board import LoadReading
from twoshift.fleet.wire import Heartbeat
from twoshift.policy.body_guess import BodyGuess
from twoshift.policy.cost import CallCost
from twoshift.policy.routing import RoutingPolicy, TokenGuess
from twoshift.serve.derived import Derived
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import Answer
from twoshift.serve.sums import derived_together
from twoshift.types import CallSize, Lane

__all__ = ["FleetModel"]

_TRIES = 2  # at two replicas, inside its deadline
_RETRY_S = 1.0  # when to come back after a crash


class FleetModel(FleetBackend[Derived]):
    """Rows, which one replica answers together."""

    def __init__(self, name: str, prepares: bool = False) -> None:
        """`prepares`: rows are prepared here, where the model lets them; else by the replicas."""
        super().__init__(name)
        self._prepares, self._preparing = prepares, None
        self._boards: dict[int, LoadReading] = {}  # of replicas that others ask, too
        self._routing = RoutingPolicy()
        self._requests = itertools.count()
        self._derived: dict[int, Derived] = {}  # of those that can be asked

    def _opened(self, opened: Sequence[Loaded]) -> Derived:
        most_tokens = self.info.max_row_tokens
        self._guess, self._body_guess = TokenGuess(most_tokens), BodyGuess(most_tokens)
        if self._prepares and self._first.preparer is not None:
            self._preparing = FrontPreparing(self.name, self._first, self._first.preparer.unpacked)
        return derived_together([each.derived for each in opened])

    def derived_now(self) -> Derived:
        """From the curves as learned so far."""
        return derived_together([*self._derived.values()] or [self._first.derived])

    @property
    def rows_per_request(self) -> float:
        """On the average, of late."""
        return self._body_guess.rows_per_request

    def finish_in_s(self, size: int, requests: int, _left_s: float) -> float:
        """Until so many requests of so many bytes would be answered by a replica; 0 where one has nothing to do."""
        if self._fleet.scales_itself:
            return 0.0  # a replica refuses, and counts it
        self._look()
        return self._routing.least_s(self._body_guess.size(size, requests), time.monotonic())

    def close(self) -> None:
        """End the replicas."""
        super().close()
        if self._preparing is not None:
            self._preparing.close()

    async def answer(self, request: LiveRequest) -> Answer:
        """As a replica answers it; one that is lost before it began, or refuses, is not the only one that is asked."""
        given, visit = None, request.visit
        characters = list[int]()
        await self.group.awake(len(request.rows), request.deadline_s, visit)
        self._look()
        if self._preparing is not None:
            given = await self._preparing.prepared(
                request, lambda least: self._routing.least_s(least, time.monotonic())
            )
            size = given.size
        else:
            characters = characters_of(request.rows)
            size = self._guess.size(characters)
        refused: TryLater | None = None
        tried = list[int]()
        while len(tried) < _TRIES and (found := self._routing.choose(size, time.monotonic(), tried)) is not None:
            tried.append(found)
            try:
                answer = await self._ask(found, size, request, given)
            except ReplicaLost as lost:
                ran = "while it ran" if lost.started else "before it ran"
                refused = refused or TryLater(f"the replica was lost {ran} the request", _RETRY_S)
                if lost.started and not await lost.was_killed(request.deadline_s):
                    break  # the request may be what ended it, and would end the next
            except TryLater as error:
                refused = error if refused is None or error.retry_after_s < refused.retry_after_s else refused
            else:
                self._guess.seen(sum(characters), answer.tokens)
                if visit is not None:
                    self._body_guess.seen(visit.size, len(request.rows), answer.tokens)
                return answer
            now_s = time.monotonic()
            if now_s + self._routing.least_s(size, now_s, tried) >= request.deadline_s:
                break  # the others have no time for it either
        raise refused or TryLater(f"no replica is available: {self._fleet.why_none()}", _RETRY_S)

    def _look(self) -> None:
        """What all fronts together have sent to each replica, and what each has launched."""
        self.group.look()
        for replica, board in self._boards.items():
            self._routing.posted(replica, board.read())

    async def _ask(self, replica: int, size: CallSize, request: LiveRequest, given: FrontRows | None) -> Answer:
        link, number = self.group.link(replica), next(self._requests)
        self._routing.sent(replica, number, size, time.monotonic())
        try:
            if given is None:
                answer = await link.ask(number, request)
            else:
                answer = await link.ask_prepared(number, given, request)
        except (Late, asyncio.CancelledError):
            link.look()  # one that has begun keeps its device
            self._routing.abandoned(replica, number, time.monotonic())
            raise
        except BaseException:
            self._routing.ended(replica, number)
            raise
        self._routing.answered(replica, number, time.monotonic())
        return answer

    # What the group says of replicas

    def joined(self, replica: int, opened: Loaded) -> None:
        """It takes requests from now on."""
        self._derived[replica] = opened.derived
        self._routing.joined(replica, opened.cost)
        if self._prepares and opened.board_path:
            with contextlib.suppress(OSError):  # it is gone already
                self._boards[replica] = LoadReading(opened.board_path)

    def left(self, replica: int) -> None:
        """It takes no more."""
        self._derived.pop(replica, None)
        self._boards.pop(replica, None)
        self._routing.left(replica)

    def heard(self, replica: int, beat: Heartbeat) -> None:
        """How it is now."""
        cost = None if beat.cost is None else CallCost.from_dict(beat.cost)
        background = any(queue.rows for lane, queue in beat.waiting.items() if lane is not Lane.ONLINE)
        behind_s = self.derived.background_call_s / 2 if background else 0.0
        self._routing.learned(replica, cost, behind_s, not beat.running_s, beat.host_s, beat.reserve_s)
        if beat.derived is not None and replica in self._derived:
            self._derived[replica] = Derived(**beat.derived)

    def started(self, replica: int, requests: Sequence[int], now_s: float) -> None:
        """Rows of these requests are on its device."""
        self._routing.started(replica, requests, now_s)
