"""Who is where: live and background sequences on their way into the runtime, inside, and out of it again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twoshift.engine.llm.pending_sequences import PendingSequences, prefix_order, shared_prefix
from twoshift.engine.llm.sequences import Background, Live, LiveSink
from twoshift.engine.llm.stats import LlmLane
from twoshift.engine.stats import Queue
from twoshift.engine.waiting import BlockJob, BlockOwner
from twoshift.llm_ports import LlmShape, Prompt
from twoshift.policy.governor_values import LiveLoad
from twoshift.types import Lane

__all__ = ["Orders", "SequenceTable"]


@dataclass(slots=True)
class Orders:
    """What the runtime is told before its next step."""

    abort: list[int] = field(default_factory=list[int])
    add: list[Live | Background] = field(default_factory=list[Live | Background])
    settle: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])  # outside the lock
    prefill_tokens: int | None = None  # of a prompt, in the step

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.abort or self.add or self.settle)


class SequenceTable:
    """The engine's lock guards it."""

    def __init__(self, shape: LlmShape, lanes: dict[Lane, LlmLane]) -> None:
        """`lanes` is where who runs, waits and is cancelled is counted."""
        self._shape, self._lanes = shape, lanes
        self.pending = PendingSequences()  # of background sequences that are not let in
        self.inside: dict[int, Live | Background] = {}
        self.leaving: list[int] = []  # in the runtime, and not wanted any more
        self._arrived: list[Live] = []  # not in the runtime yet
        self._keys = itertools.count()

    # Coming

    def add_live(self, prompt: Prompt, sink: LiveSink, now_s: float, tenant: str) -> int:
        """It is let in before the next step."""
        key = next(self._keys)
        self._arrived.append(Live(key, prompt, now_s, sink=sink, tenant=tenant))
        return key

    def sequences_of(self, prompts: Sequence[Prompt], job: BlockJob) -> list[Background]:
        """A block's sequences, those that begin alike beside each other; they do not wait yet."""
        found: list[Background] = []
        for place in prefix_order(prompts):
            prompt, before = prompts[place], found[-1].prompt if found else None
            shared = shared_prefix(before, prompt, self._shape.block_tokens)
            found.append(
                Background(next(self._keys), prompt, job.arrived_s, job=job, place=place, shared_tokens=shared)
            )
        return found

    # In and out

    def begin_orders(self) -> Orders:
        """What is not wanted goes, and live sequences come in."""
        orders = Orders(abort=self.leaving)
        self.leaving = []
        self.let_in(self._arrived, orders)
        self._arrived = []
        return orders

    def let_in(self, sequences: Sequence[Live | Background], orders: Orders) -> None:
        """Into the runtime, before its next step."""
        orders.add += sequences
        self.inside.update((each.key, each) for each in sequences)

    def begun(self, tokens: Mapping[int, int]) -> None:
        """A step is on its way with so many tokens of each."""
        for key, count in tokens.items():
            sequence = self.inside.get(key)
            if sequence is not None:
                sequence.begun(count)

    def take_out(self, sequences: Sequence[Background], orders: Orders) -> int:
        """Back to the line, the last first: what came first comes first again. The tokens to be read again."""
        again = 0
        for each in reversed(sequences):
            orders.abort.append(each.key)
            del self.inside[each.key]
            again += each.taken_out(self._shape.continues)
            self.pending.put_back(each)
        return again

    # Going

    def forget_live(self, key: int) -> None:
        """Nobody wants it any more."""
        before = len(self._arrived)
        self._arrived = [each for each in self._arrived if each.key != key]
        was_inside = self.inside.pop(key, None) is not None
        if was_inside:
            self.leaving.append(key)
        self._lanes[Lane.ONLINE].cancelled += was_inside or len(self._arrived) < before

    def forget_block(self, job: BlockJob) -> None:
        """Nobody wants its sequences any more."""
        inside, waiting = [each for each in self.background() if each.job is job], self.pending.of(job)
        self.pending.remove(waiting)
        for each in inside:
            del self.inside[each.key]
            self.leaving.append(each.key)
        self._lanes[job.lane].cancelled += len(inside) + len(waiting)

    def take_live(self) -> list[Callable[[Exception], object]]:
        """All of them; how each is told that it fails."""
        live = self.live()
        for each in live:
            self.forget_live(each.key)
        return [each.sink.fail for each in live]

    def take_blocks(self, owner: BlockOwner | None = None) -> list[BlockJob]:
        """Every block that has sequences here, or every one of an owner's."""
        jobs = {id(each.job): each.job for each in [*self.pending, *self.background()]}
        found = [each for each in jobs.values() if owner is None or each.owner is owner]
        for job in found:
            self.forget_block(job)
        return found

    def hold(self, owner: BlockOwner) -> None:
        """None of its sequences are let in any more, and those inside are taken out before the next step."""
        self.pending.hold(owner)

    def release(self, owner: BlockOwner) -> None:
        """They are let in again."""
        self.pending.release(owner)

    # Who is there

    def live(self) -> list[Live]:
        """All of them, those that are on their way too."""
        return [*self._arrived, *(each for each in self.inside.values() if isinstance(each, Live))]

    def background(self) -> list[Background]:
        """Those inside."""
        return [each for each in self.inside.values() if isinstance(each, Background)]

    def live_held_tokens(self) -> int:
        """Of the KV cache, by live sequences inside; a prefix that they share is counted for each."""
        return sum(each.held_tokens for each in self.inside.values() if isinstance(each, Live))

    def live_load(self) -> LiveLoad:
        """As the governor sees it."""
        live = self.live()
        begun, early = ([each for each in live if (each.first_s is None) is is_early] for is_early in (False, True))
        return LiveLoad(
            running=len(begun),
            kv_tokens=sum(each.reserved_tokens for each in begun),
            waiting=len(early),
            waiting_kv_tokens=sum(each.reserved_tokens for each in early),
            prefill_tokens=min(self._shape.step_tokens, sum(each.unread_tokens for each in early)),
        )

    def queues(self, now_s: float) -> dict[Lane, Queue]:
        """Who waits in each lane: for a first token, or to be let in."""
        found = dict.fromkeys(Lane, Queue(0, 0.0))
        early = [(Lane.ONLINE, each.arrived_s) for each in self.live() if each.first_s is None]
        for lane, arrived_s in [*early, *((each.job.lane, each.arrived_s) for each in self.pending)]:
            before = found[lane]
            found[lane] = Queue(before.rows + 1, max(before.oldest_s, now_s - arrived_s))
        return found

    def oldest_live_s(self, now_s: float) -> float:
        """How long the one that has waited longest for its first token has."""
        return max((now_s - each.arrived_s for each in self.live() if each.first_s is None), default=0.0)

    def is_overdue(self, now_s: float) -> bool:
        """Never: who waits for long is the model's to judge, by its objective."""
        return False

    def count(self) -> None:
        """How many run and wait, put into the lanes' numbers."""
        lanes = self._lanes
        for each in lanes.values():
            each.waiting = each.running = 0
        for sequence in self.live():
            lanes[Lane.ONLINE].running += sequence.first_s is not None
            lanes[Lane.ONLINE].waiting += sequence.first_s is None
        for sequence in self.background():
            lanes[sequence.job.lane].running += 1
        for sequence in self.pending:
            lanes[sequence.job.lane].waiting += 1
