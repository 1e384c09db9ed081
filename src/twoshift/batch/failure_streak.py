"""What has gone wrong since the last commit: so much in a row that it is not the shards."""

from __future__ import annotations

__all__ = ["FailureStreak"]

_IDLE_DEATHS = 5  # of workers without a shard, and without a commit between them
_DEADLY_SHARDS = 5  # in a row: trying all the others would only kill more workers
_SAME_FAILURES = 10  # of shards, of one cause, without a commit between them
_DELAYS_IN_A_ROW = 5  # shards that a full disk or a silent endpoint gave back, without a commit between them


class FailureStreak:
    """Each method notes one more, and says whether that is too many."""

    def __init__(self, most_workers: int) -> None:
        self._workers = most_workers  # each of which may fail once before anything is known
        self.committed()

    def committed(self) -> None:
        """It works: the streak is over."""
        self.idle_deaths = 0
        self._deadly_shards = self._delays = 0
        self._same: tuple[str, int] = ("", 0)  # the last cause, and how often in a row

    def failed(self, cause: str) -> bool:
        """A shard."""
        last, count = self._same
        self._same = (cause, count + 1 if last == cause else 1)
        return self._same[1] >= _SAME_FAILURES + self._workers

    def delayed(self) -> bool:
        """A shard was given back, to be done later."""
        self._delays += 1
        return self._delays >= _DELAYS_IN_A_ROW

    def killed(self, dead_shards: int) -> bool:
        """A worker was, and these shards of it are not tried again."""
        self._deadly_shards += dead_shards
        return self._deadly_shards >= _DEADLY_SHARDS

    def died_idle(self) -> bool:
        """A worker that had no shard."""
        self.idle_deaths += 1
        return self.idle_deaths >= _IDLE_DEATHS + self._workers
