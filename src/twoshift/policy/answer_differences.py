"""Difference between a candidate's answers and the stable version's: for each row a number from 0 (equal) to 1."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twoshift.errors import InvalidInput
from twoshift.policy.answer_quality import longest_common

__all__ = [
    "AnswerKind",
    "DifferenceCounts",
    "DifferenceSummary",
    "column_differences",
    "differences",
    "kind_of_columns",
]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_HALF = 0.5
_EQUAL = 1e-9  # what rounding makes of equal vectors
_LEAST, _STEP = 1e-7, math.log(1.05)  # buckets 5 % wide, from a ten-millionth on
_BUCKETS = math.ceil(math.log(1 / _LEAST) / _STEP) + 2  # the first: equal; the last: 1
_COUNTED = ("finish_reason", "output_tokens")  # of a text, which says it all

Floats = NDArray[np.float64]
Rows = Sequence[Any] | NDArray[Any]


class AnswerKind(enum.StrEnum):
    """Kind of the compared answers."""

    EMBEDDING = "embedding"  # vectors: 1 - cosine
    CLASSIFICATION = "classification"  # scores of classes: 1 where the label is another, else how far they shifted
    RANKING = "ranking"  # a query's scores: (1 - rank correlation) / 2
    TEXT = "text"  # texts or token ids: tokens that do not agree, or how much longer one is
    VALUES = "values"  # numbers: the difference against the larger one; from 0 to 1, where probabilities lie, itself
    LABEL = "label"  # anything else: 1 where it is another


def differences(kind: AnswerKind | str, stable: Rows, candidate: Rows) -> Floats:
    """One difference per row, or per query of a ranking; raises InvalidInput if the numbers of answers differ."""
    if len(stable) != len(candidate):
        told = f"{len(stable):,} answers, as many as from the stable version"
        raise InvalidInput("candidate", f"{len(candidate):,} answers", told)
    pairs = zip(stable, candidate, strict=True)
    match AnswerKind(kind):
        case AnswerKind.EMBEDDING:
            found = _by_row(stable, candidate, _cosine_differences)
        case AnswerKind.CLASSIFICATION:
            found = _by_row(stable, candidate, _class_differences)
        case AnswerKind.VALUES:
            found = _by_row(stable, candidate, _value_differences)
        case AnswerKind.RANKING:
            found = _floats([_rank_difference(one, other) for one, other in pairs])
        case AnswerKind.TEXT:
            found = _floats([_text_difference(one, other) for one, other in pairs])
        case AnswerKind.LABEL:
            found = _floats([not _is_same(one, other) for one, other in pairs])
        case _ as never:
            assert_never(never)
    return np.clip(np.nan_to_num(found, nan=1.0), 0.0, 1.0)


def kind_of_columns(columns: Mapping[str, NDArray[Any]]) -> AnswerKind:
    """Kind of the answers of a model with these columns."""
    if "text" in columns and "finish_reason" in columns:
        return AnswerKind.TEXT
    for name, kind in (
        ("embedding", AnswerKind.EMBEDDING),
        ("transformed", AnswerKind.EMBEDDING),
        ("scores", AnswerKind.CLASSIFICATION),
        ("probabilities", AnswerKind.CLASSIFICATION),
        ("score", AnswerKind.RANKING),
    ):
        if name in columns:
            return kind
    return AnswerKind.VALUES if all(_is_numeric(each) for each in columns.values()) else AnswerKind.LABEL


def column_differences(
    stable: Mapping[str, NDArray[Any]], candidate: Mapping[str, NDArray[Any]], queries: Sequence[Hashable] | None = None
) -> Floats:
    """The largest difference over a model's columns, for each row; 1 if the columns differ.

    `queries` says which rows of a reranker belong together: each row gets the difference of its query.
    """
    names = [name for name in stable if name not in _COUNTED]
    rows = len(next(iter(stable.values()), ()))
    if {*names} != {name for name in candidate if name not in _COUNTED}:
        return np.ones(rows)
    kind = kind_of_columns(stable)
    if kind is AnswerKind.RANKING and queries is not None:
        return _ranked_rows(stable["score"], candidate["score"], queries)
    if kind is AnswerKind.CLASSIFICATION and "label" in names:
        names.remove("label")  # which the scores say
        changed = differences(AnswerKind.LABEL, stable["label"], candidate["label"])
        return np.maximum(changed, _worst(names, stable, candidate, rows))
    return _worst(names, stable, candidate, rows)


def _worst(
    names: Sequence[str], stable: Mapping[str, NDArray[Any]], candidate: Mapping[str, NDArray[Any]], rows: int
) -> Floats:
    found = [differences(_column_kind(name, stable[name]), stable[name], candidate[name]) for name in names]
    return np.max(found, axis=0) if found else np.zeros(rows)


def _column_kind(name: str, values: NDArray[Any]) -> AnswerKind:
    match name:
        case "scores" | "probabilities":
            return AnswerKind.CLASSIFICATION
        case "text":
            return AnswerKind.TEXT
        case _:
            if not _is_numeric(values):
                return AnswerKind.LABEL
            return AnswerKind.EMBEDDING if values.ndim > 1 else AnswerKind.VALUES


def _ranked_rows(stable: NDArray[Any], candidate: NDArray[Any], queries: Sequence[Hashable]) -> Floats:
    places = dict[Hashable, list[int]]()
    for place, query in enumerate(queries):
        places.setdefault(query, []).append(place)
    groups = list(places.values())
    found = differences(AnswerKind.RANKING, [stable[each] for each in groups], [candidate[each] for each in groups])
    rows = np.zeros(len(stable))
    for each, difference in zip(groups, found, strict=True):
        rows[each] = difference
    return rows


def _is_numeric(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "fiub"


def _is_same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def _floats(found: Sequence[float]) -> Floats:
    return np.asarray(found, np.float64)


def _by_row(stable: Rows, candidate: Rows, of: Callable[[Floats, Floats], Floats]) -> Floats:
    """Compare all rows at once if they have the same width, else one by one; rows of different widths differ by 1."""
    try:
        one, other = np.asarray(stable, np.float64), np.asarray(candidate, np.float64)
    except ValueError:  # rows of several widths
        pairs = [(np.atleast_1d(a), np.atleast_1d(b)) for a, b in zip(stable, candidate, strict=True)]
        return _floats([_by_row(a[None], b[None], of)[0] for a, b in pairs])
    if one.shape != other.shape:
        return np.ones(len(one))
    if not len(one):
        return np.zeros(0)
    with np.errstate(all="ignore"):  # what is no number is a difference of 1
        return of(one.reshape(len(one), -1), other.reshape(len(other), -1))


def _cosine_differences(one: Floats, other: Floats) -> Floats:
    sizes = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    found = 1 - np.einsum("rw,rw->r", one, other) / sizes
    found[np.abs(found) < _EQUAL] = 0.0
    same = (one == other).all(axis=1)
    return np.where((sizes == 0) | same, ~same, found)


def _class_differences(one: Floats, other: Floats) -> Floats:
    both = np.stack([one, other])
    are_shares = np.all((both >= 0) & (both <= 1), axis=(0, 2), keepdims=True)
    shares = np.where(are_shares, both, _likely(both))
    if shares.shape[2] == 1:  # the score of the one class that is not the other
        shares = np.concatenate([1 - shares, shares], axis=2)
    shifted = _HALF * np.abs(shares[0] - shares[1]).sum(axis=1)
    labels = shares.argmax(axis=2)
    return np.where(labels[0] == labels[1], shifted, 1.0)


def _likely(scores: Floats) -> Floats:
    """Turn scores that are not probabilities into probabilities, of one class or of several."""
    if scores.shape[2] == 1:
        return 1 / (1 + np.exp(-scores.clip(-500, 500)))
    raised = np.exp(scores - scores.max(axis=2, keepdims=True))
    return raised / raised.sum(axis=2, keepdims=True)


def _value_differences(one: Floats, other: Floats) -> Floats:
    larger = np.maximum(np.abs(one), np.abs(other))
    are_shares = (np.minimum(one, other) >= 0) & (larger <= 1)  # 0.001 and 0.002 are almost the same probability
    found = np.abs(one - other) / np.where(are_shares, 1.0, np.where(larger > 0, larger, 1.0))
    both_missing = np.isnan(one) & np.isnan(other)
    return np.where((one == other) | both_missing, 0.0, found).max(axis=1, initial=0.0)


def _rank_difference(stable: Any, candidate: Any) -> float:
    one, other = (np.asarray(each, np.float64).reshape(-1) for each in (stable, candidate))
    if one.shape != other.shape:
        return 1.0
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float(not np.array_equal(one, other, equal_nan=True))
    if len(one) < 2:  # nothing to order
        return float(_value_differences(one[None], other[None])[0])
    ranks = [_ranks(each) for each in (one, other)]
    if np.array_equal(ranks[0], ranks[1]):
        return 0.0
    spreads = [float(each.std()) for each in ranks]
    if 0.0 in spreads:  # one of them orders nothing: no correlation
        return _HALF
    means = [each - each.mean() for each in ranks]
    return (1 - float((means[0] * means[1]).mean()) / (spreads[0] * spreads[1])) / 2


def _ranks(scores: Floats) -> Floats:
    """Ranks from the lowest score on; equal scores share the mean of their ranks."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places.reshape(-1)]


