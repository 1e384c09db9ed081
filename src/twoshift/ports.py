"""Protocols for what the decision code needs from outside; adapters implement them in other layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from twoshift.policy.job_states import JobMove
from twoshift.policy.profile import Profile
from twoshift.policy.threads import ThreadPlan
from twoshift.types import JobKindName, JobState, LoadedAdapter, Tensor, TextPolicy

__all__ = [
    "PARITY_BAR",
    "Blob",
    "Blobs",
    "Claim",
    "Columns",
    "JobRecord",
    "JobStore",
    "LanedRuntime",
    "Launched",
    "LookupRuntime",
    "LossyRuntime",
    "Prepared",
    "PreparedElsewhere",
    "Profiles",
    "RowPreparer",
    "Runtime",
    "RuntimeInfo",
    "ThreadedRuntime",
]

PARITY_BAR = 0.99  # below which a lossy precision is refused: docs/adr/0006-lossy-precision.md says why
Columns = Mapping[str, NDArray[Any]]  # one array per column; the first axis is rows


class Profiles(Protocol):
    """Measured cost curves, by name."""

    def get(self, name: str) -> Profile:
        """The profile of that name; raises InvalidInput with the known names, Broken where it is damaged."""
        ...

    def put(self, profile: Profile) -> None:
        """Store a profile, replacing one of the same name; a reader sees the old or the new one, complete."""
        ...

    def names(self) -> list[str]:
        """The known names, sorted."""
        ...


class Prepared(Protocol):
    """Rows that are ready for the device, in order."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row, at least 1; 1 for tabular rows."""
        ...

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which rows were longer than the model takes and were cut."""
        ...

    @property
    def signature(self) -> Hashable:
        """The types and sizes of its rows, which all have the same; rows of another one never share a call with them.

        None where any rows of the model can share a call.
        """
        ...

    def slice(self, start: int, stop: int) -> Prepared:
        """Rows `start` to `stop`, without copying more than they hold."""
        ...

    def take(self, order: NDArray[np.int64]) -> Prepared:
        """The rows at these positions, in this order."""
        ...


class RowPreparer(Protocol):
    """Prepares rows of a model without its device. It can be pickled into any process, and any thread may call it."""

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """Like `prepare` of the runtime; raises InvalidInput that names the row."""
        ...

    def joined(self, parts: Sequence[Any]) -> Prepared:
        """Rows that it has prepared, of one signature, one after the other."""
        ...

    def arrays_of(self, rows: Any) -> Columns:
        """The prepared rows as arrays, for the process with the device."""
        ...

    def rows_of(self, arrays: Columns) -> Prepared:
        """The rows from the arrays, without a copy."""
        ...


@runtime_checkable
class PreparedElsewhere(Protocol):
    """A Runtime whose rows can be prepared in other processes."""

    @property
    def row_preparer(self) -> RowPreparer: ...


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """Which model runs where and in which precision: the key of its profile."""

    model: str  # as the user named it
    checksum: str  # of the weights, so that another version is another model
    runtime: str  # "onnxruntime", "torch", "python", ...
    device: str  # "cpu: <name>, 2 threads", "cuda: NVIDIA H200"
    precision: str  # "fp32", "bf16", "int8"
    max_row_tokens: int  # longer rows are cut by `prepare`
    outputs: tuple[str, ...]  # names of the columns
    live_stream: bool = False  # whether a live call overtakes background calls that are on the device already
    parity: float | None = None  # lossy precision: similarity of the worst answer to full; 1: equal
    inputs: tuple[Tensor, ...] = ()  # inputs of a row; empty if only the user's class knows
    # a row for warm-up, if one can be made or the user's class has one
    example: Any = field(default=None, compare=False)
    example_words: tuple[str, ...] = field(default=(), compare=False)  # known words, to make texts of any length
    prompts: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)  # prompt text by name
    default_prompt_name: str | None = None  # prompt of rows that do not name one
    adapters: Mapping[str, LoadedAdapter] = field(default_factory=dict[str, LoadedAdapter], hash=False)  # by name
    prepare_waits: bool = False  # whether `prepare` is user code, which may block
    is_ordered: bool = field(default=False, compare=False)  # whether a row's values have an order and no names
    features: tuple[str, ...] = field(default=(), compare=False)  # of a tabular model: the names of a row's values
    texts: TextPolicy = field(default=TextPolicy(), compare=False)  # of live requests; jobs have their own
    pads: bool = field(default=False, compare=False)  # whether rows of unlike lengths run one after another in a call
    can_split: bool = field(default=False, compare=False)  # whether answers to pieces of a text can be averaged
    normalises: bool = field(default=False, compare=False)  # whether its vectors have length 1
    # of outputs with a number for each class: the names of the classes
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False)
    registry: str = field(default="", compare=False)  # registry of the model, with its profiles
    files: str = field(default="", compare=False)  # of a registered model, on the machine that has loaded it


class Launched(Protocol):
    """A call that runs on the device."""

    def wait(self) -> Columns:
        """Block until the results are in host memory, rows in the order of the parts.

        Raises OutOfMemory, DeviceLost, or whatever the model raised.
        """
        ...


@runtime_checkable
class LossyRuntime(Protocol):
    """A model in a lossy precision, which can be compared with full precision."""

    def parity_on(self, rows: Sequence[Any]) -> float:
        """Similarity of the worst answer to full precision; 1 is equal. Rows that fail are left out."""
        ...


class Runtime(Protocol):
    """A model on one device. One thread owns it; `prepare` alone may be called from any."""

    @property
    def info(self) -> RuntimeInfo: ...

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """Convert the user's rows to the device's format; raises InvalidInput that names the row."""
        ...

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Launched:
        """Begin one call over the rows of all parts; may return before it is done, and may raise as `wait` does."""
        ...

    def close(self) -> None:
        """Release the device; nothing may be called after it."""
        ...


@runtime_checkable
class LanedRuntime(Protocol):
    """A Runtime whose device can be divided into lanes; `launch` uses the whole device."""

    @property
    def lanes(self) -> int:
        """Number of calls that can run at the same time; 1 without lanes."""
        ...

    def launch_beside(self, parts: Sequence[Prepared]) -> Launched:
        """Like `launch`, in one lane; as many threads as there are lanes may call it at the same time."""
        ...


@runtime_checkable
class ThreadedRuntime(Protocol):
    """A Runtime that chooses the number of threads of a call by its size; the answers do not depend on it."""

    @property
    def thread_candidates(self) -> tuple[int, ...]:
        """Numbers of threads to choose from, increasing; one number if the user has set it."""
        ...

    @property
    def threads(self) -> ThreadPlan | None:
        """Threads of its calls; None until a number is chosen: the library's default."""
        ...

    def use_threads(self, plan: ThreadPlan) -> None:
        """Use this plan from the next call on."""
        ...


