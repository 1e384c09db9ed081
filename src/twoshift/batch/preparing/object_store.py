"""Arrays between a preparing actor and its worker in Ray's object store: read without a copy on the same node."""

from __future__ import annotations

import threading
from typing import Any

from numpy.typing import NDArray

from twoshift.batch.preparing.line import PutBlock
from twoshift.ports import Columns

__all__ = ["StoredBlocks"]

_AHEAD_BYTES = 64 << 20  # of an actor, on their way to the device and back: some twenty windows of short texts


class StoredBlocks:
    """A BlockMemory. What is stored never changes, and stays for as long as somebody has a reference to it."""

    def __init__(self, ray: Any, most_bytes: int = _AHEAD_BYTES) -> None:
        self._ray, self._most_bytes = ray, most_bytes
        self._bytes = 0  # on their way
        self._changed = threading.Condition()  # guards the one above

    def put(self, columns: Columns, result_bytes: int) -> PutBlock:
        """Rows; waits while the device is far behind. A block that is too large for that goes alone."""
        size = min(self._most_bytes, sum(values.nbytes for values in columns.values()) + result_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self._bytes + size <= self._most_bytes)
            self._bytes += size
        return PutBlock(self._ray.put(dict(columns)), None, size)

    def results(self, columns: Any) -> dict[str, NDArray[Any]]:
        """As the worker has stored them, not to be written to; none where it has nothing to say."""
        return self._ray.get(columns) if isinstance(columns, self._ray.ObjectRef) else columns

    def give_back(self, block: PutBlock) -> None:
        """There is room for another one."""
        with self._changed:
            self._bytes -= block.held
            self._changed.notify_all()
