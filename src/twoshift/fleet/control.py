"""What a front and a replica that it has started tell each other beside live requests.

It goes over a pipe between a process and its own child: jobs' rows and a model's example may be any Python value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twoshift.error_codec import EncodedError
from twoshift.fleet.sent_preparer import SentPreparer
from twoshift.policy.cost import CallCost
from twoshift.policy.llm_admission import LlmBounds
from twoshift.ports import RuntimeInfo
from twoshift.types import Lane, Tensor

if TYPE_CHECKING:  # a server without jobs does without their packages
    from twoshift.batch.job_seats import SeatTask, Used

__all__ = [
    "Follow",
    "FromChild",
    "Hold",
    "Leave",
    "LoadFailed",
    "Loaded",
    "Noted",
    "Resume",
    "Stop",
    "TakePlace",
    "ToChild",
    "UsageReport",
    "Work",
    "WorkEnded",
    "WorkSaid",
    "WorkTold",
]


# To a replica


@dataclass(frozen=True, slots=True)
class Stop:
    """End, in peace: there are no live requests any more."""


@dataclass(frozen=True, slots=True)
class TakePlace:
    """A job or a stream has a place in a background lane."""

    place: int
    weight: float
    lane: Lane


@dataclass(frozen=True, slots=True)
class Hold:
    """Its rows wait."""

    place: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Its rows run again."""

    place: int


@dataclass(frozen=True, slots=True)
class Follow:
    """How urgent it is from now on."""

    place: int
    deadline_s: float
    owed: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing more will come of it."""

    place: int


@dataclass(frozen=True, slots=True)
class Work:
    """Start a worker."""

    work: int
    place: int
    task: SeatTask
    name: str


@dataclass(frozen=True, slots=True)
class WorkTold:
    """A message to a worker; None: it shall end."""

    work: int
    message: Any  # as its task knows it


ToChild = Stop | TakePlace | Hold | Resume | Follow | Leave | Work | WorkTold

# From a replica


@dataclass(frozen=True, slots=True)
class Noted:
    """How far its start is, for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The model is loaded and warm."""

    info: RuntimeInfo
    derived: Any  # Derived, or LlmDerived of a language model
    outputs: tuple[Tensor, ...]
    most_rows: int
    cost: CallCost
    bounds: LlmBounds | None = None  # of a language model
    preparer: SentPreparer | None = None  # where a front can prepare rows itself
    live_path: str = ""  # where other fronts of this machine connect; empty where they cannot
    board_path: str = ""  # where they read what it has to do


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The model cannot be loaded."""

    error: EncodedError


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What one of the places has had of the device so far."""

    place: int
    used: Used


@dataclass(frozen=True, slots=True)
class WorkSaid:
    """A message from a worker."""

    work: int
    message: Any  # as its task knows it


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """Its thread is over."""

    work: int


FromChild = Noted | Loaded | LoadFailed | UsageReport | WorkSaid | WorkEnded
