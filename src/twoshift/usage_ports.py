"""The ledger of a fleet, as values and a Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["DeviceUsage", "UsageStore"]


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What somebody has had of the devices; of a sum, what it is not divided by is None."""

    day: str | None = None  # of UTC: 2026-01-31
    tenant: str | None = None
    lane: str | None = None  # live, micro or batch
    model: str | None = None
    rows: int = 0
    tokens: int = 0
    device_s: float = 0.0
    harvested_s: float = 0.0  # of those: of devices that are there for live requests
    usd: float | None = None  # of what had a price; None: nothing had one
    unpriced_s: float = 0.0  # of the device seconds: those that had none
    output_tokens: int = 0  # of the tokens: that a language model generated
    output_usd: float | None = None  # of the dollars: for those, the rest for prompts
    version: str | None = None  # of the model: the registry's number, 1 where it has none


class UsageStore(Protocol):
    """The ledger of a fleet; any thread may call it. Raises TryLater where the database does not answer."""

    def put(self, writer: str, counted: Sequence[DeviceUsage]) -> None:
        """What a writer has counted of each day, tenant, lane, model and version: in place of what it said before.

        So nothing is counted twice, however often it is said.
        """
        ...

    def sums(self, first: str, last: str, group_by: Sequence[str], tenant: str | None = None) -> list[DeviceUsage]:
        """Over all writers, from the first day to the last, of one tenant or of all; in the order of the groups."""
        ...

    def spent(self, day: str, besides: str) -> dict[str, float]:
        """By tenant: the device seconds of a day that other writers than that one have counted."""
        ...

    def close(self) -> None:
        """Let the database go."""
        ...
