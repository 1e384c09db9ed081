"""The store of a server's jobs, for as long as no other server has it."""

from __future__ import annotations

from twoshift.errors import Elsewhere
from twoshift.ports import Claim, JobStore

__all__ = ["CLAIM_S", "ClaimedJobs"]

CLAIM_S = 5.0  # between looks at a claim that another server has


class ClaimedJobs:
    """Any thread may call it. Without a claim nobody else has the store."""

    def __init__(self, store: JobStore, claim: Claim | None) -> None:
        self._store, self._claim, self._is_ours = store, claim, False

    @property
    def is_ours(self) -> bool:
        """Whether this server has it."""
        return self._is_ours

    @property
    def store(self) -> JobStore:
        """The store; raises Elsewhere where it is another server's."""
        if not self._is_ours and self._claim is not None:
            raise Elsewhere(self._claim.told, CLAIM_S)
        return self._store

    @property
    def told(self) -> str:
        """Who has it, for people."""
        return "" if self._claim is None else self._claim.told

    def take(self) -> bool:
        """Whether it is ours from now on; raises TryLater."""
        self._is_ours = self._claim is None or self._claim.take()
        return self._is_ours

    def renew(self) -> bool:
        """Whether it is still ours; raises TryLater."""
        self._is_ours = self._claim is None or self._claim.renew()
        return self._is_ours

    def release(self) -> None:
        """Another server need not wait until its time has passed."""
        if self._claim is not None and self._is_ours:
            self._claim.release()

    def close(self) -> None:
        """Let the database go."""
        self._store.close()
