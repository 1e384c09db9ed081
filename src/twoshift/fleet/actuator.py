"""The port of who sizes a fleet."""

from __future__ import annotations

from typing import Protocol

from twoshift.types import ReplicaCounts

__all__ = ["Actuator"]


class Actuator(Protocol):
    """Who carries out how many replicas there should be; any thread may call it, and neither call waits."""

    def replicas(self) -> ReplicaCounts:
        """As it is now."""
        ...

    def scale_to(self, replicas: int) -> None:
        """So many from now on; the counts follow. Those that go finish what they have begun."""
        ...
