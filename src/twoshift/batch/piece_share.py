"""The shards of a plan as one process has them: all of them, or a piece, with claims that lie beside the parts.

A claim is a small file that is created once, with the name of its process. There are no locks: where two work on the
same shard after all, the first part counts, as everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from twoshift.batch.piece_settings import piece_of
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.presence import Presence, Seen, processes_in
from twoshift.policy.leases import ShardLimits
from twoshift.policy.pieces import THE_END, PieceClaim, PiecePolicy
from twoshift.policy.shards import ShardPolicy
from twoshift.policy.shared_shards import SharedShardPolicy
from twoshift.ports import Blobs

__all__ = ["BEATS", "PieceShare", "Share", "WholePlan"]

_FOLDER = "_twoshift/claims"
BEATS = 6  # in the time after which a process is taken for dead
_IDLE_LOOK_S = 2.0  # between looks where there is nothing to do but wait for others


class Share(Protocol):
    """Which shards of a plan are a coordinator's to lease."""

    @property
    def processes(self) -> int:
        """That work on the plan, as far as is known."""
        ...

    @property
    def dead_elsewhere(self) -> Mapping[int, str]:
        """Shards that others could not do, and why."""
        ...

    def policy(self, shards: int, limits: ShardLimits, committed: Collection[int]) -> ShardPolicy:
        """What decides about its shards."""
        ...

    def make_ready(self, now_s: float) -> None:
        """A worker has room: have a shard to lease, if there is one."""
        ...

    def follow(self, dead: Callable[[], Mapping[int, str]], now_s: float) -> Iterable[int]:
        """Shards that others have committed since; they are told which could not be done here, and why."""
        ...


class WholePlan:
    """Every shard, by a coordinator that is alone."""

    processes = 1
    dead_elsewhere: Mapping[int, str] = {}

    def policy(self, shards: int, limits: ShardLimits, committed: Collection[int]) -> ShardPolicy:
        """What decides about its shards."""
        return ShardPolicy(shards, limits, committed)

    def make_ready(self, now_s: float) -> None:
        """Nothing: all are."""

    def follow(self, dead: Callable[[], Mapping[int, str]], now_s: float) -> Iterable[int]:
        """None: there are no others."""
        return ()


class PieceShare:
    """One piece of a plan, and what others have left; the bucket or folder is all that they share."""

    def __init__(
        self, plan: Plan, output: Blobs, presence: Presence, clock: Callable[[], float] = time.monotonic
    ) -> None:
        settings = plan.settings
        assert settings.piece is not None  # noqa: S101 - it has no share otherwise
        piece, pieces = piece_of(settings.piece)
        self._plan, self._output, self._presence, self._clock = plan, output, presence, clock
        self._pieces = PiecePolicy(piece, pieces, len(plan.shards), settings.piece_seconds)
        self._shards = SharedShardPolicy(0)
        self._folder = settings.output.rstrip("/")
        self._look_s = settings.piece_seconds / BEATS
        self._due_s = -1.0
        self._known = dict[str, Seen]()
        self.dead_elsewhere = dict[int, str]()
        self._over_before: set[str] | None = None  # that had ended when this one began: what they could not do is tried

    @property
    def processes(self) -> int:
        """That work on the plan, as far as is known."""
        return 1 + self._pieces.living(self._clock())

    def policy(self, shards: int, limits: ShardLimits, committed: Collection[int]) -> ShardPolicy:
        """What decides about its shards."""
        self._shards = SharedShardPolicy(shards, limits, committed)
        self._pieces.settled(committed)
        return self._shards

    def make_ready(self, now_s: float) -> None:
        """A worker has room: claim a shard, if there is one."""
        if self._shards.has_ready(now_s):
            return
        if (claim := self._claimed(self._pieces.next)) is not None:
            self._pieces.settled([claim.shard])
            self._shards.offer(claim.shard)
        else:
            self._due_s = min(self._due_s, now_s + _IDLE_LOOK_S)

    def can_end(self) -> bool:
        """Whether the job's end is this process's to write: another one's, unless that is gone."""
        self.look()
        return self._claimed(self._pieces.next_end) is not None

    def follow(self, dead: Callable[[], Mapping[int, str]], now_s: float) -> Iterator[int]:
        """Shards that others have committed since; they are told which could not be done here, and why."""
        if self._shards.counts().dead:
            own = {shard: why for shard, why in dead().items() if shard not in self.dead_elsewhere}
            self._presence.tell_dead(own)
        yield from (shard for shard in self.look() if self._shards.committed_elsewhere(shard, now_s))

    def look(self) -> list[int]:
        """Look at the others and at the parts, now and then; the shards that are committed."""
        now_s = self._clock()
        if now_s < self._due_s:
            return []
        there = self._output.names(self._folder)
        self._look_at_others(now_s)
        self._due_s = self._clock() + self._look_s
        shards = range(len(self._plan.shards))
        parts = [shard for shard in shards if Path(part_location(self._plan, shard)).name in there]
        self._pieces.settled(parts)
        return parts

    def _look_at_others(self, now_s: float) -> None:
        self._known = processes_in(self._output, self._folder, self._known)
        others = [each for each in self._known.values() if each.name != self._presence.name]
        for each in others:
            is_over = each.process.is_over or each.process.is_known_dead(self._presence.here)
            self._pieces.heard_of(each.name, each.sign, now_s, is_over)
        if self._over_before is None:
            self._over_before = {each.name for each in others if self._pieces.is_gone(each.name, now_s)}
        for each in others:
            if each.process.dead and each.name not in self._over_before:
                self.dead_elsewhere |= each.process.dead
                self._pieces.settled(each.process.dead)
                for shard in each.process.dead:
                    self._shards.dead_elsewhere(shard)

    def _claimed(self, wanted: Callable[[float], PieceClaim | None]) -> PieceClaim | None:
        """What it wants, once it is this process's; None where others have it all, and live."""
        while (claim := wanted(self._clock())) is not None:
            location = self._location(claim)
            if self._output.create(location, self._presence.name.encode()):
                return claim
            claimant = (self._output.read(location) or b"").decode(errors="replace")
            self._pieces.was_claimed(claim, claimant, self._clock())
        return None

    def _location(self, claim: PieceClaim) -> str:
        what = "end" if claim.shard == THE_END else f"{claim.shard:06d}"
        return f"{self._folder}/{_FOLDER}/{what}-{claim.attempt:04d}"
