"""What the deciding code needs from the outside world, as Protocols; adapters live in the layers below the wiring."""

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
Columns = Mapping[str, NDArray[Any]]  # one array a column; the first axis is rows


class Profiles(Protocol):
    """Measured cost curves, by name."""

    def get(self, name: str) -> Profile:
        """The profile of that name; raises InvalidInput with the known names, Broken where it is damaged."""
        ...

    def put(self, profile: Profile) -> None:
        """Store it, replacing one of the same name; a reader sees the old or the new one, whole."""
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
        """The rows at those places, in that order."""
        ...


class RowPreparer(Protocol):
    """Prepares rows of a model without its device: pickled, it works in any process, and any thread may call it."""

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """As the runtime's own; raises InvalidInput that names the row."""
        ...

    def joined(self, parts: Sequence[Any]) -> Prepared:
        """Rows that it has prepared, of one signature, one after the other."""
        ...

    def arrays_of(self, rows: Any) -> Columns:
        """What it has prepared, to be sent to the process that has the device."""
        ...

    def rows_of(self, arrays: Columns) -> Prepared:
        """The rows again, without a copy."""
        ...


@runtime_checkable
class PreparedElsewhere(Protocol):
    """A Runtime whose rows can be prepared in other processes."""

    @property
    def row_preparer(self) -> RowPreparer: ...


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """Which model runs how and where: the key of its profile."""

    model: str  # as the user named it
    checksum: str  # of the weights, so that another version is another model
    runtime: str  # "onnxruntime", "torch", "python", ...
    device: str  # "cpu: <name>, 2 threads", "cuda: NVIDIA H200"
    precision: str  # "fp32", "bf16", "int8"
    max_row_tokens: int  # longer rows are cut by `prepare`
    outputs: tuple[str, ...]  # names of the columns
    live_stream: bool = False  # whether a live call overtakes background calls that are on the device already
    parity: float | None = None  # of a lossy precision: how near its worst answer is to full precision's; 1 is equal
    inputs: tuple[Tensor, ...] = ()  # what a row has; none where only the user's own class knows
    # a row to warm up with, where one can be made up or the user's class has one
    example: Any = field(default=None, compare=False)
    example_words: tuple[str, ...] = field(default=(), compare=False)  # that it knows, to make texts of any length
    prompts: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)  # what goes before a text, by name
    default_prompt_name: str | None = None  # of the prompt of a row that names none
    adapters: Mapping[str, LoadedAdapter] = field(default_factory=dict[str, LoadedAdapter], hash=False)  # by name
    prepare_waits: bool = False  # whether `prepare` is a user's own code, which may wait for anything
    is_ordered: bool = field(default=False, compare=False)  # whether a row's values have an order and no names
    features: tuple[str, ...] = field(default=(), compare=False)  # of a tabular model: the names of a row's values
    texts: TextPolicy = field(default=TextPolicy(), compare=False)  # of live requests; jobs have their own
    can_split: bool = field(default=False, compare=False)  # whether the answers to pieces of a text have a mean
    normalises: bool = field(default=False, compare=False)  # whether its vectors have length 1
    # of outputs with a number for each class: the names of the classes
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False)
    registry: str = field(default="", compare=False)  # where a registered model lies, with what was measured of it
    files: str = field(default="", compare=False)  # of a registered model, on the machine that has loaded it


class Launched(Protocol):
    """A call that is on the device."""

    def wait(self) -> Columns:
        """Block until the results are in host memory, rows in the order of the parts.

        Raises OutOfMemory, DeviceLost, or whatever the model raised.
        """
        ...


@runtime_checkable
class LossyRuntime(Protocol):
    """A model in a lossy precision, which can be held against full precision."""

    def parity_on(self, rows: Sequence[Any]) -> float:
        """How near the worst answer is to full precision's; 1 is equal. Rows that it cannot take are left out."""
        ...


class Runtime(Protocol):
    """A model on one device. One thread owns it; `prepare` alone may be called from any."""

    @property
    def info(self) -> RuntimeInfo: ...

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """Rows as the user has them -> rows as the device wants them; raises InvalidInput that names the row."""
        ...

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Launched:
        """Begin one call over the rows of all parts; may return before it is done, and may raise as `wait` does."""
        ...

    def close(self) -> None:
        """Give the device back; nothing may be called after it."""
        ...


@runtime_checkable
class LanedRuntime(Protocol):
    """A Runtime whose device can be had in parts; `launch` has it whole."""

    @property
    def lanes(self) -> int:
        """Calls that run side by side; 1 where there are no parts."""
        ...

    def launch_beside(self, parts: Sequence[Prepared]) -> Launched:
        """As `launch`, in one of the lanes; as many threads may be in here at a time."""
        ...


@runtime_checkable
class ThreadedRuntime(Protocol):
    """A Runtime whose calls use as many threads as is quicker for their size; their answers do not depend on it."""

    @property
    def thread_candidates(self) -> tuple[int, ...]:
        """Numbers of threads to choose from, rising; one where the user has said it."""
        ...

    @property
    def threads(self) -> ThreadPlan | None:
        """What its calls use; None: as the library has it, until something is chosen."""
        ...

    def use_threads(self, plan: ThreadPlan) -> None:
        """From the next call on."""
        ...


