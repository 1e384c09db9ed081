"""Recall: what a search that looks at everything finds is the measure, and copies of a vector are as good as one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.vectors.library import Found, IndexShape, Vectors
from twoshift.vectors.recall import measured_recall


class Given:
    """A VectorSet in memory."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors, (self.count, self.dims) = vectors, vectors.shape

    def chunks(self) -> Iterator[Vectors]:
        yield self.vectors[:70]
        yield self.vectors[70:]

    def take(self, places: NDArray[np.int64]) -> Vectors:
        return self.vectors[places]


class Exact:
    """A Searcher that looks at the first so many vectors: at `effort` per cent of them."""

    def __init__(self, vectors: Vectors, metric: str) -> None:
        self._vectors, self._metric = vectors, metric

    def search(self, queries: Vectors, most: int, effort: int) -> Found:
        seen = self._vectors[: len(self._vectors) * effort // 100]
        scores = queries @ seen.T
        if self._metric == "l2":
            scores = -np.linalg.norm(queries[:, None] - seen[None], axis=2)
        places = np.argsort(-scores, axis=1)[:, :most]
        padded = np.full((len(queries), most), -1)
        padded[:, : places.shape[1]] = places
        return Found(padded, np.zeros(padded.shape, np.float32))


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_a_search_that_sees_half_of_the_vectors_finds_half_of_the_neighbours(metric: str) -> None:
    vectors = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    sampled, recall = measured_recall(Given(vectors), Exact(vectors, metric), IndexShape(metric, 8), (50, 100))
    assert sampled == 200
    assert recall[100] == 1.0
    assert 0.4 < recall[50] < 0.6


def test_copies_of_a_vector_are_as_good_as_one_another() -> None:
    vectors = np.repeat(np.eye(4, dtype=np.float32), 50, axis=0)
    _, recall = measured_recall(Given(vectors), Exact(vectors, "ip"), IndexShape("ip", 4), (100,))
    assert recall == {100: 1.0}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_vectors_have_few_neighbours(count: int) -> None:
    vectors = np.eye(3, dtype=np.float32)[:count]
    _, recall = measured_recall(Given(vectors), Exact(vectors, "ip"), IndexShape("ip", 3), (100,))
    assert recall == {100: 1.0}
