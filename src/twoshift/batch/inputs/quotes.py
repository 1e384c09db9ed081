"""Quotes in CSV: which of them count, and what is outside of them.

A quote opens a field only at the field's beginning; inside, two are one character, and one closes. Anywhere else it is
a character like others (`5" pipe`). That is how pyarrow's and Python's parsers read, so rows end where they end there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["QuotedEnds", "is_outside", "real_quotes"]

_NEWLINE, _QUOTE = 10, 34

Places = NDArray[np.int64]


class QuotedEnds:
    """Ends of records, chunk after chunk: the newlines outside of quoted fields."""

    def __init__(self, delimiter: int) -> None:
        self._delimiter = delimiter
        self._inside = False
        self._before = _NEWLINE  # the last byte of the chunk before
        self._closed = False  # and whether that was a closing quote

    def ends(self, chunk: NDArray[np.uint8]) -> Places:
        """The places just behind each newline that ends a record."""
        quotes = real_quotes(chunk, self._delimiter, self._inside, self._before, self._closed)
        newlines = np.flatnonzero(chunk == _NEWLINE)
        ends = newlines[is_outside(newlines, quotes, self._inside)] + 1
        self._inside ^= bool(len(quotes) & 1)
        self._before = int(chunk[-1])
        self._closed = not self._inside and len(quotes) > 0 and int(quotes[-1]) == len(chunk) - 1
        return ends


def real_quotes(
    text: NDArray[np.uint8], delimiter: int, inside: bool = False, before: int = _NEWLINE, closed: bool = False
) -> Places:
    """The quotes that open or close a field, by turns; the rest says how the text before this one ended."""
    quotes = np.flatnonzero(text == _QUOTE)
    opening = quotes[int(inside) :: 2]
    if not opening.size:
        return quotes
    prior = text[opening - 1]
    if opening[0] == 0:
        prior[0] = _QUOTE if closed else before if before != _QUOTE else 0
    # Where every second quote begins a field or follows a closing one, all count: nearly always.
    if np.all((prior == delimiter) | (prior == _NEWLINE) | (prior == _QUOTE)):
        return quotes
    return _one_by_one(text, quotes, delimiter, (inside, before, closed))


def _one_by_one(text: NDArray[np.uint8], quotes: Places, delimiter: int, state: tuple[bool, int, bool]) -> Places:
    inside, before, closed = state
    real: list[int] = []
    closed_at = -1 if closed else -2
    priors = text[quotes - 1].tolist()
    if len(quotes) and quotes[0] == 0:
        priors[0] = before
    for place, prior in zip(quotes.tolist(), priors, strict=True):
        if inside:
            inside, closed_at = False, place
        elif prior in (delimiter, _NEWLINE) or place - 1 == closed_at:
            inside = True
        else:
            continue
        real.append(place)
    return np.array(real, np.int64)


def is_outside(places: Places, quotes: Places, inside: bool = False) -> NDArray[np.bool_]:
    """Which places are outside of quoted fields."""
    if not len(quotes):
        return np.full(len(places), not inside)
    return ((np.searchsorted(quotes, places) + inside) & 1) == 0
