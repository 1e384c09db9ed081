"""Which shards one of several processes takes that have one plan, and nobody who coordinates them.

Each has a share of the plan, and does that first. Then it takes what others have not begun, from the end of their
shares, and what others have begun and left. A claim tells who has begun a shard; a claimant is heard of while it lives.
Two may still do the same shard, if one was silent for too long: the first part counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["THE_END", "PieceClaim", "PiecePolicy", "share_of"]

THE_END = -1  # in the place of a shard: what is written once all parts are there


@dataclass(frozen=True, slots=True)
class PieceClaim:
    """A shard to claim; `attempt` 0 is the first claim, and each lost claimant adds one."""

    shard: int
    attempt: int


@dataclass(slots=True)
class _Claimant:
    sign: str  # of life: another one each time it is heard of
    since_s: float  # for which it has been this one
    is_over: bool


def share_of(piece: int, pieces: int, shards: int) -> range:
    """The shards of a piece: consecutive, in input order; pieces are numbered from 0."""
    if not 0 <= piece < pieces:
        raise InvalidInput(
            "piece",
            f"{piece}/{pieces}",
            f"a piece from 0/{pieces} to {pieces - 1}/{pieces}; the first piece has the number 0",
        )
    return range(piece * shards // pieces, (piece + 1) * shards // pieces)


class PiecePolicy:
    """What a process knows of the other processes, and which shard it should claim next."""

    def __init__(self, piece: int, pieces: int, shards: int, timeout_s: float) -> None:
        """Who is not heard of for `timeout_s` is gone; time is that of whoever asks, so clocks need not agree."""
        own = share_of(piece, pieces, shards)
        others = (share_of((piece + turn) % pieces, pieces, shards) for turn in range(1, pieces))
        self._open = [*own, *(shard for share in others for shard in reversed(share))]  # in the order to take them
        self._timeout_s = timeout_s
        self._claims: dict[int, tuple[int, str]] = {}  # shard -> the last attempt that is known of, and whose
        self._claimants: dict[str, _Claimant] = {}

    def next(self, now_s: float) -> PieceClaim | None:
        """The shard to claim; None if living processes have claimed all remaining shards."""
        return next(filter(None, (self._claimable(shard, now_s) for shard in self._open)), None)

    def next_end(self, now_s: float) -> PieceClaim | None:
        """The end to claim; None where another has, and lives."""
        return self._claimable(THE_END, now_s)

    def _claimable(self, shard: int, now_s: float) -> PieceClaim | None:
        attempt, claimant = self._claims.get(shard, (-1, None))
        is_free = claimant is None or self.is_gone(claimant, now_s)
        return PieceClaim(shard, attempt + 1) if is_free else None

    def settled(self, shards: Iterable[int]) -> None:
        """These shards need no claim: they are committed, could not be computed, or belong to this process already."""
        ended = set(shards)
        self._open = [shard for shard in self._open if shard not in ended]

    def was_claimed(self, claim: PieceClaim, claimant: str, now_s: float) -> None:
        """Somebody had claimed it before; one that is never heard of is gone after a while, too."""
        self._claims[claim.shard] = (claim.attempt, claimant)
        self._claimants.setdefault(claimant, _Claimant("", now_s, is_over=False))

    def heard_of(self, claimant: str, sign: str, now_s: float, is_over: bool = False) -> None:
        """Another process has left this sign of life; one that is over has ended, or was found to be dead."""
        known = self._claimants.get(claimant)
        since_s = now_s if known is None or known.sign != sign else known.since_s
        self._claimants[claimant] = _Claimant(sign, since_s, is_over)

    def is_gone(self, claimant: str, now_s: float) -> bool:
        """Whether another process has ended or was silent for too long, so that others may take its shards."""
        known = self._claimants.get(claimant)
        return known is not None and (known.is_over or now_s >= known.since_s + self._timeout_s)

    def living(self, now_s: float) -> int:
        """Number of other living processes."""
        return sum(not self.is_gone(claimant, now_s) for claimant in self._claimants)
