"""Samples of calls -> the curve that explains them best.

One robust fit serves every shape. Each shape is homogeneous in its coefficients, so `f = sum(theta_k * df/dtheta_k)`
and a weighted non-negative least-squares step on those derivatives is a Gauss-Newton step; for the line it is exact.
Residuals are relative, because calls span microseconds to seconds, and Tukey's weights give a stalled call none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost, Ceiling, Sample

__all__ = ["Fit", "fit_call_cost", "refit", "requantile"]

_Floats = NDArray[np.float64]

_TUKEY = 4.685  # 95 % efficient on clean data
_LEAST_LEFT = 0.1  # of a sample, without what reading costs
_NOISE_FLOOR = 0.03  # samples closer than this are never called outliers
_ERROR_CAP = 0.5  # a stalled sample weighs no more than this when shapes are compared
_WORTH_IT = 0.9  # a richer shape must cut the held-out error to this share of the simpler one's
_KEPT_RATIOS = 101
_SURE_CALLS = 8  # of one size, before they are believed over the curve
_SURE_CALLS_ALONE = 3  # of a row alone
_CHEAPER = 0.8  # of what the curve says, from which on it is worth remembering; a row alone always is
_CAUTIOUS = 0.9  # the quantile at which that is judged
_MOST_CEILINGS = 8
_MOST_SAMPLES = 1500


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted curve and its quality."""

    cost: CallCost
    error: float  # mean relative error on sizes held out, stalled samples apart; NaN with fewer than three sizes
    outliers: int
    samples: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """The free coefficients of a curve."""

    overhead: bool = True
    floor: bool = False
    squares: bool = False
    rows: bool = False
    soft: bool = False

    @property
    def free(self) -> list[int]:
        """Positions of the free coefficients in theta."""
        return [0] * self.overhead + [1] + [2] * self.floor + [3] * self.squares + [4] * self.rows


# Simplest first: ties go to the earlier one.
_SHAPES = (
    _Shape(),
    _Shape(overhead=False, floor=True),
    _Shape(overhead=False, floor=True, soft=True),
    _Shape(squares=True),
    _Shape(floor=True),
    _Shape(floor=True, soft=True),
    _Shape(floor=True, squares=True),
    _Shape(floor=True, soft=True, squares=True),
)


@dataclass(frozen=True, slots=True)
class _Data:
    rows: _Floats
    tokens: _Floats
    squares: _Floats
    seconds: _Floats
    weights: _Floats

    def only(self, mask: NDArray[np.bool_]) -> _Data:
        return _Data(self.rows[mask], self.tokens[mask], self.squares[mask], self.seconds[mask], self.weights[mask])

    def groups(self) -> NDArray[np.int64]:
        """A number for each size: samples of one have the same."""
        sizes = np.stack([self.rows, self.tokens, self.squares], axis=1)
        return np.unique(sizes, axis=0, return_inverse=True)[1].reshape(-1)


def fit_call_cost(samples: Sequence[Sample], weights: Sequence[float] | None = None) -> Fit:
    """Fit the shape with the lowest held-out error to all samples; raises InvalidInput for fewer than two sizes."""
    everything = _data(samples, weights)
    data = _thinned(everything)
    shape, errors = _best_shape(data)
    cost = _fit_shape(data, shape)
    # With two sizes nothing can be held out: one would be left, and no curve goes through one.
    error = float(np.mean(errors[~_outliers(data, cost)])) if data.groups().max() > 1 else math.nan
    stalled = _outliers(everything, cost)
    cost = _with_ratios(cost, everything.only(~stalled))
    return Fit(_with_ceilings(cost, everything), error, int(stalled.sum()), len(samples))


def _best_shape(data: _Data) -> tuple[_Shape, _Floats]:
    """The shape with the lowest error on held-out samples, and its errors."""
    folds = _folds(data)
    best, errors = _SHAPES[0], _held_out_errors(data, _SHAPES[0], folds)
    for shape in _SHAPES[1:]:
        best, errors = _better(data, folds, shape, best, errors)
    for shape in (replace(best, rows=True), replace(best, rows=True, squares=True)):
        best, errors = _better(data, folds, shape, best, errors)
    return best, errors


