"""Rows prepared although some of them cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from twoshift.errors import Broken, TryLater

__all__ = ["prepared_parts"]

P = TypeVar("P")


def prepared_parts(prepare: Callable[[Sequence[Any]], P], rows: Sequence[Any]) -> Iterator[tuple[int, P | Exception]]:
    """Where each stretch of rows begins and the rows, prepared; a row that cannot be is alone with its error."""
    left = [(0, len(rows))] if rows else []
    while left:
        start, stop = left.pop()
        try:
            part = prepare(rows[start:stop])
        except (Broken, TryLater, KeyboardInterrupt):  # no row is to blame
            raise
        except BaseException as error:  # a user's own class may raise anything, and a library panic
            if stop - start > 1:
                middle = (start + stop) // 2
                left += [(middle, stop), (start, middle)]
                continue
            part = error if isinstance(error, Exception) else RuntimeError(repr(error))
        yield start, part