@runtime_checkable
class LookupRuntime(Protocol):
    """A Runtime whose rows are looked up somewhere first; `prepare` does both, where nobody wants to wait apart."""

    def lookup(self, rows: Sequence[Any]) -> Future[list[Any]]:
        """The rows with what was found for them; raises InvalidInput that names a row. May be cancelled."""
        ...

    def looked_up(self, rows: Sequence[Any]) -> Prepared:
        """Rows from `lookup` as the device wants them."""
        ...


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as a server remembers it; what it has done lies in its output folder."""

    id: str
    settings: dict[str, Any]  # JSON-ready
    state: JobState
    created_unix_s: float
    updated_unix_s: float
    reason: str = ""  # of its state
    progress: dict[str, Any] | None = None  # JSON-ready: how far it was when last heard of
    owner: str = ""  # the key that asked for it; empty where there are none
    due_unix_s: float | None = None  # when its window ends
    kind: JobKindName = JobKindName.TABLE


class Claim(Protocol):
    """Which server runs the jobs of a store: one at a time.

    Raises TryLater where the database does not answer; that alone takes it from nobody.
    """

    def take(self) -> bool:
        """Whether it is ours from now on."""
        ...

    def renew(self) -> bool:
        """Whether it still is; to be asked every few seconds."""
        ...

    def release(self) -> None:
        """Others may have it at once."""
        ...

    @property
    def told(self) -> str:
        """Who has it, for people."""
        ...


class JobStore(Protocol):
    """The jobs of a fleet; any thread may call it. Losing it loses no result.

    Raises TryLater where the database does not answer, and Elsewhere, instead of a change, where another server runs
    the jobs by now.
    """

    def add(self, job: JobRecord) -> bool:
        """Remember it; False where its id is taken."""
        ...

    def get(self, job_id: str) -> JobRecord:
        """The job of that id; raises NotFound."""
        ...

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        """The newest first, of one owner or of all; `after` is the id of the last one that was seen."""
        ...

    def unfinished(self) -> list[JobRecord]:
        """Those that are not over, oldest first."""
        ...

    def waiting(self, most_of_one: int, besides: Collection[str] = ()) -> list[JobRecord]:
        """Of each owner those that come first by their windows: queued, or said to run. Oldest first."""
        ...

    def wait_for(self, owner: str, reason: str, besides: Collection[str] = ()) -> None:
        """Say of an owner's queued ones why they wait."""
        ...

    def of_output(self, output: str) -> JobRecord | None:
        """The one that is not over and writes there."""
        ...

    def overdue(self) -> int:
        """How many wait, or are paused, although their windows have ended."""
        ...

    def open_jobs(self, owner: str) -> int:
        """How many of an owner's are not over."""
        ...

    def move(self, job_id: str, move: JobMove, reason: str = "") -> bool:
        """Another state, if it is in one of those before; whether it was."""
        ...

    def progressed(self, progress: Mapping[str, dict[str, Any]]) -> None:
        """How far they are, by id."""
        ...

    def note(self, job_id: str, text: str) -> None:
        """A line for its log."""
        ...

    def notes(self, job_id: str, limit: int = 1000) -> list[tuple[float, str]]:
        """Its log: times and lines, oldest first, the last ones."""
        ...

    def close(self) -> None:
        """Let the database go."""
        ...


@dataclass(frozen=True, slots=True)
class Blob:
    """A file that lies somewhere."""

    location: str  # as a user would write it: a path, or s3://, gs:// or az://bucket/key
    size_bytes: int
    identity: str  # another one whenever the content may be another
    written: str = ""  # when; also where the content is the same
    written_s: float = 0.0  # the same since 1970, by the clock of where it lies


class Blobs(Protocol):
    """Where a job's inputs lie and its results go; any thread may call it.

    Raises InvalidInput where the location or the access to it must be changed, TryLater where a disk is full or nobody
    answers, Broken where what lies there cannot be read.
    """

    def stat(self, location: str) -> Blob | None:
        """The file of that name; None where there is none."""
        ...

    def list(self, prefix: str) -> list[Blob]:
        """Every file below a folder, sorted by location; raises NotFound where there is nothing."""
        ...

    def names(self, prefix: str) -> set[str]:
        """The names of the files right in a folder; none where there is no folder."""
        ...

    def open(self, location: str) -> BinaryIO:
        """The file, buffered and seekable; raises InvalidInput where there is none."""
        ...

    def read(self, location: str) -> bytes | None:
        """A small file; None where there is none."""
        ...

    def write(self, location: str, data: bytes) -> None:
        """Put a small file there, or replace it: a reader sees the old or the new one, whole."""
        ...

    def create(self, location: str, data: bytes) -> bool:
        """Put a small file there if there is none; whether it did."""
        ...

    def staging(self, location: str) -> Path:
        """The local folder in which a file is written that will be published at that location."""
        ...

    def publish(self, staged: Path, location: str) -> bool:
        """Put a staged file there, whole, if there is none; whether it did. The staged file is then gone."""
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
        """Remove the file, if there is one."""
        ...

    def sweep(self, prefix: str) -> int:
        """Remove what writers that were killed have left below a folder, where that can be told; how many files."""
        ...
