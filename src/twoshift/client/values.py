"""What a server answers, as a client's caller has it. Fields that a newer server adds are passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from twoshift.decodable import decodable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Batch", "Chunk", "Completion", "Counts", "Embeddings", "File", "Inference", "Job", "Ranked", "Reranking"]


class Embeddings(Struct, frozen=True):
    """A vector for each text, in its order."""

    model: str
    vectors: NDArray[Any]  # float32, a row for each text
    prompt_tokens: int


class Ranked(Struct, frozen=True):
    """A document's score."""

    index: int  # in the request
    score: float


class Reranking(Struct, frozen=True):
    """Documents, the best first."""

    model: str
    results: tuple[Ranked, ...]
    total_tokens: int


class Inference(Struct, frozen=True):
    """A model's outputs by name; the first axis is rows."""

    model: str
    version: str
    outputs: dict[str, NDArray[Any]]


class Completion(Struct, frozen=True):
    """A language model's answer; `raw` is the server's reply, with logprobs and further choices."""

    model: str
    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    raw: dict[str, Any]


class Chunk(Struct, frozen=True):
    """A piece of an answer as it is generated; the last ones have the reason and the tokens."""

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@decodable
class Job(Struct, frozen=True, kw_only=True):
    """A job on a server: queued, running, paused, done, failed or cancelled."""

    id: str
    state: str
    reason: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    settings: dict[str, Any] = {}
    progress: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it goes on by itself no more; one that is paused or has failed can be resumed."""
        return self.state not in ("queued", "running")

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        return 1.0 if self.state == "done" else float((self.progress or {}).get("share", 0.0))

    @property
    def output(self) -> str:
        """The folder with the results."""
        return str(self.settings.get("output", ""))


@decodable
class File(Struct, frozen=True, kw_only=True):
    """A file on a server."""

    id: str
    bytes: int
    filename: str
    purpose: str
    created_at: int = 0
    expires_at: int | None = None


class Counts(Struct, frozen=True):
    """The requests of a batch."""

    total: int = 0
    completed: int = 0
    failed: int = 0


@decodable
class Batch(Struct, frozen=True, kw_only=True):
    """A batch: validating, in_progress, finalizing, completed, failed, expired, cancelling or cancelled."""

    id: str
    status: str
    endpoint: str
    input_file_id: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: Counts = Counts()
    errors: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is at its end."""
        return self.status in ("completed", "failed", "expired", "cancelled")
