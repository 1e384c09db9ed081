"""Routes a request to the replica that is predicted to finish it first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from twoshift.policy.cost import CallCost
from twoshift.policy.replica_turns import alike, forgotten, least_busy
from twoshift.policy.stretch import Stretch
from twoshift.types import CallSize

__all__ = ["RoutingPolicy", "TokenGuess"]

_QUANTILE = 0.9  # as the lane policy predicts
_NOTHING, _ONE = CallSize(0, 0, 0, 0), CallSize.uniform(1)
_TOKENS_PER_CHARACTER, _LEARNED = 0.25, 0.05
_MOST_TOKENS_PER_CHARACTER = 4.0
_QUEUE = 8  # requests at a replica, from which on it matters how long they take


@dataclass(slots=True)
class _Replica:
    """Known state and outstanding work of a replica."""

    curve: CallCost
    behind_s: float = 0.0  # what a newcomer waits for background rows, on average
    host_s: float = 0.0  # what a request costs its interpreter
    reserve_s: float = 0.0  # of a request's time, what it keeps for the reply
    waiting: CallSize = _NOTHING
    running: CallSize = _NOTHING
    began_s: float = 0.0  # the call that runs
    requests: dict[int, CallSize] = field(default_factory=dict[int, CallSize])
    started: set[int] = field(default_factory=set[int])  # of the requests
    abandoned: set[int] = field(default_factory=set[int])  # of those: the device has them, and nobody waits
    turn: int = 0  # when it was last given a request
    answered_s: float = -math.inf  # when one more row would be, behind all that others have sent; -inf: nobody has
    promised: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    # of requests behind others: when they were sent, and how long they were predicted to take
    stretch: Stretch = field(default_factory=Stretch)

    def seconds(self, size: CallSize, now_s: float) -> float:
        """Time until rows that arrive now are answered."""
        return self.stretch.factor * self.predicted_s(size, now_s)

    def predicted_s(self, size: CallSize, now_s: float) -> float:
        """The same for a replica that has its cores to itself."""
        return max(self._of_own_s(size, now_s), self._of_all_s(size, now_s))

    def is_free(self) -> bool:
        """Whether no request is known to wait for this replica."""
        return len(self.requests) == len(self.abandoned) and self.answered_s == -math.inf

    def _of_all_s(self, size: CallSize, now_s: float) -> float:
        """Estimate from the replica's own report, which includes other senders, but not requests on their way."""
        if self.answered_s == -math.inf:
            return 0.0
        one_s = self.curve.seconds(_ONE)  # what is overdue is not over: it takes a call at the least
        return max(one_s, self.answered_s - now_s) + max(0.0, self.curve.seconds(size) - one_s)

    def _of_own_s(self, size: CallSize, now_s: float) -> float:
        """Estimate from the requests that this process has sent."""
        ahead_s = self.behind_s
        if self.running.rows:
            ahead_s = abs(self.curve.seconds(self.running) - (now_s - self.began_s))  # what is overdue stays so a while
        host_s = self.host_s * (len(self.requests) - len(self.started) + 1)
        return ahead_s + host_s + self.curve.seconds(self.waiting.plus(size))


