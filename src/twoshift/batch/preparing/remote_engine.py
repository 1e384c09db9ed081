"""The engine of a worker, as its preparing processes see it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twoshift.batch.preparing.line import BlockMemory, PutBlock
from twoshift.batch.preparing.messages import Answered, Cancelled, FromPreparer, Given, Submitted
from twoshift.engine.results import BlockFuture, BlockResult
from twoshift.engine.waiting import BlockOwner
from twoshift.error_codec import EncodedError, decode_error
from twoshift.ports import Prepared, RowPreparer, RuntimeInfo

__all__ = ["RemoteEngine"]


@dataclass(frozen=True, slots=True)
class _LocalPreparing:
    info: RuntimeInfo
    row_preparer: RowPreparer

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """Here, without the device."""
        return self.row_preparer.prepare(rows)


@dataclass(frozen=True, slots=True)
class _Block:
    """With the worker."""

    future: BlockFuture
    rows: int
    put: PutBlock


class RemoteEngine:
    """A BlockTaker: rows are prepared here and run there."""

    def __init__(self, given: Given, memory: BlockMemory, send: Callable[[FromPreparer], None]) -> None:
        self.runtime = _LocalPreparing(given.info, given.preparer)
        self.most_rows = given.most_rows
        self._preparer, self._memory, self._send = given.preparer, memory, send
        self._blocks = dict[int, _Block]()
        self._numbers = itertools.count()
        self._row_bytes = 0  # of the results, as far as they are known
        self._refused: EncodedError | None = None  # why the last block was not taken
        self._lock = threading.Lock()  # guards the blocks
        self._began_s = time.process_time()

    def submit_block(self, rows: Any, *, owner: BlockOwner | None = None) -> BlockFuture:
        """Background rows; waits until there is room for them. Whose they are is for the worker to say."""
        if (refused := self._refused) is not None:
            self._refused = None
            raise decode_error(refused)
        columns, count, number = self._preparer.arrays_of(rows), len(rows.lengths), next(self._numbers)
        put = self._memory.put(columns, count * self._row_bytes)
        future = BlockFuture(lambda: self._send(Cancelled(number)))
        with self._lock:
            self._blocks[number] = _Block(future, count, put)
        self._send(Submitted(number, count, put.arrays, put.room, time.process_time() - self._began_s))
        return future

    def answered(self, message: Answered) -> None:
        """What became of a block."""
        with self._lock:
            block = self._blocks.pop(message.number)
        result = self._result(block, message)
        self._memory.give_back(block.put)
        block.future.settle(result)

    def _result(self, block: _Block, message: Answered) -> BlockResult | Exception:
        if message.failed is not None:
            self._refused = message.failed if message.is_refusal else self._refused
            return decode_error(message.failed)
        columns = self._memory.results(message.columns)
        result_bytes = sum(values.nbytes for values in columns.values())
        self._row_bytes = max(self._row_bytes, -(-result_bytes // block.rows))
        known = {id(encoded): decode_error(encoded) for encoded in message.errors.values()}
        errors: dict[int, Exception] = {row: known[id(encoded)] for row, encoded in message.errors.items()}
        return BlockResult(columns, errors, message.device_s)
