"""What a job needs of an engine, whatever its model is: calls over rows, or sequences of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from twoshift.engine.results import BlockFuture, RowFuture
from twoshift.engine.stats import EngineStats, Health
from twoshift.engine.waiting import BlockOwner
from twoshift.ports import Prepared, RuntimeInfo

__all__ = ["BlockEngine", "BlockTaker", "PreparingRuntime"]


class PreparingRuntime(Protocol):
    """Of a runtime: what any thread may ask."""

    @property
    def info(self) -> RuntimeInfo: ...

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """Rows as the user has them -> rows as the device wants them; raises InvalidInput that names the row."""
        ...


class BlockTaker(Protocol):
    """Blocks of rows in, futures out; any thread may call it."""

    @property
    def runtime(self) -> PreparingRuntime: ...

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted."""
        ...

    def submit_block(self, rows: Any, *, owner: BlockOwner | None = None) -> BlockFuture:
        """Background rows."""
        ...


class BlockEngine(BlockTaker, Protocol):
    """The engine itself, in this process."""

    def now_s(self) -> float:
        """The clock that deadlines are on."""
        ...

    def submit(self, rows: Any, deadline_s: float) -> list[RowFuture]:
        """Live rows."""
        ...

    def hold(self, owner: BlockOwner) -> None:
        """Its rows wait, until `release`."""
        ...

    def release(self, owner: BlockOwner) -> None:
        """Its rows run again."""
        ...

    def retire(self, owner: BlockOwner) -> None:
        """Nobody wants its rows any more."""
        ...

    def stats(self) -> EngineStats:
        """Counters since the start."""
        ...

    def health(self, longest_wait_s: float = ...) -> Health:
        """Whether it lives and keeps up."""
        ...

    def close(self) -> None:
        """Stop now, and give the device back."""
        ...
