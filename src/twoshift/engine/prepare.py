"""Rows prepared although some of them cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twoshift.engine.blocks import PreparingRuntime
from twoshift.errors import Broken, TryLater
from twoshift.ports import Prepared, RowPreparer

__all__ = ["prepared_parts"]


def prepared_parts(
    runtime: PreparingRuntime | RowPreparer, rows: Sequence[Any]
) -> Iterator[tuple[int, Prepared | Exception]]:
    """Where each stretch of rows begins and the rows, prepared; a row that cannot be is alone with its error."""
    left = [(0, len(rows))] if rows else []
    while left:
        start, stop = left.pop()
        try:
            part = runtime.prepare(rows[start:stop])
        except (Broken, TryLater, KeyboardInterrupt):  # no row is to blame
            raise
        except BaseException as error:  # a user's own class may raise anything, and a library panic
            if stop - start > 1:
                middle = (start + stop) // 2
                left += [(middle, stop), (start, middle)]
                continue
            part = error if isinstance(error, Exception) else RuntimeError(repr(error))
        yield start, part
