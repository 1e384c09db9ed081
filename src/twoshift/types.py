"""Immutable values that all layers share."""

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
    """Priority class of rows: live requests, streams with a freshness objective, or batch jobs."""

    ONLINE = "online"
    MICRO = "micro"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """A loaded LoRA adapter of a language model."""

    path: str  # as the user named it
    checksum: str


class JobKindName(enum.StrEnum):
    """Kind of a job's input."""

    TABLE = "table"
    REQUESTS = "requests"  # a batch file
    STREAM = "stream"  # rows that keep coming


class JobState(enum.StrEnum):
    """State of a job on a server."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"  # by a user; continues after `resume`
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the job has ended for good."""
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class BatchStatus(enum.StrEnum):
    """Status of a batch; the values are those of OpenAI's API."""

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
    """State of a run of a schedule."""

    WAITING = "waiting"  # for the job of the last run, or before a retry
    SUBMITTED = "submitted"
    SKIPPED = "skipped"  # the job of the last run had not ended
    MISSED = "missed"
    FAILED = "failed"  # its job could not be submitted


class DeliveryState(enum.StrEnum):
    """State of a webhook delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"  # for good


class CallSize(NamedTuple):
    """Size of a forward call, as far as its cost depends on it. A tuple, because hot paths create millions."""

    rows: int
    tokens: int
    longest: int
    squares: int  # sum of squared lengths: the cost of attention

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
    """One prepared live row."""

    key: int
    deadline_s: float
    tokens: int = 1
    signature: int = 0  # rows of different signatures never share a call


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output column of a model."""

    name: str
    dtype: str  # as numpy names it, or "text"
    shape: tuple[int, ...] = ()  # of one row; -1: any size


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Replicas of a model by state; a replica that drains is in neither count."""

    ready: int
    starting: int = 0


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """What to do with texts that are longer than the model's limit, and with empty texts."""

    too_long: str = "cut"  # or "error", "split"
    empty: str | None = None  # "error", "skip", "answer"; None: null is an error, any other text is answered

    def most_tokens(self, row_tokens: int, rows: int) -> int:
        """Longest text in a request with at most this many rows, in tokens: a split text may use all of them."""
        return row_tokens * rows if self.too_long == "split" else row_tokens

    @staticmethod
    def is_empty(text: object) -> bool:
        """Whether the text is null or blank."""
        return text is None or (isinstance(text, str) and not text.strip())