def _better(
    data: _Data, folds: list[NDArray[np.bool_]], shape: _Shape, best: _Shape, errors: _Floats
) -> tuple[_Shape, _Floats]:
    if len(shape.free) > data.groups().max() or not _can_tell(data, shape):
        return best, errors
    own = _held_out_errors(data, shape, folds)
    return (shape, own) if _capped(own) < _WORTH_IT * _capped(errors) - 1e-6 else (best, errors)


def refit(cost: CallCost, samples: Sequence[Sample], weights: Sequence[float], measured: int | None = None) -> CallCost:
    """Fit the same shape to newer samples, starting from the current coefficients; fast enough for a serving loop.

    The residual is that of the first `measured` samples.
    """
    data = _data(_besides_reading(samples, cost), weights)
    # An overhead that was once found to be nothing may come back.
    theta = _robust(data, replace(_shape_of(cost), overhead=True), _theta_of(cost), rounds=4)
    fitted = replace(_cost_of(theta, cost.soft), ceilings=cost.ceilings, reading_s=cost.reading_s)
    return requantile(fitted, samples[:measured], weights[:measured])


def requantile(cost: CallCost, samples: Sequence[Sample], weights: Sequence[float]) -> CallCost:
    """The same curve with the residual of these samples."""
    data = _arrays(_besides_reading(samples, cost), weights)
    kept = data.only(~_outliers(data, cost))
    return _with_ratios(cost, kept) if len(kept.seconds) else cost


def _besides_reading(samples: Sequence[Sample], cost: CallCost) -> Sequence[Sample]:
    """Without what reading costs by itself, which no shape has a coefficient for."""
    if not cost.reading_s:
        return samples
    less_s = cost.reading_s
    return [
        s if s.longest <= 1 else replace(s, seconds=max(_LEAST_LEFT * s.seconds, s.seconds - less_s)) for s in samples
    ]


def _data(samples: Sequence[Sample], weights: Sequence[float] | None) -> _Data:
    if len({s.size for s in samples}) < 2:
        raise InvalidInput("samples", len(samples), "samples (measured calls) of at least two different sizes")
    return _arrays(samples, weights)


def _arrays(samples: Sequence[Sample], weights: Sequence[float] | None) -> _Data:
    sizes = [s.size for s in samples]
    return _Data(
        np.array([s.rows for s in sizes], float),
        np.array([s.tokens for s in sizes], float),
        np.array([s.squares for s in sizes], float),
        np.array([s.seconds for s in samples], float),
        np.ones(len(samples)) if weights is None else np.asarray(weights, float),
    )


def _thinned(data: _Data) -> _Data:
    """Reduce the samples: keep some of every size, spread over the times at which they were measured."""
    count = len(data.seconds)
    if count <= _MOST_SAMPLES:
        return data
    group = data.groups()
    order = np.lexsort((data.seconds, group))
    starts = np.flatnonzero(np.concatenate([[True], np.diff(group[order]) > 0]))
    if len(starts) > _MOST_SAMPLES // 8:  # nearly every call has a size of its own
        kept = order[np.linspace(0, count - 1, _MOST_SAMPLES).astype(int)]
    else:
        share = _MOST_SAMPLES // len(starts)
        groups = np.split(order, starts[1:])
        kept = np.concatenate([g if len(g) <= share else g[_middles(len(g), share)] for g in groups])
    mask = np.zeros(count, bool)
    mask[kept] = True
    return data.only(mask)


def _middles(count: int, picked: int) -> NDArray[np.int64]:
    """`picked` evenly spaced positions out of `count`, without both ends: the last sample may be a stall."""
    return ((np.arange(picked) + 0.5) * count / picked).astype(np.int64)


def _can_tell(data: _Data, shape: _Shape) -> bool:
    """Whether samples can separate the cost of rows or of length squared from tokens: lengths must differ."""
    return not (shape.squares and _alike(data.squares / data.tokens)) and not (
        shape.rows and _alike(data.tokens / data.rows)
    )


def _alike(lengths: _Floats) -> bool:
    return bool(lengths.max() < 1.5 * lengths.min())


def _folds(data: _Data) -> list[NDArray[np.bool_]]:
    """Masks of held-out samples; all samples of one size are held out together."""
    group = data.groups()
    count = min(8, int(group.max()) + 1)
    return [group % count == k for k in range(count)]


def _held_out_errors(data: _Data, shape: _Shape, folds: list[NDArray[np.bool_]]) -> _Floats:
    errors = np.full(len(data.seconds), np.nan)
    for held in folds:
        kept = data.only(~held)
        if len(np.unique(kept.tokens)) >= 2:
            predicted = _predict(_fit_shape(kept, shape), data)
            errors[held] = np.abs(data.seconds[held] / predicted[held] - 1.0)
    return np.where(np.isnan(errors), _ERROR_CAP, errors)


