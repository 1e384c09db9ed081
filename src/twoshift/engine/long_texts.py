"""Texts that are longer than a model takes, in pieces: what is prepared of them, and one answer from those of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from twoshift.engine.blocks import BlockTaker
from twoshift.engine.gentle_prepare import gentle_of
from twoshift.engine.results import RowResult
from twoshift.errors import InvalidInput
from twoshift.ports import Columns, Prepared, PreparedElsewhere, RowPreparer, RuntimeInfo

__all__ = ["PiecedRows", "Pieces", "SplittingPreparer", "check_split", "pieced", "pieced_by", "split_cost"]

_SPLIT = "split"


@runtime_checkable
class SplittingPreparer(RowPreparer, Protocol):
    """A RowPreparer that can also divide a text that is longer than the model takes."""

    def pieces(self, row: Any, place: int) -> Prepared:
        """The whole text as several rows, in its order; raises InvalidInput that names the place of what has none."""
        ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which rows are of one text."""

    owners: NDArray[np.int64]  # of each row: the place of its text
    tokens: NDArray[np.int64]  # of each row

    @property
    def texts(self) -> int:
        """How many there are, whole ones included."""
        return int(self.owners.max()) + 1

    @property
    def split(self) -> int:
        """Texts of several pieces."""
        return int((np.bincount(self.owners) > 1).sum())

    def take(self, order: NDArray[np.int64]) -> Pieces:
        """Of the rows in that order."""
        return Pieces(self.owners[order], self.tokens[order])

    def merged(self, columns: Columns, info: RuntimeInfo) -> dict[str, NDArray[Any]]:
        """A row a text: the mean over its pieces, weighted by their tokens; a label is that of the mean scores.

        Where the model normalises its vectors, so is the mean of several.
        """
        means = {name: self._mean(values, info) for name, values in columns.items() if values.dtype.kind == "f"}
        if "label" in columns:
            means["label"] = np.array(info.classes["scores"])[means["scores"].argmax(axis=1)]
        return {name: means[name] for name in columns}

    def merged_rows(self, rows: Sequence[RowResult], info: RuntimeInfo) -> list[RowResult]:
        """The same of live rows; each text has the time of its slowest piece."""
        columns = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0].columns}
        slowest = dict[int, RowResult]()
        for owner, row in zip(self.owners.tolist(), rows, strict=True):
            if owner not in slowest or row.forward_s > slowest[owner].forward_s:
                slowest[owner] = row
        found = self.merged(columns, info)
        return [RowResult(found, text, row.forward_s, row.call_rows) for text, row in sorted(slowest.items())]

    def _mean(self, values: NDArray[Any], info: RuntimeInfo) -> NDArray[Any]:
        weights = self.tokens / np.bincount(self.owners, self.tokens)[self.owners]
        mean = self._sum(values, weights)
        if info.normalises and values.ndim == 2:
            several = np.bincount(self.owners) > 1
            # As long as the pieces are: 1, but where a model keeps only the first dimensions of its vectors
            wanted = self._sum(np.linalg.norm(values, axis=1), weights)[several]
            mean[several] *= (wanted / np.maximum(np.linalg.norm(mean[several], axis=1), 1e-12))[:, None]
        return mean.astype(values.dtype)

    def _sum(self, values: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros((self.texts, *values.shape[1:]))
        np.add.at(total, self.owners, values * weights.reshape(-1, *[1] * (values.ndim - 1)))
        return total


class PiecedRows(NamedTuple):
    """Prepared rows, and which of them are of one text; None: each is a text."""

    rows: Prepared
    pieces: Pieces | None = None

    @property
    def texts(self) -> int:
        """That they were prepared from."""
        return len(self.rows.lengths) if self.pieces is None else self.pieces.texts

    @property
    def text_tokens(self) -> NDArray[np.int64]:
        """Of each text, all its pieces together."""
        if self.pieces is None:
            return self.rows.lengths
        return np.bincount(self.pieces.owners, self.pieces.tokens).astype(np.int64)


def pieced(engine: BlockTaker, too_long: str) -> Callable[[Sequence[Any]], PiecedRows]:
    """How an engine's background rows are prepared under that policy; one that is no "split" leaves them cut."""
    runtime = engine.runtime
    prepare = (gentle_of(engine) or runtime).prepare
    return pieced_by(prepare, runtime.row_preparer if isinstance(runtime, PreparedElsewhere) else None, too_long)


def pieced_by(
    prepare: Callable[[Sequence[Any]], Prepared], splitter: object, too_long: str
) -> Callable[[Sequence[Any]], PiecedRows]:
    """The same where rows are prepared without their runtime; `splitter` is what knows the model's tokens."""
    if too_long != _SPLIT or not isinstance(splitter, SplittingPreparer):
        return lambda rows: PiecedRows(prepare(rows))
    known = splitter
    return lambda rows: _split(known, rows, prepare(rows))


def _split(splitter: SplittingPreparer, rows: Sequence[Any], cut: Prepared) -> PiecedRows:
    if not cut.truncated.any():
        return PiecedRows(cut)
    parts, owners, start = list[Any](), list[int](), 0
    for place in np.flatnonzero(cut.truncated).tolist():
        if place > start:
            parts.append(cut.slice(start, place))
            owners += range(start, place)
        parts.append(splitter.pieces(rows[place], place))
        owners += [place] * len(parts[-1].lengths)
        start = place + 1
    if start < len(rows):
        parts.append(cut.slice(start, len(rows)))
        owners += range(start, len(rows))
    joined = splitter.joined(parts)
    return PiecedRows(joined, Pieces(np.array(owners, np.int64), joined.lengths))


def split_cost(preparer: object, rows: Sequence[Any]) -> float:
    """How many times as much rows cost in pieces as they do cut; 1 where nothing is known of them."""
    if not isinstance(preparer, SplittingPreparer):
        return 1.0
    whole = cut = 0
    for row in rows:
        try:
            made = preparer.prepare([row])
            pieces = _split(preparer, [row], made).rows
        except InvalidInput:
            continue  # it costs nothing
        whole, cut = whole + int(pieces.lengths.sum()), cut + int(made.lengths.sum())
    return whole / cut if cut else 1.0


def check_split(too_long: str, info: RuntimeInfo) -> None:
    """Raises InvalidInput where the answers to pieces of a text have no mean."""
    if too_long == _SPLIT and not info.can_split:
        returns = ", ".join(info.outputs) or "its own columns"
        which = "only embeddings and class scores of encoders can be averaged over the pieces of a text"
        accepted = f"cut or error; {info.model} returns {returns}, and {which}"
        raise InvalidInput("too_long", _SPLIT, accepted)
