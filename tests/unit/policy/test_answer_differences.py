from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.answer_differences import (
    AnswerKind,
    DifferenceCounts,
    column_differences,
    differences,
    kind_of_columns,
)

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


def test_embeddings_differ_by_their_angle_and_not_by_their_length() -> None:
    stable = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    candidate = [[3.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 0.0]]
    assert differences("embedding", stable, candidate) == pytest.approx([0.0, 1 - 0.5**0.5, 1.0, 1.0])


def test_an_embedding_without_a_direction_is_only_equal_to_itself() -> None:
    assert differences("embedding", [[0, 0], [0, 0], [np.nan, 1]], [[0, 0], [1, 0], [1, 1]]).tolist() == [0, 1, 1]


def test_embeddings_of_another_width_are_different() -> None:
    assert differences("embedding", np.ones((2, 3)), np.ones((2, 4))).tolist() == [1, 1]
    assert differences("embedding", [[1, 2], [1, 2, 3]], [[1, 2], [1, 2]]).tolist() == [0, 1]


def test_another_label_is_the_whole_difference_and_the_same_one_differs_by_its_scores() -> None:
    found = differences("classification", [[0.6, 0.4], [0.9, 0.1]], [[0.4, 0.6], [0.7, 0.3]])
    assert found == pytest.approx([1.0, 0.2])


def test_scores_that_are_no_probabilities_become_some() -> None:
    found = differences("classification", [[2.0, 0.0]], [[3.0, 0.0]])
    one, other = (1 / (1 + np.exp(-each)) for each in (2.0, 3.0))
    assert found == pytest.approx([other - one])


def test_a_single_score_has_a_label_too() -> None:
    assert differences("classification", [[0.7], [0.7]], [[0.6], [0.4]]) == pytest.approx([0.1, 1.0])


def test_rankings_differ_by_the_order_alone() -> None:
    stable = [[1, 2, 3], [1, 2, 3], [1, 2, 3, 4]]
    candidate = [[10, 20, 900], [3, 2, 1], [1, 3, 2, 4]]
    assert differences("ranking", stable, candidate) == pytest.approx([0.0, 1.0, (1 - 0.8) / 2])


def test_ranks_of_equal_scores_are_shared() -> None:
    assert differences("ranking", [[1, 1, 2]], [[5, 5, 9]]).tolist() == [0]
    assert differences("ranking", [[1, 1, 1]], [[1, 2, 3]]).tolist() == [0.5]
    assert differences("ranking", [[1, 2]], [[1, 2, 3]]).tolist() == [1]


def test_one_document_has_no_rank_but_a_score() -> None:
    assert differences("ranking", [[2.0]], [[1.0]]).tolist() == [0.5]


def test_texts_differ_by_their_tokens_or_by_their_length() -> None:
    stable = ["the cat sat", "the cat sat", "a b c d", "", "Yes."]
    candidate = ["the cat sat", "the dog sat", "a b", "", ""]
    assert differences("text", stable, candidate) == pytest.approx([0.0, 1 / 3, 0.5, 0.0, 1.0])


def test_token_ids_are_compared_as_they_are() -> None:
    assert differences("text", [[1, 2, 3, 4], np.array([1, 2])], [[1, 2, 9, 4], np.array([1, 2])]).tolist() == [0.25, 0]


def test_numbers_differ_by_their_share_of_the_larger_one() -> None:
    found = differences("values", [10.0, 0.0, -1.0, np.nan, np.nan], [8.0, 0.0, 1.0, np.nan, 1.0])
    assert found == pytest.approx([0.2, 0.0, 1.0, 0.0, 1.0])


def test_probabilities_differ_by_how_far_they_are_apart() -> None:
    assert differences("values", [0.001, 0.0, 0.5], [0.002, 1.0, 0.4]) == pytest.approx([0.001, 1.0, 0.1])
    assert differences("values", [0.5, -0.5], [2.0, 0.5]) == pytest.approx([0.75, 1.0])  # these are none


def test_as_many_answers_are_needed_of_both() -> None:
    with pytest.raises(InvalidInput, match="2 answers, as many as from the stable version"):
        differences("values", [1, 2], [1])


