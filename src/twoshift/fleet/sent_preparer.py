"""A model's preparer on its way from a replica to whoever prepares rows: unpacked where it is used, and only there."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from twoshift.ports import Columns, Prepared, RowPreparer

__all__ = ["SentPreparer"]


class SentPreparer:
    """A RowPreparer. A tokenizer takes tenths of a second to unpack: too long for a server that only passes it on."""

    def __init__(self, preparer: RowPreparer) -> None:
        self._pickled = pickle.dumps(preparer)

    def __reduce__(self) -> Any:
        return _received, (self._pickled,)

    @cached_property
    def unpacked(self) -> RowPreparer:
        """As the replica has it."""
        return pickle.loads(self._pickled)  # noqa: S301 - from a process of our own

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        """As the model's own."""
        return self.unpacked.prepare(rows)

    def joined(self, parts: Sequence[Any]) -> Prepared:
        """As the model's own."""
        return self.unpacked.joined(parts)

    def arrays_of(self, rows: Any) -> Columns:
        """As the model's own."""
        return self.unpacked.arrays_of(rows)

    def rows_of(self, arrays: Columns) -> Prepared:
        """As the model's own."""
        return self.unpacked.rows_of(arrays)


def _received(pickled: bytes) -> SentPreparer:
    made = SentPreparer.__new__(SentPreparer)
    made._pickled = pickled
    return made
