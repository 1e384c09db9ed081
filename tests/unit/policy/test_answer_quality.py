from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.answer_quality import agreeing_share, exact_match, rouge_l

words = st.lists(st.sampled_from("abcd"), max_size=12)


def test_exact_is_the_same_text_but_for_white_space_around_it() -> None:
    assert exact_match(" Paris\n", "Paris") == 1.0
    assert exact_match("Paris", "paris") == 0.0


def test_rouge_l_by_hand() -> None:
    assert rouge_l("police killed the gunman", "police kill the gunman") == pytest.approx(0.75)
    assert rouge_l("police killed the gunman", "The gunman, kill police!") == pytest.approx(0.5)
    assert rouge_l("a", "b") == 0.0
    assert rouge_l("", "") == 1.0
    assert rouge_l("a", "") == 0.0


def _slow_common(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + _slow_common(one[1:], other[1:])
    return max(_slow_common(one[1:], other), _slow_common(one, other[1:]))


@given(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=7), st.lists(st.sampled_from("abc"), min_size=1, max_size=7)
)
def test_rouge_l_finds_the_longest_common_subsequence(one: list[str], other: list[str]) -> None:
    expected = 2 * _slow_common(one, other) / (len(one) + len(other))
    assert rouge_l(" ".join(one), " ".join(other)) == pytest.approx(expected)


@given(words, words)
def test_only_the_common_beginning_agrees(one: list[str], other: list[str]) -> None:
    assert agreeing_share(one, one) == 1.0
    assert agreeing_share(one, other) == agreeing_share(other, one)
    assert (agreeing_share(one, other) == 1.0) == (one == other)


def test_a_share_is_of_the_longer_one() -> None:
    assert agreeing_share([1, 2, 3, 9], [1, 2, 8]) == 0.5
    assert agreeing_share([], [1]) == 0.0