@given(st.sampled_from(["embedding", "classification", "values", "ranking"]), st.data())
def test_every_difference_is_from_0_to_1_and_none_of_an_answer_from_itself(kind: str, data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 4))
    table = st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=rows, max_size=rows)
    stable, candidate = data.draw(table), data.draw(table)
    found = differences(kind, stable, candidate)
    assert len(found) == rows
    assert ((found >= 0) & (found <= 1)).all()
    finite = [row for row in stable if np.isfinite(row).all()]
    assert differences(kind, finite, finite).tolist() == [0.0] * len(finite)


@given(st.text(), st.text())
def test_texts_differ_as_much_in_either_direction(one: str, other: str) -> None:
    assert differences("text", [one], [other]) == differences("text", [other], [one])
    assert differences("text", [one], [one])[0] == 0.0


def test_the_columns_say_what_is_compared() -> None:
    assert kind_of_columns({"embedding": np.ones((1, 2))}) is AnswerKind.EMBEDDING
    assert kind_of_columns({"label": np.array(["a"]), "scores": np.ones((1, 2))}) is AnswerKind.CLASSIFICATION
    assert kind_of_columns({"score": np.ones(1)}) is AnswerKind.RANKING
    assert kind_of_columns({"text": np.array(["a"]), "finish_reason": np.array(["stop"])}) is AnswerKind.TEXT
    assert kind_of_columns({"prediction": np.ones(1)}) is AnswerKind.VALUES
    assert kind_of_columns({"word": np.array(["a"], object)}) is AnswerKind.LABEL


def test_a_row_differs_as_much_as_the_worst_of_its_columns() -> None:
    stable = {"a": np.array([1.0, 1.0]), "b": np.array(["x", "y"], object)}
    assert column_differences(stable, {"a": np.array([1.0, 0.5]), "b": np.array(["z", "y"], object)}).tolist() == [
        1,
        0.5,
    ]
    assert column_differences(stable, {"a": np.array([1.0, 1.0])}).tolist() == [1, 1]


def test_a_label_counts_even_where_the_scores_hide_it() -> None:
    scores = np.array([[0.5, 0.5]])
    found = column_differences(
        {"label": np.array(["a"]), "scores": scores}, {"label": np.array(["b"]), "scores": scores}
    )
    assert found.tolist() == [1]


def test_the_rows_of_a_query_have_its_difference() -> None:
    queries = ["q", "r", "q", "r"]
    stable, candidate = {"score": np.array([1.0, 1, 2, 2])}, {"score": np.array([5.0, 9, 6, 8])}
    assert column_differences(stable, candidate, queries).tolist() == [0, 1, 0, 1]


def test_a_text_is_compared_and_not_how_it_was_counted() -> None:
    def answer(text: str, tokens: int) -> dict[str, np.ndarray]:
        return {
            "text": np.array([text], object),
            "finish_reason": np.array(["stop"], object),
            "output_tokens": np.array([tokens]),
        }

    assert column_differences(answer("a b", 2), answer("a b", 3)).tolist() == [0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0, 1))
def test_counts_in_constant_memory_are_as_the_rows_say(found: list[float], bound: float) -> None:
    whole, one, other = DifferenceCounts(bound), DifferenceCounts(bound), DifferenceCounts(bound)
    whole.add(found)
    one.add(found[::2])
    other.add(found[1::2])
    one.merge(json.loads(json.dumps(other.state())))
    summary, parts = whole.summary(), one.summary()
    assert (summary.rows, summary.worst) == (len(found), max(found))
    assert summary.mean == pytest.approx(np.mean(found))
    assert summary.share_above == pytest.approx(np.mean(np.array(found) > bound))
    for share, told in ((0.5, summary.p50), (0.99, summary.p99)):
        assert told == pytest.approx(np.quantile(found, share, method="inverted_cdf"), rel=0.051, abs=1.1e-7)
    assert (parts.p50, parts.p99, parts.share_above) == (summary.p50, summary.p99, summary.share_above)


def test_nothing_counted_is_no_difference() -> None:
    counts = DifferenceCounts()
    counts.add([])
    assert counts.summary().rows == 0
    assert counts.summary().p99 == 0.0
    with pytest.raises(InvalidInput):
        DifferenceCounts(1.5)


def test_one_score_that_is_no_number_differs() -> None:
    assert list(differences(AnswerKind.RANKING, [[0.0], [math.inf]], [[math.inf], [math.inf]])) == [1.0, 0.0]
