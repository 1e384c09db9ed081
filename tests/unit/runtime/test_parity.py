"""One definition of parity for each task."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from twoshift.runtime.encoder.figures import FigureCache
from twoshift.runtime.encoder.parity import parity, parity_meaning
from twoshift.runtime.encoder.sample import calibration_rows, parity_rows
from twoshift.runtime.encoder.task import ClassificationTask, EmbeddingTask, RerankingTask

EMBEDDING = EmbeddingTask(("mean",))
LABELS = ClassificationTask(("no", "yes"), False)
SCORE = RerankingTask("identity")


def vectors(*rows: list[float]) -> dict[str, np.ndarray]:
    return {"embedding": np.array(rows, np.float32)}


def test_the_same_answers_have_parity_one() -> None:
    exact = vectors([3.0, 4.0], [0.0, 0.0])
    assert parity(EMBEDDING, exact, exact) == pytest.approx(1.0)


def test_an_embedding_is_judged_by_its_worst_cosine() -> None:
    exact, lossy = vectors([1.0, 0.0], [1.0, 0.0]), vectors([1.0, 0.0], [3.0, 4.0])
    assert parity(EMBEDDING, exact, lossy) == pytest.approx(0.6)


def test_a_vector_that_became_nothing_has_no_parity() -> None:
    assert parity(EMBEDDING, vectors([1.0, 0.0]), vectors([0.0, 0.0])) == 0.0


def test_labels_are_judged_by_the_largest_difference_of_a_score() -> None:
    exact = {"scores": np.array([[0.2, 0.8], [0.5, 0.5]], np.float32)}
    lossy = {"scores": np.array([[0.2, 0.8], [0.47, 0.53]], np.float32)}
    assert parity(LABELS, exact, lossy) == pytest.approx(0.97)


def test_scores_that_are_no_probabilities_count_as_shares_of_their_span() -> None:
    exact, lossy = {"score": np.array([-5.0, 5.0], np.float32)}, {"score": np.array([-5.0, 4.5], np.float32)}
    assert parity(SCORE, exact, lossy) == pytest.approx(0.95)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_answer_that_is_not_finite_is_as_bad_as_can_be(bad: float) -> None:
    assert parity(EMBEDDING, vectors([1.0, 0.0]), vectors([bad, 0.0])) == -1.0
    assert parity(SCORE, {"score": np.ones(1, np.float32)}, {"score": np.array([bad], np.float32)}) == -1.0


def test_the_measure_is_named_in_words() -> None:
    assert "cosine" in parity_meaning(EMBEDDING)
    assert "score" in parity_meaning(LABELS)


def test_the_sample_has_long_and_short_rows_and_judges_by_others_than_it_calibrates_on() -> None:
    judged, calibrated = parity_rows(EMBEDDING), calibration_rows(EMBEDDING)
    assert min(map(len, judged)) == 0
    assert max(map(len, judged)) > 1500
    assert not {row for row in judged if len(row) > 3} & {row for row in calibrated if len(row) > 3}


def test_models_that_score_get_pairs() -> None:
    assert all(len(row) == 2 for row in parity_rows(SCORE))


def test_parity_is_never_outside_its_range() -> None:
    exact, lossy = np.array([[0.0], [1.0]], np.float32), np.array([[50.0], [-50.0]], np.float32)
    assert parity(SCORE, {"score": exact}, {"score": lossy}) == -1.0


@pytest.mark.parametrize("figure", ["7.0", "-1.5", "NaN", "Infinity", "true", '"0.999"', "1" + "0" * 400])
def test_a_stored_figure_that_cannot_be_is_not_believed(tmp_path: Path, figure: str) -> None:
    cache = FigureCache(tmp_path, "sha256:ab", ("onnxruntime", "int8"))
    cache.put(0.995)
    assert cache.get() == 0.995
    path = next(tmp_path.glob("models/ab/parity-*.json"))
    path.write_text(path.read_text().replace("0.995", figure))
    assert cache.get() is None


def test_a_stored_figure_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    cache = FigureCache(tmp_path, "sha256:ab", ("onnxruntime", "int8"))
    cache.put(0.995)
    path = next(tmp_path.glob("models/ab/parity-*.json"))
    path.unlink()
    os.mkfifo(path)
    assert cache.get() is None
