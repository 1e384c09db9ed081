"""Background sequences that wait to be let in: by their owners' turns, and by shared prefixes within a block."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from twoshift.engine.llm.sequences import Background
from twoshift.engine.waiting import BlockJob, BlockOwner
from twoshift.llm_ports import Prompt
from twoshift.types import Lane

__all__ = ["PendingSequences", "prefix_order", "shared_prefix"]


def prefix_order(prompts: Sequence[Prompt]) -> list[int]:
    """The places of prompts, those of one adapter that begin alike beside each other."""
    return sorted(range(len(prompts)), key=lambda at: (prompts[at].adapter, prompts[at].token_ids))


def shared_prefix(before: Prompt | None, prompt: Prompt, block_tokens: int) -> int:
    """Tokens that both begin with, in whole blocks; the last token of a prompt is always read."""
    if before is None or before.adapter != prompt.adapter:
        return 0
    one, other = before.token_ids, prompt.token_ids
    most = min(len(one), len(other) - 1)
    same = next((at for at in range(most) if one[at] != other[at]), most)
    return max(0, same - same % block_tokens)


class PendingSequences:
    """One queue an owner. The engine's lock guards it."""

    def __init__(self) -> None:
        self._queues: dict[BlockOwner, deque[Background]] = {}
        self._held: set[int] = set()

    def add(self, sequences: Iterable[Background]) -> None:
        """New ones, in the order in which they shall be let in."""
        for each in sequences:
            self._queues.setdefault(each.job.owner, deque()).append(each)

    def put_back(self, sequence: Background) -> None:
        """One that was taken out comes first again."""
        self._queues.setdefault(sequence.job.owner, deque()).appendleft(sequence)

    def hold(self, owner: BlockOwner) -> None:
        """Its sequences wait."""
        self._held.add(owner.key)

    def release(self, owner: BlockOwner) -> None:
        """They wait no longer."""
        self._held.discard(owner.key)

    def is_held(self, owner: BlockOwner) -> bool:
        """Whether its sequences wait whatever room there is."""
        return owner.key in self._held

    def first(self, count: int) -> list[Background]:
        """The next ones: of streams before those of jobs, then of owed owners, then by deadline, then by fair shares.

        Of those who have had least of the device for their weight, that is.
        """
        turns = sorted((each for each in self._queues if not self.is_held(each)), key=_turn)
        return list(islice((each for owner in turns for each in self._queues[owner]), count))

    def remove(self, sequences: Iterable[Background]) -> None:
        """They have been let in, or are not wanted any more."""
        gone: dict[BlockOwner, set[Background]] = {}
        for each in sequences:
            gone.setdefault(each.job.owner, set()).add(each)
        for owner, those in gone.items():
            queue = self._queues.get(owner, deque[Background]())
            while those and queue and queue[0] in those:
                those.discard(queue.popleft())
            if those:
                self._queues[owner] = queue = deque(each for each in queue if each not in those)
            if not queue:
                self._queues.pop(owner, None)

    def of(self, job: BlockJob) -> list[Background]:
        """The sequences of a block that wait."""
        return [each for each in self._queues.get(job.owner, ()) if each.job is job]

    def __iter__(self) -> Iterator[Background]:
        return (each for queue in self._queues.values() for each in queue)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))


def _turn(owner: BlockOwner) -> tuple[bool, bool, float, float]:
    return owner.lane is Lane.BATCH, not owner.owed, owner.deadline_s, owner.use.device_s / owner.weight
