"""Rows to results through an engine's background lane: prepared on threads ahead of the device, answered in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from twoshift.engine.loop import Engine
from twoshift.engine.results import BlockFuture, BlockResult

__all__ = ["feed"]

_READERS = 2  # one tokenises on all cores while the other hands its rows over


def feed(engine: Engine, chunks: Iterable[Sequence[Any]], ahead: int = 4) -> Iterator[BlockResult]:
    """The results of each chunk, in order; at most `ahead` chunks are prepared or on the device at a time.

    Raises what `prepare` raises for a row that it does not take.
    """

    def submit(rows: Sequence[Any]) -> BlockFuture:
        return engine.submit_block(engine.runtime.prepare(rows))

    waiting: deque[Future[BlockFuture]] = deque()
    with ThreadPoolExecutor(_READERS, "twoshift-prepare") as readers:
        for rows in chunks:
            waiting.append(readers.submit(submit, rows))
            if len(waiting) > ahead:
                yield waiting.popleft().result().result()
        while waiting:
            yield waiting.popleft().result().result()