def _capped(errors: _Floats) -> float:
    return float(np.mean(np.minimum(errors, _ERROR_CAP)))


def _fit_shape(data: _Data, shape: _Shape) -> CallCost:
    """The best local optimum over a few starting points."""
    tried = [_robust(data, shape, start) for start in _starts(data, shape)]
    theta = min(tried, key=lambda t: _loss(data, shape, t))
    return _cost_of(theta, shape.soft)


def _shape_of(cost: CallCost) -> _Shape:
    return _Shape(cost.overhead_s > 0, cost.floor_s > 0, cost.per_square_s > 0, cost.per_row_s > 0, cost.soft)


def _theta_of(cost: CallCost) -> _Floats:
    return np.array([cost.overhead_s, cost.per_token_s, cost.floor_s, cost.per_square_s, cost.per_row_s])


def _cost_of(theta: _Floats, soft: bool) -> CallCost:
    *first, per_row_s = (float(t) for t in theta)
    return CallCost(*first, soft=soft, per_row_s=per_row_s)


def _starts(data: _Data, shape: _Shape) -> list[_Floats]:
    per_token = float(np.median(data.seconds / data.tokens))
    large = data.tokens >= np.median(data.tokens)
    slope = float(np.median(data.seconds[large] / data.tokens[large]))
    if not shape.floor:
        return [np.array([0.0, min(per_token, slope), 0.0, 0.0, 0.0])]
    order = np.argsort(data.tokens)
    levels = {float(np.median(data.seconds[order][: max(1, int(len(order) * q))])) for q in (0.15, 0.3, 0.5, 0.7)}
    return [np.array([0.0, min(per_token, slope), level, 0.0, 0.0]) for level in sorted(levels)]