@runtime_checkable
class LookupRuntime(Protocol):
    """A Runtime that first looks up data for its rows; `prepare` does both steps, for callers that can block."""

    def lookup(self, rows: Sequence[Any]) -> Future[list[Any]]:
        """The rows with what was found for them; raises InvalidInput that names a row. May be cancelled."""
        ...

    def looked_up(self, rows: Sequence[Any]) -> Prepared:
        """Convert rows from `lookup` to the device's format."""
        ...


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as a server stores it; its results are in its output folder."""

    id: str
    settings: dict[str, Any]  # JSON-ready
    state: JobState
    created_unix_s: float
    updated_unix_s: float
    reason: str = ""  # of its state
    progress: dict[str, Any] | None = None  # JSON-ready: the last known progress
    owner: str = ""  # the tenant that submitted it; empty without keys
    due_unix_s: float | None = None  # when its window ends
    kind: JobKindName = JobKindName.TABLE


class Claim(Protocol):
    """Which server runs the jobs of a store: one at a time.

    Raises TryLater where the database does not answer; that alone takes it from nobody.
    """

    def take(self) -> bool:
        """Take the claim; True if this server has it now."""
        ...

    def renew(self) -> bool:
        """Whether this server still has the claim; call it every few seconds."""
        ...

    def release(self) -> None:
        """Release the claim, so that others can take it at once."""
        ...

    @property
    def told(self) -> str:
        """Which server has the claim, as text for users."""
        ...


class JobStore(Protocol):
    """The jobs of a fleet; any thread may call it. Losing it loses no result.

    Raises TryLater where the database does not answer, and Elsewhere, instead of a change, where another server runs
    the jobs by now.
    """

    def add(self, job: JobRecord) -> bool:
        """Store a job; False if its id is taken."""
        ...

    def get(self, job_id: str) -> JobRecord:
        """The job with this id; raises NotFound."""
        ...

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        """Jobs of one owner or of all, newest first; `after` is the id of the last job of the previous page."""
        ...

    def unfinished(self) -> list[JobRecord]:
        """Jobs that have not ended, oldest first."""
        ...

    def waiting(self, most_of_one: int, besides: Collection[str] = ()) -> list[JobRecord]:
        """Of each owner those that come first by their windows: queued, or said to run. Oldest first."""
        ...

    def wait_for(self, owner: str, reason: str, besides: Collection[str] = ()) -> None:
        """Store the reason why an owner's queued jobs wait."""
        ...

    def of_output(self, output: str) -> JobRecord | None:
        """The unfinished job that writes to this output."""
        ...

    def overdue(self) -> int:
        """Number of queued or paused jobs whose windows have ended."""
        ...

    def open_jobs(self, owner: str) -> int:
        """Number of an owner's unfinished jobs."""
        ...

    def move(self, job_id: str, move: JobMove, reason: str = "") -> bool:
        """Change the state if the current state allows it; True if it did."""
        ...

    def progressed(self, progress: Mapping[str, dict[str, Any]]) -> None:
        """Store the progress of jobs, by id."""
        ...

    def note(self, job_id: str, text: str) -> None:
        """Add a line to the job's log."""
        ...

    def notes(self, job_id: str, limit: int = 1000) -> list[tuple[float, str]]:
        """The last lines of the job's log with their times, oldest first."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


@dataclass(frozen=True, slots=True)
class Blob:
    """A file in a folder or a bucket."""

    location: str  # as a user would write it: a path, or s3://, gs:// or az://bucket/key
    size_bytes: int
    identity: str  # changes whenever the content may have changed
    written: str = ""  # time of the last write, even if the content is the same
    written_s: float = 0.0  # time of the last write since 1970, by the clock of the storage


class Blobs(Protocol):
    """Where a job's inputs lie and its results go; any thread may call it.

    Raises InvalidInput where the location or the access to it must be changed, TryLater where a disk is full or nobody
    answers, Broken where what lies there cannot be read.
    """

    def stat(self, location: str) -> Blob | None:
        """The file at this location; None if it does not exist."""
        ...

    def list(self, prefix: str) -> list[Blob]:
        """All files below a folder, sorted by location; raises NotFound if there are none."""
        ...

    def names(self, prefix: str) -> set[str]:
        """Names of the files directly in a folder; empty if the folder does not exist."""
        ...

    def open(self, location: str) -> BinaryIO:
        """Open a file, buffered and seekable; raises InvalidInput if it does not exist."""
        ...

    def read(self, location: str) -> bytes | None:
        """Content of a small file; None if it does not exist."""
        ...

    def write(self, location: str, data: bytes) -> None:
        """Write or replace a small file; a reader sees the old or the new content, complete."""
        ...

    def create(self, location: str, data: bytes) -> bool:
        """Create a small file; False if it exists already."""
        ...

    def staging(self, location: str) -> Path:
        """The local folder in which to write a file that will be published at this location."""
        ...

    def publish(self, staged: Path, location: str) -> bool:
        """Move a staged file to this location, atomically; False if a file exists there."""
        ...

    def write_large(self, location: str, chunks: Callable[[], Iterator[bytes]], size_bytes: int) -> None:
        """Put a file of any size there, or replace it, whole; nothing where the chunks raise. They may be asked again.

        For content that decides its own name: whoever else writes there writes the same.
        """
        ...

    def write_unnamed(self, folder: str, chunks: Iterator[bytes], location: Callable[[], str | None]) -> bool:
        """Put a file where `location` says after its last chunk, or nowhere; False, unread, where names come first."""
        ...

    def delete(self, location: str) -> None:
        """Delete the file, if it exists."""
        ...

    def sweep(self, prefix: str) -> int:
        """Delete the leftovers of killed writers below a folder, if they can be identified; returns their number."""
        ...