def _text_difference(stable: Any, candidate: Any) -> float:
    one, other = _tokens(stable), _tokens(candidate)
    if not one or not other:
        return float(len(one) != len(other))
    agreeing = 2 * longest_common(one, other) / (len(one) + len(other))
    longer = 1 - min(len(one), len(other)) / max(len(one), len(other))
    return max(1 - agreeing, longer)


def _tokens(answer: Any) -> list[Hashable]:
    if answer is None:
        return []
    if isinstance(answer, str):
        return list(_TOKEN.findall(answer))
    return answer.tolist() if isinstance(answer, np.ndarray) else list(answer)


@dataclass(frozen=True, slots=True)
class DifferenceSummary:
    """Summary of the differences of many rows."""

    rows: int
    mean: float
    p50: float
    p99: float
    worst: float
    bound: float
    share_above: float  # of the rows, whose difference is more than the bound


class DifferenceCounts:
    """Counts the differences of any number of rows in constant memory; quantiles are exact to 5 %."""

    def __init__(self, bound: float = 0.0) -> None:
        if not 0 <= bound <= 1:
            raise InvalidInput("bound", bound, "a number from 0 to 1")
        self.bound = bound
        self._rows, self._above = 0, 0
        self._sum, self._worst = 0.0, 0.0
        self._buckets = np.zeros(_BUCKETS, np.int64)

    def add(self, found: ArrayLike) -> None:
        """Add the differences of more rows."""
        values = np.asarray(found, np.float64).reshape(-1)
        if not len(values):
            return
        self._rows += len(values)
        self._above += int((values > self.bound).sum())
        self._sum += float(values.sum())
        self._worst = max(self._worst, float(values.max()))
        self._buckets += np.bincount(_buckets(values), minlength=_BUCKETS)

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the counts of another object with the same bound."""
        self._rows += state["rows"]
        self._above += state["above"]
        self._sum += state["sum"]
        self._worst = max(self._worst, state["worst"])
        for bucket, count in state["buckets"]:
            self._buckets[bucket] += count

    def state(self) -> dict[str, Any]:
        """The whole state as plain JSON values."""
        counts = [(int(bucket), int(self._buckets[bucket])) for bucket in np.flatnonzero(self._buckets)]
        return {"rows": self._rows, "above": self._above, "sum": self._sum, "worst": self._worst, "buckets": counts}

    def summary(self) -> DifferenceSummary:
        """Summary of all rows so far; zeros if there are none."""
        rows = max(1, self._rows)
        return DifferenceSummary(
            rows=self._rows, mean=self._sum / rows, p50=self._quantile(0.5), p99=self._quantile(0.99),
            worst=self._worst, bound=self.bound, share_above=self._above / rows,
        )  # fmt: skip

    def _quantile(self, share: float) -> float:
        if not self._rows:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._buckets), share * self._rows))
        return min(self._worst, _middle(bucket))


def _buckets(values: Floats) -> NDArray[np.int64]:
    steps = np.ceil(np.log(np.maximum(values, _LEAST) / _LEAST) / _STEP).astype(np.int64)
    return np.where(values < _LEAST, 0, np.clip(steps + 1, 1, _BUCKETS - 1))


def _middle(bucket: int) -> float:
    return 0.0 if bucket == 0 else _LEAST * math.exp((bucket - 1.5) * _STEP)
