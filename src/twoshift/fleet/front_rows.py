"""Rows that a front prepares itself, so that the replica's interpreter does not have to."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from twoshift.endpoints.facts import check_rows, least_lengths
from twoshift.engine.long_texts import Pieces
from twoshift.errors import TryLater
from twoshift.fleet.control import Loaded
from twoshift.ports import Prepared, RowPreparer, RuntimeInfo
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.preparing import Preparing
from twoshift.serve.stages import Stages
from twoshift.types import CallSize

__all__ = ["FrontPreparing", "FrontRows"]


class FrontRows(msgspec.Struct):
    """The rows of one request, on their way to a replica."""

    rows: Prepared
    size: CallSize
    stages: Stages  # those that are over
    queued_s: float  # when they were
    preparer: RowPreparer
    info: RuntimeInfo
    pieces: Pieces | None = None  # which of them are of one text


class FrontPreparing:
    """Of one model, on one front's loop."""

    def __init__(self, name: str, opened: Loaded, preparer: RowPreparer) -> None:
        self._most_rows, self._max_row_tokens = opened.most_rows, opened.info.max_row_tokens
        self._preparer, self._info = preparer, opened.info
        self._preparing = Preparing(
            name, preparer.prepare, opened.info.prepare_waits, texts=opened.info.texts, splitter=preparer
        )

    async def prepared(self, request: LiveRequest, least_s: Callable[[CallSize], float]) -> FrontRows:
        """What a replica is asked; raises as a replica that prepares does. `least_s`: until rows would be answered."""
        sizes = check_rows(request.rows, self._most_rows, self._max_row_tokens, self._info.texts)
        began_s = time.monotonic()
        if least := least_lengths(sizes, self._max_row_tokens):
            over_s = began_s + least_s(CallSize.of(least)) - request.deadline_s
            if over_s > 0.0:
                raise TryLater("the queue is too long to answer by the deadline", over_s)
        stages = Stages(admit=began_s - request.arrived_s)
        given = await self._preparing.prepared(request, sum(sizes), stages, began_s)
        size = CallSize.of(given.rows.lengths.tolist())
        return FrontRows(given.rows, size, stages, time.monotonic(), self._preparer, self._info, given.pieces)

    def close(self) -> None:
        """What waits is not begun."""
        self._preparing.close()
