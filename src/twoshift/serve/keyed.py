"""Requests whose rows have keys, and what is found for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from twoshift.answers.kept_rows import KeptKey
from twoshift.engine import RowResult
from twoshift.serve.deployments import Deployment, Serving
from twoshift.serve.host import Visit
from twoshift.serve.keys import ANYONE, Caller
from twoshift.serve.model import Answer

__all__ = ["AnswersByKey", "Asked", "Found", "LiveSide", "LookedUp", "RequestKeys", "Rules"]


class Found(StrEnum):
    """What a look-up comes to."""

    HIT = "hit"
    WRITTEN_BACK = "written_back"  # computed live before, from the same input
    MISS = "miss"
    STALE = "stale"
    WRONG_VERSION = "wrong_version"
    DAMAGED = "damaged"
    UNAVAILABLE = "unavailable"  # the store does not answer
    UNKEYED = "unkeyed"  # nothing was asked by key


class RequestKeys(NamedTuple):
    """The keys of a request's rows, None where a row has none; `{}` in the field stands for a row's place."""

    values: Sequence[Any]
    field: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and who asks."""

    rows: Sequence[Any]
    keys: RequestKeys | None
    timeout_s: float | None
    arrived_s: float
    caller: Caller = ANYONE
    visit: Visit | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Which answers are served."""

    key: str  # the column
    max_age_s: float | None = None  # None: any age
    computes_missing: bool = True  # False: they are refused


class LookedUp(NamedTuple):
    """What was found for a row."""

    found: Found
    row: RowResult | None = None
    age_s: float = 0.0
    why: str = ""
    kept_as: KeptKey | None = None  # by which it is written back once it is computed


class LiveSide(Protocol):
    """Who computes what is missing."""

    async def answer(
        self,
        model: Deployment,
        rows: Sequence[Any],
        timeout_s: float | None,
        arrived_s: float,
        caller: Caller = ANYONE,
        visit: Visit | None = None,
    ) -> Answer: ...

    def inside(self, model: Deployment, caller: Caller) -> AbstractContextManager[Serving]: ...


class AnswersByKey(Protocol):
    """The precomputed answers of a deployment."""

    rules: Rules

    @property
    def text_is_key(self) -> bool:
        """Whether a text that is asked for is its own key."""
        ...

    async def look_up(self, keys: RequestKeys, rows: Sequence[Any] | None, model: Deployment) -> list[LookedUp]:
        """Each row, counted; raises InvalidInput for a key that is none."""
        ...

    async def answer(self, live: LiveSide, model: Deployment, asked: Asked) -> Answer:
        """From what is there, and live for the rest; raises NotFound where that is not wanted."""
        ...
