"""A language model whose replicas run elsewhere: requests go where their first token comes first."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from twoshift.engine.llm import LlmStats
from twoshift.errors import Late, TryLater
from twoshift.fleet.control import Loaded
from twoshift.fleet.fleet_backend import FleetBackend
from twoshift.fleet.link import ReplicaLost
from twoshift.fleet.llm_sums import llm_derived_together, llm_stats_together
from twoshift.fleet.prompt_size import PromptSizes
from twoshift.fleet.remote_sequences import RemoteSequences
from twoshift.fleet.wire import Heartbeat, generating
from twoshift.generation import GenerationRequest
from twoshift.policy.cost import CallCost
from twoshift.policy.llm_routing import LlmRoutingPolicy, SequencesAsked
from twoshift.runtime.llm import llm_tokens
from twoshift.runtime.tokenization import TextTokens
from twoshift.serve.llm.language_model import TakesPrompts
from twoshift.serve.llm.metrics import LlmMetrics
from twoshift.serve.llm.running import Running
from twoshift.serve.llm_derived import LlmDerived
from twoshift.serve.stages import Stages
from twoshift.types import Lane

if TYPE_CHECKING:
    pass

__all__ = ["FleetLlm"]

_TRIES = 2  # at two replicas, before the first token
_RETRY_S = 1.0  # when to come back after a crash
_REPLY_S = 0.02  # after a deadline, in which the replica's own word for it arrives


class FleetLlm(TakesPrompts, FleetBackend[LlmDerived]):
    """Sequences, which are streamed from the replica that has them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.generated = LlmMetrics()
        self._routing = LlmRoutingPolicy()
        self._requests = itertools.count()
        self._derived: dict[int, LlmDerived] = {}  # of those that can be asked
        self._stats: dict[int, LlmStats] = {}  # of all that there were
        self._tokens: TextTokens | None = None

    def _opened(self, opened: Sequence[Loaded]) -> LlmDerived:
        derived = llm_derived_together([each.derived for each in opened])
        self._sizes = PromptSizes(derived.context_tokens)
        self.generated.objective = derived.ttft_s, derived.tpot_s
        return derived

    def derived_now(self) -> LlmDerived:
        """From the curves as learned so far."""
        return llm_derived_together([*self._derived.values()] or [self._first.derived])

    def sequences(self) -> LlmStats:
        """The same in sequences and tokens."""
        return llm_stats_together(
            [*self._stats.values()], [self._stats[each] for each in self._derived if each in self._stats]
        )

    def text_tokens(self) -> TextTokens:
        """Read from its folder: replicas have theirs for themselves."""
        if self._tokens is None:
            self._tokens = llm_tokens(self.info.files or self.info.model)
        return self._tokens

    async def begin(
        self,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        left: Callable[[], None],
        tenant: str = "",
    ) -> Running:
        """With their first token; a replica that is lost before it, or refuses, is not the only one that is asked."""
        await self.group.awake(len(rows), None if timeout_s is None else arrived_s + timeout_s)
        asked = self._sizes.of(rows)
        refused: TryLater | None = None
        tried = list[int]()
        while len(tried) < _TRIES and (found := self._routing.choose(asked, tried)) is not None:
            tried.append(found)
            try:
                sequences = await self._first_token(found, asked, rows, timeout_s, arrived_s, tenant)
            except ReplicaLost:
                refused = refused or TryLater("the replica that ran the request was lost", _RETRY_S)
            except TryLater as error:
                refused = error if refused is None or error.retry_after_s < refused.retry_after_s else refused
            else:
                return self._running(sequences, timeout_s, arrived_s, left)
        raise refused or TryLater(f"no replica is available: {self._fleet.why_none()}", _RETRY_S)

    async def _first_token(
        self,
        replica: int,
        asked: SequencesAsked,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        tenant: str,
    ) -> RemoteSequences:
        number, link, now_s = next(self._requests), self.group.link(replica), time.monotonic()
        frame = generating(number, rows, timeout_s, now_s - arrived_s, tenant)

        def over(at_replica: bool) -> None:
            link.end_sequences(number, at_replica)
            self._routing.ended(replica, number)

        self._routing.sent(replica, number, asked)
        sequences = RemoteSequences(len(rows), partial(self._routing.generated, replica, number), over)
        left_s = None if timeout_s is None else max(0.0, arrived_s + timeout_s - now_s) + _REPLY_S
        try:
            link.generate(number, frame, sequences)
            async with asyncio.timeout(left_s):
                await sequences.first
        except BaseException as error:
            sequences.close()
            if isinstance(error, TimeoutError):
                raise Late("the request was not answered by its deadline") from None
            raise
        self._sizes.seen(rows, sequences.tokens)
        return sequences

    def _running(
        self, sequences: RemoteSequences, timeout_s: float | None, arrived_s: float, left: Callable[[], None]
    ) -> Running:
        stages = Stages(prepare=sequences.prepare_s, call_rows=len(sequences.streams))
        running = Running(sequences.streams, sequences.tokens, stages, left, arrived_s + sequences.prepare_s)
        if timeout_s is not None:
            running.end_by(arrived_s + timeout_s)
        return running

    # What the group says of replicas

    def joined(self, replica: int, opened: Loaded) -> None:
        """It takes requests from now on."""
        assert opened.bounds is not None  # noqa: S101 - each language model says them
        self._derived[replica] = opened.derived
        self._routing.joined(replica, opened.cost, opened.bounds)

    def left(self, replica: int) -> None:
        """It takes no more."""
        self._derived.pop(replica, None)
        self._routing.left(replica)

    def heard(self, replica: int, beat: Heartbeat) -> None:
        """How it is now, and which sequences have ended there."""
        if beat.llm is None:
            return
        stats = self._stats[replica] = beat.llm.stats
        cost = None if beat.cost is None else CallCost.from_dict(beat.cost)
        background = sum(lane.running for name, lane in stats.lanes.items() if name is not Lane.ONLINE)
        self._routing.learned(replica, cost, background, stats.kv_use * stats.kv_tokens)
        for finished in beat.llm.finished:
            self.generated.finished(finished)
        if beat.derived is not None and replica in self._derived:
            self._derived[replica] = LlmDerived(**beat.derived)

    def started(self, replica: int, requests: Sequence[int], now_s: float) -> None:
        """Of rows, which it has not."""
