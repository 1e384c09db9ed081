"""Quotes in CSV: which of them count, and what is outside of them.

A quote opens a field only at the field's beginning; inside, two are one character, and one closes. Anywhere else it is
a character like others (`5" pipe`). That is how pyarrow's and Python's parsers read, so rows end where they end there;
but a quote that takes in the rows behind it, which they read as one cell, is an error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twoshift.batch.inputs import records

__all__ = ["QuotedEnds", "UnclosedQuote", "is_outside", "real_quotes"]

_NEWLINE, _RETURN, _QUOTE = 10, 13, 34

Places = NDArray[np.int64]


class UnclosedQuote(Exception):
    """A quote opens a cell that takes in the rows behind it; `place` counts bytes from where the scan began."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(why)
        self.place = place


class QuotedEnds:
    """Ends of records, chunk after chunk: the newlines outside of quoted fields."""

    def __init__(self, delimiter: int) -> None:
        self._delimiter = delimiter
        self._after = (delimiter, _NEWLINE, _RETURN, _QUOTE)  # what may follow a closing quote
        self._inside = False
        self._before = _NEWLINE  # the last byte of the chunk before
        self._closed = False  # and whether that was a closing quote
        self._at = 0  # where this chunk begins
        self._cell, self._lines = 0, 0  # the last quoted cell of the chunks before: where it opened, and its newlines

    def ends(self, chunk: NDArray[np.uint8]) -> Places:
        """The places just behind each newline that ends a record; raises UnclosedQuote."""
        quotes = real_quotes(chunk, self._delimiter, self._inside, self._before, self._closed)
        newlines = np.flatnonzero(chunk == _NEWLINE)
        self._check_closing(chunk, quotes, newlines)
        ends = newlines[is_outside(newlines, quotes, self._inside)] + 1
        if len(quotes) or self._inside:
            self._cell, self._lines = self._cell_of(len(quotes) - 1, quotes, newlines, len(chunk))
        self._inside ^= bool(len(quotes) & 1)
        self._before = int(chunk[-1])
        self._closed = not self._inside and len(quotes) > 0 and int(quotes[-1]) == len(chunk) - 1
        self._at += len(chunk)
        if self._inside and self._lines and self._at - self._cell > records.MOST_ROW_BYTES:
            raise UnclosedQuote(self._cell, f"no closing quote within {records.MOST_ROW_BYTES >> 20} MiB")
        return ends

    def close(self) -> None:
        """The text is at its end; raises UnclosedQuote."""
        if self._inside:
            raise UnclosedQuote(self._cell, "the file ends before the quote closes")

    def _check_closing(self, chunk: NDArray[np.uint8], quotes: Places, newlines: Places) -> None:
        """Raises where text follows the closing quote of a cell of several lines: the quote was another cell's."""
        closing = np.arange(int(not self._inside), len(quotes), 2)
        closing = closing[quotes[closing] < len(chunk) - 1]
        bad = closing[~np.isin(chunk[quotes[closing] + 1], self._after)].tolist()
        found = [self._cell_of(each, quotes, newlines, int(quotes[each])) for each in bad]
        if self._closed and chunk[0] not in self._after:
            found.insert(0, (self._cell, self._lines))
        for place, lines in found:
            if lines:
                raise UnclosedQuote(place, "the next quote is on another line and has text after it")

    def _cell_of(self, which: int, quotes: Places, newlines: Places, until: int) -> tuple[int, int]:
        """Where the quoted cell of a quote opened, and its newlines up to a place in the chunk."""
        opening = which - int((which + self._inside) & 1)
        while opening > 0 and quotes[opening - 1] == quotes[opening] - 1:  # two quotes are one character
            opening -= 2
        is_carried = opening < 0 or (quotes[opening] == 0 and self._closed)
        begin = 0 if is_carried else int(quotes[opening])
        lines = int(np.searchsorted(newlines, until) - np.searchsorted(newlines, begin))
        return (self._cell, self._lines + lines) if is_carried else (self._at + begin, lines)


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
