"""What a server does for the jobs of a kind besides running them, as the host sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twoshift.batch.allowance import Allowance
from twoshift.batch.settings import JobSettings
from twoshift.ports import Blobs

__all__ = ["HostedKind", "HostedTables"]


class HostedKind(Protocol):
    """Called from the host's threads."""

    def blobs_for(self, owner: str) -> Callable[[str], Blobs]:
        """Where jobs of an owner read and write."""
        ...

    def check_begin(self, settings: JobSettings, owner: str) -> None:
        """Raises InvalidInput where a job may not begin any more."""
        ...

    def check_change(self, job_id: str) -> None:
        """Raises InvalidInput where clients pause, resume or cancel it elsewhere."""
        ...

    def ended(self, job_id: str) -> None:
        """A run of it has ended."""
        ...

    def keep(self) -> None:
        """Once a second, beside the claim: asks the database and waits for nothing else."""
        ...


class HostedTables:
    """Tables belong to their owners, and there is nothing to do beside their runs."""

    def __init__(self, allowance_of: Callable[[str], Allowance]) -> None:
        self._allowance_of = allowance_of

    def blobs_for(self, owner: str) -> Callable[[str], Blobs]:
        """What the owner may read and write."""
        return self._allowance_of(owner).blobs_for

    def check_begin(self, settings: JobSettings, owner: str) -> None:
        """An earlier server may have had other roots."""
        self._allowance_of(owner).check_output(settings.output)

    def check_change(self, job_id: str) -> None:
        """Clients may."""

    def ended(self, job_id: str) -> None:
        """Nobody waits for it."""

    def keep(self) -> None:
        """Nothing."""
