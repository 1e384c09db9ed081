"""Routes a request of a language model to the replica with the earliest predicted first token, with prefix caching."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twoshift.policy.cost import CallCost
from twoshift.policy.llm_admission import LiveSequence, LlmAdmissionPolicy, LlmBounds, LlmLoad
from twoshift.policy.replica_turns import alike, forgotten, least_busy

__all__ = ["LlmRoutingPolicy", "Prefix", "SequencesAsked"]

_PREFIXES = 16_384  # that are remembered


class Prefix(NamedTuple):
    """The beginning of a prompt, which identifies prompts that share it."""

    key: Hashable
    tokens: int


class SequencesAsked(NamedTuple):
    """A request whose tokens are not counted yet."""

    prompt_tokens: int  # of all sequences
    sequences: int
    max_tokens: int  # that each may have
    prefixes: Sequence[Prefix] = ()  # of the first sequence, the longest first


@dataclass(slots=True)
class _Request:
    """A request at a replica."""

    asked: SequencesAsked
    generated: int = 0  # tokens, of all sequences

    def sequences(self) -> list[LiveSequence]:
        tokens, count = self.asked.prompt_tokens // self.asked.sequences, self.asked.sequences
        made = self.generated // count
        unread = 0 if self.generated else tokens
        return [LiveSequence(unread, max(0, self.asked.max_tokens - made), tokens + made)] * count


@dataclass(slots=True)
class _Replica:
    """Known state and outstanding work of a replica."""

    curve: CallCost
    admission: LlmAdmissionPolicy
    background: int = 0  # sequences
    kv_used_tokens: float = 0.0
    requests: dict[int, _Request] = field(default_factory=dict[int, _Request])
    turn: int = 0  # when it was last given a request

    def seconds(self, tokens: int, sequences: int) -> float:
        """Time until prompts with this many unread tokens that arrive now have their first tokens."""
        live = [each for request in self.requests.values() for each in request.sequences()]
        load = LlmLoad(live, 0, self.background, self.kv_used_tokens)
        return self.admission.first_token_s(self.curve, load, tokens, sequences)


class LlmRoutingPolicy:
    """Identifies replicas by number and requests by key. Predicts like the replicas' own admission."""

    def __init__(self) -> None:
        self._replicas: dict[int, _Replica] = {}
        self._prefixes: dict[Hashable, int] = {}  # which replica had one last; the oldest first
        self._turn = 0  # requests that were sent

    def joined(self, replica: int, cost: CallCost, bounds: LlmBounds) -> None:
        """A replica takes requests from now on."""
        self._replicas[replica] = _Replica(cost, LlmAdmissionPolicy(bounds), turn=self._turn)

    def learned(self, replica: int, cost: CallCost | None, background: int, kv_used_tokens: float) -> None:
        """Its curve now, None where that has not changed; what else is there."""
        if (found := self._replicas.get(replica)) is not None:
            found.curve = cost or found.curve
            found.background, found.kv_used_tokens = background, kv_used_tokens

    def left(self, replica: int) -> None:
        """A replica takes no more requests, and its cache is gone."""
        self._replicas.pop(replica, None)
        self._prefixes = {key: each for key, each in self._prefixes.items() if each != replica}

    def seconds(self, replica: int, asked: SequencesAsked) -> float:
        """Time until the request would have its first tokens at this replica."""
        cached = next((each.tokens for each in asked.prefixes if self._prefixes.get(each.key) == replica), 0)
        unread = asked.prompt_tokens - min(cached, asked.prompt_tokens - 1)
        return self._replicas[replica].seconds(unread, asked.sequences)

    def choose(self, asked: SequencesAsked, without: Collection[int] = ()) -> int | None:
        """The replica for a request; None where there is none but those that it shall not be.

        The one that had its prefix last, unless another one that has to read it is sooner by more than a tenth.
        """
        found = {number: self.seconds(number, asked) for number in self._replicas if number not in without}
        if len(found) < 2:
            return next(iter(found), None)
        if (idle := forgotten(self._replicas, found, self._turn)) is not None:
            return idle
        likely = alike(found)
        home = next((self._prefixes[each.key] for each in asked.prefixes if each.key in self._prefixes), None)
        return home if home in likely else least_busy(self._replicas, likely)

    def sent(self, replica: int, request: int, asked: SequencesAsked) -> None:
        """The request was sent to this replica."""
        self._turn += 1
        each = self._replicas[replica]
        each.requests[request], each.turn = _Request(asked), self._turn
        for prefix in asked.prefixes:
            self._prefixes.pop(prefix.key, None)  # to the end
            self._prefixes[prefix.key] = replica
        while len(self._prefixes) > _PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]

    def generated(self, replica: int, request: int, tokens: int) -> None:
        """This many more tokens of the request were generated."""
        each = self._replicas.get(replica)
        if each is not None and (found := each.requests.get(request)) is not None:
            found.generated += tokens

    def ended(self, replica: int, request: int) -> None:
        """The request was answered, or its client has gone."""
        if (each := self._replicas.get(replica)) is not None:
            each.requests.pop(request, None)

    def outstanding(self, replica: int) -> int:
        """Number of requests at the replica that have not ended."""
        return len(self._replicas[replica].requests) if replica in self._replicas else 0