def _robust(data: _Data, shape: _Shape, theta: _Floats, rounds: int = 10) -> _Floats:
    """L1 steps to find the bulk of the samples, then Tukey steps to use it efficiently."""
    for _ in range(rounds):
        near = _linear(data, shape, theta)
        theta = _step(data, shape, theta, near, 1.0 / np.maximum(np.abs(near.residual), 0.01))
    if len(data.seconds) < 10:  # too few to tell an outlier from a fact
        return theta
    for _ in range(3 * rounds // 2):
        near = _linear(data, shape, theta)
        off = np.abs(near.residual)
        spread = max(_NOISE_FLOOR, 1.4826 * float(np.median(off)))
        u = np.minimum(off / (_TUKEY * spread), 1.0)
        new = _step(data, shape, theta, near, (1.0 - u**2) ** 2)
        if (np.abs(new - theta) <= 1e-6 * np.abs(theta)).all():
            return new
        theta = new
    return theta


class _Linear(NamedTuple):
    """A linearised curve around given coefficients."""

    gradient: _Floats
    predicted: _Floats
    residual: _Floats  # in logs


def _linear(data: _Data, shape: _Shape, theta: _Floats) -> _Linear:
    gradient = _gradient(data, shape, theta)
    predicted = np.maximum(gradient @ theta, 1e-15)
    return _Linear(gradient, predicted, np.log(data.seconds / predicted))


def _step(data: _Data, shape: _Shape, theta: _Floats, near: _Linear, robustness: _Floats) -> _Floats:
    """One Gauss-Newton step on relative residuals, coefficients kept at or above zero."""
    root = np.sqrt(data.weights * robustness)
    # The target in logs, so that a sample a thousand times too slow pulls no harder than its logarithm.
    target = 1.0 + np.maximum(near.residual, -0.9)
    free = shape.free
    solution = _non_negative(near.gradient[:, free] * (root / near.predicted)[:, None], target * root)
    new = np.zeros_like(theta)
    new[free] = solution
    return new if solution.any() else theta


def _non_negative(a: _Floats, b: _Floats) -> _Floats:
    """Least squares with every coefficient >= 0; exact, by trying the faces: there are at most five columns."""
    scale = np.maximum(np.sqrt((a * a).sum(axis=0)), 1e-300)
    a = a / scale
    width = a.shape[1]
    # A trace of ridge, because two columns may coincide (every call past the corner, say).
    gram, target = a.T @ a + 1e-12 * np.eye(width), a.T @ b
    best = np.linalg.solve(gram, target)
    if (best >= 0).all():
        return best / scale
    best, best_loss = np.zeros(width), math.inf
    for size in range(width - 1, 0, -1):
        for face in itertools.combinations(range(width), size):
            free = list(face)
            part = np.linalg.solve(gram[np.ix_(free, free)], target[free])
            loss = -float(part @ target[free])  # up to a constant, the squared error at its minimum
            if loss < best_loss and (part >= 0).all():
                best, best_loss = np.zeros(width), loss
                best[free] = part
    return best / scale


def _gradient(data: _Data, shape: _Shape, theta: _Floats) -> _Floats:
    """Columns df/d(overhead, per_token, floor, per_square, per_row); their product with theta is f itself."""
    line = theta[0] + theta[1] * data.tokens + theta[3] * data.squares + theta[4] * data.rows
    if not shape.floor:
        by_line, by_floor = np.ones_like(line), np.zeros_like(line)
    elif shape.soft:
        f = np.maximum(np.hypot(theta[2], line), 1e-15)
        by_line, by_floor = line / f, theta[2] / f
    else:
        by_line = (line >= theta[2]).astype(float)
        by_floor = 1.0 - by_line
    return np.array([by_line, by_line * data.tokens, by_floor, by_line * data.squares, by_line * data.rows]).T


def _loss(data: _Data, shape: _Shape, theta: _Floats) -> float:
    capped = np.minimum(np.abs(_linear(data, shape, theta).residual), _ERROR_CAP)
    return float(np.average(capped, weights=data.weights))


def _predict(cost: CallCost, data: _Data) -> _Floats:
    theta = _theta_of(cost)
    return _gradient(data, _shape_of(cost), theta) @ theta


def _outliers(data: _Data, cost: CallCost) -> NDArray[np.bool_]:
    residual = np.log(data.seconds / _predict(cost, data))
    spread = max(_NOISE_FLOOR, 1.4826 * float(np.median(np.abs(residual))))
    return np.abs(residual) > _TUKEY * spread


def _with_ceilings(cost: CallCost, data: _Data) -> CallCost:
    """Remember the sizes whose calls are far cheaper than a cautious prediction by the curve: small ones, mostly.

    A row alone, if cheaper at all: by it is judged whether a row can ever fit a budget.
    """
    group, predicted, ratio = data.groups(), _predict(cost, data), cost.ratio(_CAUTIOUS)
    found: list[tuple[bool, float, Ceiling]] = []
    for number in range(int(group.max()) + 1):
        same = group == number
        rows, tokens, squares = (int(each[same][0]) for each in (data.rows, data.tokens, data.squares))
        # Smaller calls that took longer make it a matter of luck.
        below = (data.rows <= rows) & (data.tokens <= tokens) & (data.squares <= squares)
        taken = [np.quantile(data.seconds[some], [0.5, _CAUTIOUS]) for some in (same, below)]
        middle_s, cautious_s = (float(s) for s in np.maximum(*taken))
        share = cautious_s / (ratio * float(predicted[same][0]))
        calls, most = (_SURE_CALLS_ALONE, 1.0) if rows == 1 else (_SURE_CALLS, _CHEAPER)
        if same.sum() >= calls and share < most:
            scatter = min(1.0, (cautious_s / middle_s - 1.0) / max(1e-9, ratio - 1.0))
            found.append((rows > 1, share, Ceiling(rows, tokens, squares, middle_s, scatter)))
    kept = [ceiling for *_, ceiling in sorted(found)[:_MOST_CEILINGS]]
    return replace(cost, ceilings=tuple(sorted(kept, key=lambda c: -c.tokens)))


def _with_ratios(cost: CallCost, data: _Data) -> CallCost:
    """Attach the residual's quantiles, weighted, with the median at 1.

    Stalled calls are left out: a tenth of them would make every cautious prediction a stall.
    """
    ratio = data.seconds / _predict(cost, data)
    order = np.argsort(ratio)
    ratio, weight = ratio[order], data.weights[order]
    at = (np.cumsum(weight) - weight / 2) / weight.sum()
    grid = np.linspace(0.0, 1.0, min(_KEPT_RATIOS, len(ratio)) | 1)
    values = np.interp(grid, at, ratio)
    values = np.maximum.accumulate(values / values[len(values) // 2])
    return replace(cost, ratios=tuple(float(v) for v in values))
