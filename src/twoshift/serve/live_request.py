"""A live request: the rows that a caller wants answered, and by when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from twoshift.serve.host import Visit

__all__ = ["LiveRequest"]


class LiveRequest(msgspec.Struct, frozen=True, eq=False):
    """Times are on this machine's monotonic clock. A struct: a frozen dataclass takes five times as long to make."""

    rows: Sequence[Any]
    deadline_s: float
    arrived_s: float
    tenant: str = ""  # who pays
    visit: Visit | None = None  # what it takes of the loop; None: nobody counts that

    @property
    def reserve_s(self) -> float:
        """The share of its time that the device does not get: the host needs it for the reply."""
        return 0.0 if self.visit is None else self.visit.reserve_s