class RoutingPolicy:
    """Identifies replicas by number and requests by key. Knows only what it is told."""

    def __init__(self) -> None:
        self._replicas: dict[int, _Replica] = {}
        self._turn = 0  # requests that were sent

    def __contains__(self, replica: int) -> bool:
        return replica in self._replicas

    def __len__(self) -> int:
        return len(self._replicas)

    def joined(self, replica: int, cost: CallCost) -> None:
        """A replica takes requests from now on."""
        self._replicas[replica] = _Replica(cost.at(_QUANTILE), turn=self._turn)

    def learned(
        self,
        replica: int,
        cost: CallCost | None,
        behind_s: float,
        is_idle: bool,
        host_s: float = 0.0,
        reserve_s: float = 0.0,
    ) -> None:
        """Update a replica's state: its cost curve (None if unchanged) and its wait for background rows.

        `host_s` is the interpreter time of a request, `reserve_s` the part of a request's time that the replica
        reserves for the reply.
        """
        found = self._replicas.get(replica)
        if found is None:
            return
        found.behind_s, found.host_s, found.reserve_s = behind_s, host_s, reserve_s
        found.curve = found.curve if cost is None else cost.at(_QUANTILE)
        if is_idle:
            self._clear(replica, found)

    def posted(self, replica: int, answered_s: float) -> None:
        """The replica's own report: when one more row would be answered, with requests of other senders.

        It is -inf if no row waits there.
        """
        if replica in self._replicas:
            self._replicas[replica].answered_s = answered_s

    def left(self, replica: int) -> None:
        """A replica takes no more requests."""
        self._replicas.pop(replica, None)

    def outstanding(self, replica: int) -> int:
        """Number of requests at the replica that have not ended."""
        return len(self._replicas[replica].requests) if replica in self._replicas else 0

    def stretch(self, replica: int) -> float:
        """How many times as long as predicted requests take there, of late."""
        return self._replicas[replica].stretch.factor

    def seconds(self, replica: int, size: CallSize, now_s: float) -> float:
        """Time until a request of this size would be answered by this replica."""
        return self._replicas[replica].seconds(size, now_s)

    def least_s(self, size: CallSize, now_s: float, without: Collection[int] = ()) -> float:
        """The same at the best one, with what it keeps for the reply; 0 where one has no request, or there is none."""
        found = [each for number, each in self._replicas.items() if number not in without]
        if any(each.is_free() for each in found):
            return 0.0
        return min((each.seconds(size, now_s) + each.reserve_s for each in found), default=0.0)

    def choose(self, size: CallSize, now_s: float, without: Collection[int] = ()) -> int | None:
        """The replica for a request of this size; None if there is none except excluded ones."""
        found = {number: each.seconds(size, now_s) for number, each in self._replicas.items() if number not in without}
        if len(found) < 2:
            return next(iter(found), None)
        if (idle := forgotten(self._replicas, found, self._turn)) is not None:
            return idle
        return least_busy(self._replicas, alike(found))

    def sent(self, replica: int, request: int, size: CallSize, now_s: float | None = None) -> None:
        """The request was sent to this replica; `now_s`: when, if `answered` will follow."""
        each = self._replicas[replica]
        if now_s is not None and len(each.requests) >= _QUEUE:
            each.promised[request] = (now_s, each.predicted_s(size, now_s))
        each.requests[request] = size
        each.waiting = each.waiting.plus(size)
        self._turn += 1
        each.turn = self._turn

    def started(self, replica: int, requests: Iterable[int], now_s: float) -> None:
        """A call with rows of these requests was launched at this replica."""
        each = self._replicas.get(replica)
        if each is None:
            return
        self._clear(replica, each)
        each.began_s = now_s
        for request in requests:
            size = each.requests.get(request)
            if size is not None and request not in each.started:
                each.started.add(request)
                each.waiting, each.running = _without(each.waiting, size), each.running.plus(size)

    def answered(self, replica: int, request: int, now_s: float) -> None:
        """The request was answered by this replica."""
        self._took(replica, request, now_s)
        self.ended(replica, request)

    def ended(self, replica: int, request: int) -> None:
        """The request has left this replica; the time that it took says nothing about the next one."""
        each = self._replicas.get(replica)
        if each is not None and each.promised:
            each.promised.pop(request, None)
        size = None if each is None else each.requests.pop(request, None)
        if each is None or size is None:
            return
        if request in each.started:
            each.started.discard(request)
            each.running = _without(each.running, size)
        else:
            each.waiting = _without(each.waiting, size)

    def abandoned(self, replica: int, request: int, now_s: float) -> None:
        """The client has gone; if the request had started, the device stays busy until the next call."""
        self._took(replica, request, now_s)
        each = self._replicas.get(replica)
        if each is not None and request in each.started:
            each.abandoned.add(request)
        else:
            self.ended(replica, request)

    def _took(self, replica: int, request: int, now_s: float) -> None:
        each = self._replicas.get(replica)
        promised = None if each is None else each.promised.pop(request, None)
        if each is not None and promised is not None:
            sent_s, predicted_s = promised
            each.stretch.observed(now_s - sent_s, predicted_s, now_s)
        elif each is not None:
            each.stretch.observed(0.0, 0.0, now_s)  # nobody is in line

    def _clear(self, number: int, replica: _Replica) -> None:
        for request in replica.abandoned:
            self.ended(number, request)
        replica.abandoned.clear()


def _without(whole: CallSize, part: CallSize) -> CallSize:
    """The longest row stays as it was: no curve asks for it."""
    left = CallSize(
        whole.rows - part.rows, whole.tokens - part.tokens, whole.longest, whole.squares - part.squares
    )  # fmt: skip
    return left if left.rows else _NOTHING


class TokenGuess:
    """Estimates the size of a request before its tokens are counted."""

    def __init__(self, max_row_tokens: int) -> None:
        self._most = max_row_tokens
        self._per_character = _TOKENS_PER_CHARACTER

    def size(self, characters: Sequence[int]) -> CallSize:
        """Estimated size of rows with this many characters each."""
        if self._most <= 1:
            return CallSize.uniform(len(characters))
        return CallSize.of(max(1, min(self._most, round(each * self._per_character))) for each in characters)

    def seen(self, characters: int, tokens: int) -> None:
        """Learn that a request with this many characters had this many tokens."""
        if characters > 0 and self._most > 1:
            seen = min(tokens / characters, _MOST_TOKENS_PER_CHARACTER)
            self._per_character += _LEARNED * (seen - self._per_character)
