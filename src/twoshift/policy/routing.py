"""Which replica a request goes to: the one that is predicted to have done with it first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from twoshift.policy.cost import CallCost
from twoshift.policy.replica_turns import alike, forgotten, least_busy
from twoshift.types import CallSize

__all__ = ["RoutingPolicy", "TokenGuess"]

_QUANTILE = 0.9  # as the lane policy predicts
_NOTHING, _ONE = CallSize(0, 0, 0, 0), CallSize.uniform(1)
_TOKENS_PER_CHARACTER, _LEARNED = 0.25, 0.05
_MOST_TOKENS_PER_CHARACTER = 4.0


@dataclass(slots=True)
class _Replica:
    """What is known of one, and what it has to do."""

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

    def seconds(self, size: CallSize, now_s: float) -> float:
        """Until rows that come now are answered."""
        return max(self._of_own_s(size, now_s), self._of_all_s(size, now_s))

    def is_free(self) -> bool:
        """Whether nobody waits for it, as far as is known."""
        return len(self.requests) == len(self.abandoned) and self.answered_s == -math.inf

    def _of_all_s(self, size: CallSize, now_s: float) -> float:
        """By what the replica says: it knows who else asks it, and not yet what is on its way."""
        if self.answered_s == -math.inf:
            return 0.0
        one_s = self.curve.seconds(_ONE)  # what is overdue is not over: it takes a call at the least
        return max(one_s, self.answered_s - now_s) + max(0.0, self.curve.seconds(size) - one_s)

    def _of_own_s(self, size: CallSize, now_s: float) -> float:
        """By what was sent from here."""
        ahead_s = self.behind_s
        if self.running.rows:
            ahead_s = abs(self.curve.seconds(self.running) - (now_s - self.began_s))  # what is overdue stays so a while
        host_s = self.host_s * (len(self.requests) - len(self.started) + 1)
        return ahead_s + host_s + self.curve.seconds(self.waiting.plus(size))


class RoutingPolicy:
    """Replicas go by numbers, requests by keys. Knows only what it is told."""

    def __init__(self) -> None:
        self._replicas: dict[int, _Replica] = {}
        self._turn = 0  # requests that were sent

    def __contains__(self, replica: int) -> bool:
        return replica in self._replicas

    def __len__(self) -> int:
        return len(self._replicas)

    def joined(self, replica: int, cost: CallCost) -> None:
        """It takes requests from now on."""
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
        """Its curve now, None where that has not changed; what a newcomer waits there for background rows.

        `host_s` is what a request costs its interpreter, `reserve_s` what it keeps of a request's time.
        """
        found = self._replicas.get(replica)
        if found is None:
            return
        found.behind_s, found.host_s, found.reserve_s = behind_s, host_s, reserve_s
        found.curve = found.curve if cost is None else cost.at(_QUANTILE)
        if is_idle:
            self._clear(replica, found)

    def posted(self, replica: int, answered_s: float) -> None:
        """When one more row would be answered there, as the replica itself says: others send it requests, too.

        -inf: nobody waits there.
        """
        if replica in self._replicas:
            self._replicas[replica].answered_s = answered_s

    def left(self, replica: int) -> None:
        """It takes no more requests."""
        self._replicas.pop(replica, None)

    def outstanding(self, replica: int) -> int:
        """Requests that it has and that have not ended."""
        return len(self._replicas[replica].requests) if replica in self._replicas else 0

    def seconds(self, replica: int, size: CallSize, now_s: float) -> float:
        """Until a request of that size would be answered there."""
        return self._replicas[replica].seconds(size, now_s)

    def least_s(self, size: CallSize, now_s: float, without: Collection[int] = ()) -> float:
        """The same at the best one, with what it keeps for the reply; 0 where one has no request, or there is none."""
        found = [each for number, each in self._replicas.items() if number not in without]
        if any(each.is_free() for each in found):
            return 0.0
        return min((each.seconds(size, now_s) + each.reserve_s for each in found), default=0.0)

    def choose(self, size: CallSize, now_s: float, without: Collection[int] = ()) -> int | None:
        """The replica for a request of that size; None where there is none but those that it shall not be."""
        found = {number: each.seconds(size, now_s) for number, each in self._replicas.items() if number not in without}
        if len(found) < 2:
            return next(iter(found), None)
        if (idle := forgotten(self._replicas, found, self._turn)) is not None:
            return idle
        return least_busy(self._replicas, alike(found))

    def sent(self, replica: int, request: int, size: CallSize) -> None:
        """It has the request."""
        each = self._replicas[replica]
        each.requests[request] = size
        each.waiting = each.waiting.plus(size)
        self._turn += 1
        each.turn = self._turn

    def started(self, replica: int, requests: Iterable[int], now_s: float) -> None:
        """A call with rows of these requests was launched there."""
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

    def ended(self, replica: int, request: int) -> None:
        """It was answered there."""
        each = self._replicas.get(replica)
        size = None if each is None else each.requests.pop(request, None)
        if each is None or size is None:
            return
        if request in each.started:
            each.started.discard(request)
            each.running = _without(each.running, size)
        else:
            each.waiting = _without(each.waiting, size)

    def abandoned(self, replica: int, request: int) -> None:
        """Nobody waits for it any more; where it had begun, the device is busy all the same, until the next call."""
        each = self._replicas.get(replica)
        if each is not None and request in each.started:
            each.abandoned.add(request)
        else:
            self.ended(replica, request)

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
    """How large a request is, before anybody has counted its tokens."""

    def __init__(self, max_row_tokens: int) -> None:
        self._most = max_row_tokens
        self._per_character = _TOKENS_PER_CHARACTER

    def size(self, characters: Sequence[int]) -> CallSize:
        """Of rows of so many characters each."""
        if self._most <= 1:
            return CallSize.uniform(len(characters))
        return CallSize.of(max(1, min(self._most, round(each * self._per_character))) for each in characters)

    def seen(self, characters: int, tokens: int) -> None:
        """A request of so many characters had so many tokens."""
        if characters > 0 and self._most > 1:
            seen = min(tokens / characters, _MOST_TOKENS_PER_CHARACTER)
            self._per_character += _LEARNED * (seen - self._per_character)
