"""Frozen values that every layer shares."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "BatchStatus",
    "CallSize",
    "DeliveryState",
    "Item",
    "JobKindName",
    "JobState",
    "Lane",
    "LoadedAdapter",
    "ReplicaCounts",
    "RunState",
    "Tensor",
]


class Lane(enum.StrEnum):
    """Who is waiting: a caller, a freshness objective, or nobody."""

    ONLINE = "online"
    MICRO = "micro"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """A LoRA adapter of a language model, as it was loaded."""

    path: str  # as the user named it
    checksum: str


class JobKindName(enum.StrEnum):
    """What a job's input is."""

    TABLE = "table"
    REQUESTS = "requests"  # of a batch
    STREAM = "stream"  # rows that keep coming


class JobState(enum.StrEnum):
    """A job that a server knows of."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"  # by a user; goes on when told
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class BatchStatus(enum.StrEnum):
    """Status of a batch, as OpenAI's API names it."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in (BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)


class RunState(enum.StrEnum):
    """A run of a schedule."""

    WAITING = "waiting"  # for the last one, or for a moment
    SUBMITTED = "submitted"
    SKIPPED = "skipped"  # the last one was still going
    MISSED = "missed"
    FAILED = "failed"  # its job could not be submitted


class DeliveryState(enum.StrEnum):
    """A notice on its way."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"  # for good


class CallSize(NamedTuple):
    """What one forward call is made of, as far as its cost is concerned. A tuple: the hot paths make millions."""

    rows: int
    tokens: int
    longest: int
    squares: int  # sum of length squared: what attention pays for

    @classmethod
    def of(cls, lengths: Iterable[int]) -> CallSize:
        """The size of a call over items of these lengths."""
        sizes = tuple(lengths)
        if len(sizes) == 1:
            (n,) = sizes
            return cls(1, n, n, n * n)
        return cls(len(sizes), sum(sizes), max(sizes, default=0), sum([n * n for n in sizes]))

    @classmethod
    def uniform(cls, rows: int, length: int = 1) -> CallSize:
        """The size of a call over `rows` items that are all `length` tokens long."""
        return cls(rows, rows * length, length if rows else 0, rows * length * length)

    def plus(self, other: CallSize) -> CallSize:
        """The size of one call over the items of both."""
        return CallSize(
            self.rows + other.rows,
            self.tokens + other.tokens,
            max(self.longest, other.longest),
            self.squares + other.squares,
        )


class Item(NamedTuple):
    """One prepared row that somebody waits for."""

    key: int
    deadline_s: float
    tokens: int = 1
    signature: int = 0  # rows of different signatures never share a call


@dataclass(frozen=True, slots=True)
class Tensor:
    """One column of a model's rows, going in or coming out."""

    name: str
    dtype: str  # as numpy names it, or "text"
    shape: tuple[int, ...] = ()  # of one row; -1: any size


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The replicas of a model; one that drains is in neither."""

    ready: int
    starting: int = 0


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """What becomes of texts that are longer than the model takes, and of those that say nothing."""

    too_long: str = "cut"  # or "error", "split"
    empty: str | None = None  # "error", "skip", "answer"; None: null is an error, any other text is answered

    def most_tokens(self, row_tokens: int, rows: int) -> int:
        """Of a text in a request of at most so many rows: one that is split may have all of them."""
        return row_tokens * rows if self.too_long == "split" else row_tokens

    @staticmethod
    def is_empty(text: object) -> bool:
        """Whether there is none: null, or nothing but spaces."""
        return text is None or (isinstance(text, str) and not text.strip())
