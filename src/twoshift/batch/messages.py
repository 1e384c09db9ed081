"""What passes between a job's coordinator and its workers, wherever they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twoshift.batch.inputs import InputFile
from twoshift.batch.parity_report import ParityReport
from twoshift.batch.part_stats import PartStats
from twoshift.batch.spot_notices import SpotNotice
from twoshift.errors import TwoshiftError
from twoshift.llm_ports import QualityReport
from twoshift.ports import RuntimeInfo

__all__ = [
    "Begin",
    "Calibrate",
    "Calibrated",
    "Failed",
    "FromWorker",
    "GiveUp",
    "Loading",
    "Noticed",
    "Ready",
    "Recheck",
    "Rechecked",
    "Score",
    "Scored",
    "ToWorker",
    "Unusable",
    "WasRead",
    "WorkerHeartbeat",
    "summed",
]


# To a worker


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Score these rows and say what they took; before the plan is made."""

    rows: list[Any]


@dataclass(frozen=True, slots=True)
class Begin:
    """The plan lies in this output folder."""

    output: str
    seconds_per_row: float
    checksum: str  # of the model of this run and its adapters: every worker has to have loaded the same
    files: tuple[InputFile, ...] | None = None  # where they are not as the plan has them: moved, or touched


@dataclass(frozen=True, slots=True)
class Score:
    """Score a shard under this lease."""

    lease: int
    shard: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Somebody else has committed the shard, or its lease is over; None: all of them."""

    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Recheck:
    """Score some rows of these shards again, as live requests."""

    shards: tuple[int, ...]
    rows: int


ToWorker = Calibrate | Begin | Score | GiveUp | Recheck

# From a worker


@dataclass(frozen=True, slots=True)
class Loading:
    """It has a place to run and loads its model now."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""

    info: RuntimeInfo
    worker: str = ""  # its name: where it runs
    most_at_once: int = 1  # shards that it may read at the same time


@dataclass(frozen=True, slots=True)
class Unusable:
    """The model cannot be loaded: the error says what the user should change, or why it broke."""

    error: TwoshiftError
    is_beginning: bool = False  # it could not begin: no shard is to blame


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What the sample took."""

    seconds_per_row: float
    schema: bytes | None  # of the result columns, Arrow's; None where no row could be scored
    error: str | None  # of the first row that failed
    parity: float | None = None  # of a lossy precision, on these rows
    error_place: int = 0  # of that row in the sample
    quality: QualityReport | None = None  # of a language model: what let it start
    host_s_per_row: float = 0.0  # for preparing, where the calls run on the same cores
    recheck_s: float = 0.0  # for `Recheck` at the end, where it is long


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """Alive; since the start: rows done, and what the device did."""

    rows: int
    busy_s: float
    tokens: int
    padding_tokens: int
    failed_calls: int
    out_of_memory: int  # of them
    max_tokens: int  # of a call; lower than configured after the memory ran out, 0 before the first shard
    at_once: int = 1  # shards that it reads at the same time
    preparers: int = 0  # processes that prepare rows for it
    output_s: float = 0.0  # of the busy time: for what a language model generated, and not for its prompts


@dataclass(frozen=True, slots=True)
class WasRead:
    """All of the shard's input is read: time for the next."""

    lease: int


@dataclass(frozen=True, slots=True)
class Scored:
    """The shard's part is there; whether it was this worker that published it."""

    lease: int
    stats: PartStats
    published: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The shard could not be done."""

    lease: int
    message: str
    permanent: bool = False  # it will not be next time either
    given_up: bool = False  # nobody's fault: as it was told
    delayed: bool = False  # not the shard's fault: a disk is full, an endpoint does not answer


@dataclass(frozen=True, slots=True)
class Rechecked:
    """How far the shifts agree."""

    receipt: ParityReport


@dataclass(frozen=True, slots=True)
class Noticed:
    """The worker's machine will be taken away."""

    notice: SpotNotice


FromWorker = Loading | Ready | Unusable | Calibrated | WorkerHeartbeat | WasRead | Scored | Failed | Rechecked | Noticed


def summed(beats: list[WorkerHeartbeat]) -> WorkerHeartbeat:
    """What several workers have done together."""
    return WorkerHeartbeat(
        rows=sum(each.rows for each in beats),
        busy_s=sum(each.busy_s for each in beats),
        tokens=sum(each.tokens for each in beats),
        padding_tokens=sum(each.padding_tokens for each in beats),
        failed_calls=sum(each.failed_calls for each in beats),
        out_of_memory=sum(each.out_of_memory for each in beats),
        max_tokens=min((each.max_tokens for each in beats if each.max_tokens), default=0),
        output_s=sum(each.output_s for each in beats),
    )
