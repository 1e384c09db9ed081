"""Recall: how many of the true nearest vectors a search finds, on a sample, against a search that looks at all."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from twoshift.vectors.library import Found, IndexShape, Searcher, Vectors, VectorSet

__all__ = ["NEAREST", "measured_recall"]

NEAREST = 10
_QUERIES, _SEED = 256, 0
_TIE = 1e-6  # scores that differ by less are equal: copies of a vector are as good as one another


def measured_recall(
    vectors: VectorSet, searcher: Searcher, shape: IndexShape, efforts: Iterable[int]
) -> tuple[int, dict[int, float]]:
    """How many vectors were looked for, and recall@10 at each effort; a vector is not its own neighbour."""
    near = min(NEAREST, vectors.count - 1)
    if near < 1:
        return 0, dict.fromkeys(efforts, 1.0)
    chosen = np.random.default_rng(_SEED).choice(vectors.count, min(_QUERIES, vectors.count), replace=False)
    chosen = np.sort(chosen)
    queries = vectors.take(chosen)
    least = _exact(vectors, queries, chosen, near, shape.metric)
    recalls = {}
    for effort in efforts:
        found = searcher.search(queries, near + 1, effort)
        recalls[effort] = _share(vectors, found, queries, chosen, least, shape.metric)
    return len(chosen), recalls


def _exact(vectors: VectorSet, queries: Vectors, own: NDArray[np.int64], near: int, metric: str) -> Vectors:
    """The score of each query's last true neighbour."""
    best, start = np.full((len(queries), near), -np.inf, np.float32), 0
    for chunk in vectors.chunks():
        scores = _scores(queries, chunk, metric)
        here = (own >= start) & (own < start + len(chunk))
        scores[np.flatnonzero(here), own[here] - start] = -np.inf
        both = np.concatenate([best, scores], axis=1)
        best = -np.partition(-both, near - 1, axis=1)[:, :near]
        start += len(chunk)
    return best.min(axis=1)


def _share(
    vectors: VectorSet, found: Found, queries: Vectors, own: NDArray[np.int64], least: Vectors, metric: str
) -> float:
    """Of the neighbours there are, those that were found: by their true scores, whatever the index has made of them."""
    places, near = found.places, found.places.shape[1] - 1
    unique = np.unique(places[places >= 0])
    exact = vectors.take(unique)
    hits = 0
    for row, query in enumerate(queries):
        others = [place for place in places[row] if place >= 0 and place != own[row]][:near]
        scores = _scores(query[None], exact[np.searchsorted(unique, others)], metric)[0]
        tie = _TIE * max(1.0, abs(float(least[row])))
        hits += int((scores >= least[row] - tie).sum())
    return hits / (near * len(queries))


def _scores(queries: Vectors, vectors: Vectors, metric: str) -> Vectors:
    """The larger the nearer."""
    products = queries @ vectors.T
    if metric != "l2":
        return products
    lengths = np.einsum("ij,ij->i", vectors, vectors)
    return 2 * products - lengths[None] - np.einsum("ij,ij->i", queries, queries)[:, None]
