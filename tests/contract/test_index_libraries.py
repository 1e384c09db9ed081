"""Every index library: what is built is found again, by each metric, and damage is told."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.errors import Broken
from twoshift.vectors.known import LIBRARIES
from twoshift.vectors.library import IndexLibrary, IndexShape, Vectors
from twoshift.vectors.names import METRICS

DIMS = 16


class Given:
    """A VectorSet in memory."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.count, self.dims = vectors.shape

    def chunks(self) -> Iterator[Vectors]:
        for start in range(0, self.count, 100):
            yield self.vectors[start : start + 100]

    def take(self, places: NDArray[np.int64]) -> Vectors:
        return self.vectors[places]


@pytest.fixture(params=sorted(LIBRARIES))
def library(request: pytest.FixtureRequest) -> IndexLibrary:
    module = {"usearch": "usearch", "faiss": "faiss", "lance": "lance"}[request.param]
    pytest.importorskip(module)
    return LIBRARIES[request.param]


def some(count: int) -> Given:
    made = np.random.default_rng(3).standard_normal((count, DIMS)).astype(np.float32)
    return Given(made / np.linalg.norm(made, axis=1, keepdims=True))


@pytest.mark.parametrize("metric", METRICS)
def test_a_vector_finds_itself_and_its_score_is_what_the_metric_says(
    library: IndexLibrary, metric: str, tmp_path: Path
) -> None:
    vectors, shape = some(300), IndexShape(metric, DIMS)
    assert [*library.build(vectors, shape, tmp_path)][-1] == 300
    found = library.open(tmp_path, shape).search(vectors.vectors[:5], 3, library.efforts[-1])
    assert found.places[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.scores[:, 0] == pytest.approx(np.full(5, 0.0 if metric == "l2" else 1.0), abs=2e-3)
    for row in range(5):
        near = vectors.vectors[found.places[row]]
        true = near @ vectors.vectors[row] if metric != "l2" else -np.linalg.norm(near - vectors.vectors[row], axis=1)
        assert found.scores[row] == pytest.approx(true, abs=5e-3)
        assert (np.diff(found.scores[row]) <= 1e-6).all()  # the best first


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("queries", [1, 2])
def test_places_are_minus_one_where_there_are_fewer_vectors(
    library: IndexLibrary, count: int, queries: int, tmp_path: Path
) -> None:
    vectors, shape = some(count), IndexShape("cos", DIMS)
    for _ in library.build(vectors, shape, tmp_path):
        pass
    if not count:
        return  # an index without vectors is built, and never asked
    found = library.open(tmp_path, shape).search(some(queries).vectors, 6, library.efforts[0])
    assert found.places.shape == found.scores.shape == (queries, 6)
    assert [sorted(row) for row in found.places.tolist()] == [[*[-1] * (6 - count), *range(count)]] * queries


def test_an_index_of_other_dimensions_is_refused(library: IndexLibrary, tmp_path: Path) -> None:
    for _ in library.build(some(20), IndexShape("cos", DIMS), tmp_path):
        pass
    with pytest.raises(Broken, match="17 dimensions"):
        library.open(tmp_path, IndexShape("cos", DIMS + 1))


def test_what_is_not_an_index_is_refused(library: IndexLibrary, tmp_path: Path) -> None:
    for _ in library.build(some(20), IndexShape("cos", DIMS), tmp_path):
        pass
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file():
            path.write_bytes(b"nothing of the kind")
    with pytest.raises(Broken):
        library.open(tmp_path, IndexShape("cos", DIMS))


@pytest.mark.slow
def test_a_set_large_enough_for_a_real_index_is_found_again(library: IndexLibrary, tmp_path: Path) -> None:
    """Above the sizes from which faiss and Lance build more than a list."""
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((60, DIMS))
    made = (centres[rng.integers(0, 60, 10_500)] + 0.3 * rng.standard_normal((10_500, DIMS))).astype(np.float32)
    vectors, shape = Given(made / np.linalg.norm(made, axis=1, keepdims=True)), IndexShape("cos", DIMS)
    for _ in library.build(vectors, shape, tmp_path):
        pass
    found = library.open(tmp_path, shape).search(vectors.vectors[:50], 1, library.efforts[-1])
    assert (found.places[:, 0] == np.arange(50)).mean() >= 0.96


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_usearch_says_that_a_disk_is_full(tmp_path: Path) -> None:
    """Of a large index it raises no OSError itself, and a job would end as if there were a fault in it."""
    pytest.importorskip("usearch")
    (tmp_path / "vectors.usearch").symlink_to("/dev/full")
    with pytest.raises(OSError) as told:  # noqa: PT011 - its number counts, not its words
        list(LIBRARIES["usearch"].build(some(2000), IndexShape("cos", DIMS), tmp_path))
    assert told.value.errno == errno.ENOSPC
