"""Rows that are sorted by length together, run in the background lane and answered in their own order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twoshift.engine.blocks import BlockTaker
from twoshift.engine.long_texts import PiecedRows, Pieces, pieced
from twoshift.engine.prepare import prepared_parts
from twoshift.engine.results import BlockFuture, BlockResult, widened
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput, too_many_tokens
from twoshift.generation import RowDetails
from twoshift.ports import RuntimeInfo
from twoshift.runtime.python_source import user_place

__all__ = ["Window", "described"]

_MOST_ERROR, _MOST_VALUE = 500, 80  # characters
_LOOKED_AT = 20_000  # characters of a message
# What a message has of a row's own values: quoted, or in one piece; the apostrophe of a word quotes nothing
# Short ones too, so that what stands between two of them is not taken for a value
_VALUES = re.compile(r"""(?<!\w)(?:'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$))|[^\s'"]{81,}""")


class _Block(NamedTuple):
    places: NDArray[np.int64]  # of the texts
    future: BlockFuture  # the results of their rows
    pieces: Pieces | None  # of one text; None: each row is one, in the order of the places


@dataclass(slots=True)
class Window:
    """Rows of which the good ones are with the engine; the others have their error."""

    rows: int
    errors: dict[int, str] = field(default_factory=dict[int, str])  # by the row's place
    kinds: dict[int, str] = field(default_factory=dict[int, str])  # what kind of error it is
    causes: dict[int, Exception] = field(default_factory=dict[int, Exception])  # the errors themselves
    row_tokens: dict[int, int] = field(default_factory=dict[int, int])  # by the row's place; none: it was not prepared
    skipped: set[int] = field(default_factory=set[int])  # places of rows that have neither a result nor an error
    tokens: int = 0
    truncated: int = 0
    device_s: float = 0.0  # once the results are here, as are the two below
    output_tokens: int = 0  # that were generated
    cached_tokens: int = 0  # of the rows' own: read before, for another row
    details: dict[int, RowDetails] = field(default_factory=dict[int, RowDetails])  # by the row's place
    split: int = 0  # texts that were divided
    _blocks: list[_Block] = field(default_factory=list[_Block])
    _info: RuntimeInfo | None = None

    def submit(
        self, engine: BlockTaker, rows: Sequence[Any], owner: BlockOwner | None = None, too_long: str = "cut"
    ) -> None:
        """Hand the rows to the engine, in the best order for it; not those that have an error already, or are skipped.

        `too_long` says what becomes of a text that is longer than the model takes: "cut", "error" or "split".
        """
        self._info = engine.runtime.info
        without = self.errors.keys() | self.skipped
        places = np.array([place for place in range(len(rows)) if place not in without], np.int64)
        for start, part in prepared_parts(pieced(engine, too_long), [rows[place] for place in places]):
            if isinstance(part, Exception):
                self.fail(int(places[start]), part)
                continue
            at = places[start : start + part.texts]
            cut = part.rows.truncated
            if too_long == "error" and cut.any():
                for place in at[cut].tolist():
                    self.fail(place, too_many_tokens("text", engine.runtime.info.max_row_tokens), "too long")
                at, part = at[~cut], PiecedRows(part.rows.take(np.flatnonzero(~cut)))
            if len(at):
                self._submit(engine, at, part, owner)

    def _submit(self, engine: BlockTaker, at: NDArray[np.int64], part: PiecedRows, owner: BlockOwner | None) -> None:
        rows, pieces = part.rows, part.pieces
        self.tokens += int(rows.lengths.sum())
        self.row_tokens.update(zip(at.tolist(), part.text_tokens.tolist(), strict=True))
        self.truncated += int(rows.truncated.sum())
        self.split += 0 if pieces is None else pieces.split
        # Padded calls want rows of one length; packed ones are all alike where lengths are mixed, and predictable
        packs = engine.runtime.info.live_stream
        order = np.arange(len(rows.lengths)) if packs else np.argsort(-rows.lengths, kind="stable")
        future = engine.submit_block(rows.take(order), owner=owner)
        self._blocks.append(_Block(at[order] if pieces is None else at, future, pieces and pieces.take(order)))

    def columns(self, wait: Callable[[BlockFuture], BlockResult] = BlockFuture.result) -> dict[str, NDArray[Any]]:
        """The model's columns in the order of the rows, zero where a row has an error; waits for them."""
        columns: dict[str, NDArray[Any]] = {}
        for places, future, pieces in self._blocks:
            result = wait(future)
            self.device_s += result.device_s
            self.output_tokens += result.output_tokens
            self.cached_tokens += result.cached_tokens
            for name, values in self._of_texts(result, pieces).items():
                if name not in columns:
                    columns[name] = np.zeros((self.rows, *values.shape[1:]), values.dtype)
                columns[name] = widened(name, columns[name], values)
                columns[name][places] = values
            self.details.update((int(places[row]), each) for row, each in result.details.items())
            for row, error in result.errors.items():
                self.fail(int(places[row if pieces is None else pieces.owners[row]]), error)
        return columns

    def _of_texts(self, result: BlockResult, pieces: Pieces | None) -> dict[str, NDArray[Any]]:
        assert self._info is not None  # noqa: S101 - submit came before
        return result.columns if pieces is None else pieces.merged(result.columns, self._info)

    def fail(self, place: int, error: Exception | str, kind: str = "") -> None:
        """That row has no result."""
        self.errors[place] = error if isinstance(error, str) else described(error)
        self.kinds[place] = kind or type(error).__name__
        if isinstance(error, Exception):
            self.causes[place] = error

    def cancel(self) -> None:
        """Nobody wants the results any more."""
        for _, future, _ in self._blocks:
            future.cancel()


def described(error: BaseException) -> str:
    """An error as it is stored beside its row, whatever a user's code has put into it; of values only a beginning."""
    try:
        message = str(error)
    except Exception:
        message = "the value cannot be printed"
    if not isinstance(error, InvalidInput):
        message = f"{type(error).__name__}: {message}"
    message = _VALUES.sub(lambda found: _begun(found[0], _MOST_VALUE), message[:_LOOKED_AT])
    place = user_place(error.__cause__ or error)
    message = f"{_begun(message, _MOST_ERROR)} (at {place})" if place else _begun(message, _MOST_ERROR)
    return message.encode("utf-8", "backslashreplace").decode()


def _begun(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
