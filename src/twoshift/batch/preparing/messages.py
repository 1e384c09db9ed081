"""What passes between a worker and its preparing processes, beside shards and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twoshift.batch.messages import Failed, GiveUp, Score, Scored, WasRead
from twoshift.batch.plan import Plan
from twoshift.error_codec import EncodedError
from twoshift.ports import Blobs, RowPreparer, RuntimeInfo

__all__ = ["Answered", "Cancelled", "FromPreparer", "Given", "Submitted", "ToPreparer", "Wrote"]


@dataclass(frozen=True, slots=True)
class Given:
    """What a process begins with."""

    preparer: RowPreparer
    info: RuntimeInfo
    most_rows: int  # of a request
    plan: Plan
    blobs_for: Callable[[str], Blobs]
    worker: str
    fingerprint: str = ""  # of rows that the worker has prepared; empty: of this machine, on which nothing differs


# To a worker


@dataclass(frozen=True, slots=True)
class Submitted:
    """A block for the engine; each is answered once."""

    number: int
    rows: int
    arrays: Any  # as its line has put them
    room: tuple[int, int] | None  # where its results may be put, and how many bytes; None: they are sent
    host_s: float  # of the processor, since the process was ready


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody wants that block any more; it is answered all the same, so that its memory is used again."""

    number: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """So many rows of the input more."""

    rows: int


# To a preparing process


@dataclass(frozen=True, slots=True)
class Answered:
    """A block's results; or why there are none."""

    number: int
    failed: EncodedError | None = None
    is_refusal: bool = False  # the engine has not even taken it: it would not take the next one either
    columns: Any = field(default_factory=dict)  # as its line has put them
    errors: Mapping[int, EncodedError] = field(default_factory=dict)
    device_s: float = 0.0


ToPreparer = Score | GiveUp | Answered
FromPreparer = Submitted | Cancelled | Wrote | WasRead | Scored | Failed
