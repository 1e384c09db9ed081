"""How near a lower precision's answers are to those of full precision, as one figure for each task."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from twoshift.ports import Columns
from twoshift.runtime.encoder.task import ClassificationTask, EmbeddingTask, RegressionTask, RerankingTask, Task

__all__ = ["parity", "parity_meaning"]


def parity(task: Task, exact: Columns, lossy: Columns) -> float:
    """1 for the same answers; the worst row's figure, at least -1, which it is where an answer is not finite."""
    match task:
        case EmbeddingTask():
            name, measure = "embedding", _worst_cosine
        case ClassificationTask():
            name, measure = "scores", _worst_score
        case RerankingTask():
            name, measure = "score", _worst_score
        case RegressionTask():
            name, measure = "prediction", _worst_score
        case _:
            assert_never(task)
    given, found = exact[name].astype(np.float64), lossy[name].astype(np.float64)
    return max(-1.0, min(1.0, measure(given, found))) if np.isfinite(found).all() else -1.0


def parity_meaning(task: Task) -> str:
    """What the figure is, in words."""
    if isinstance(task, EmbeddingTask):
        return "the lowest cosine similarity with fp32"
    return "1 minus the largest difference of a score from fp32"


def _worst_cosine(exact: NDArray[np.float64], lossy: NDArray[np.float64]) -> float:
    sizes = np.linalg.norm(exact, axis=1) * np.linalg.norm(lossy, axis=1)
    cosines = (exact * lossy).sum(axis=1) / np.maximum(sizes, 1e-30)
    cosines[~exact.any(axis=1) & ~lossy.any(axis=1)] = 1.0  # nothing and nothing are the same
    return float(cosines.min(initial=1.0))


def _worst_score(exact: NDArray[np.float64], lossy: NDArray[np.float64]) -> float:
    """Scores that are no probabilities are taken as shares of the range that they span."""
    span = max(1.0, float(np.ptp(exact))) if exact.size else 1.0
    return 1.0 - float(np.abs(exact - lossy).max(initial=0.0)) / span
