"""What was predicted and what came of it, as values and a Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["KINDS", "Prediction", "PredictionStore"]

KINDS = ("job", "rollout", "scaling")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One figure, once it could be measured."""

    kind: str  # job, rollout or scaling
    model: str  # the deployment
    what: str  # the figure, in words: predictions of one name are compared with each other
    unit: str  # s, or share
    predicted: float
    measured: float
    at_unix_s: float  # when it was measured
    subject: str = ""  # the id of the job or rollout
    owner: str = ""  # the tenant whose job it is; empty: the server's
    low: float | None = None  # as likely below this as above `high`: one of ten each
    high: float | None = None


class PredictionStore(Protocol):
    """Of all servers on one database; any thread may call it. Raises TryLater where it does not answer."""

    def add(self, scored: Sequence[Prediction]) -> None:
        """Keep them; the oldest go."""
        ...

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]:
        """The newest first, of one kind and one owner or of all."""
        ...
