"""What a server knows of a model, wherever its replicas run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.ports import RuntimeInfo
from twoshift.serve.completions import Completions
from twoshift.serve.derived import Derived
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm_derived import LlmDerived
from twoshift.serve.model import Answer
from twoshift.types import Lane, ReplicaCounts, Tensor

__all__ = ["LiveModel", "Sleeps", "crashes_of"]


class LiveModel(Protocol):
    """A model with its engine in this process, or with replicas in others."""

    name: str
    outputs: tuple[Tensor, ...]  # what was seen in its answers; none before the first

    @property
    def derived(self) -> Derived | LlmDerived:
        """From the curve that it began with."""
        ...

    @property
    def info(self) -> RuntimeInfo: ...

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted."""
        ...

    def start(self, completions: Completions, /) -> None:
        """On the loop that will serve; an engine in this process returns its results by `completions`."""
        ...

    def derived_now(self) -> Derived | LlmDerived:
        """From the curve as learned so far."""
        ...

    def health(self) -> Health:
        """Whether it keeps up."""
        ...

    def stats(self) -> EngineStats:
        """What its devices have done since the start."""
        ...

    def waiting(self) -> Mapping[Lane, Queue]:
        """Who waits for them."""
        ...

    def replicas(self) -> ReplicaCounts:
        """How many there are."""
        ...

    @property
    def rows_per_request(self) -> float:
        """On the average, of late."""
        ...

    def finish_in_s(self, size: int, requests: int, left_s: float, /) -> float:
        """Until so many requests of so many bytes would be answered by a device; 0: in a small part of `left_s`."""
        ...

    async def answer(self, request: LiveRequest, /) -> Answer:
        """The results; raises InvalidInput, TooLarge, TryLater, Late, Broken, or what the model raised for a row."""
        ...

    def close(self) -> None:
        """Let it go, once what runs has ended."""
        ...


@runtime_checkable
class CountsCrashes(Protocol):
    """A model that knows how often it, or a replica of it, has ended by itself."""

    @property
    def crashes(self) -> int: ...


def crashes_of(model: LiveModel) -> int:
    """How often it, or a replica of it, has ended by itself."""
    return model.crashes if isinstance(model, CountsCrashes) else 0


@runtime_checkable
class Sleeps(Protocol):
    """A model that may have no replica while nobody needs one."""

    def wakes_in_s(self) -> float | None:
        """Until it answers, where it sleeps; None where it does not."""
        ...
