"""Similarity of a text to the expected text, from 0 to 1."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

__all__ = ["agreeing_share", "exact_match", "longest_common", "rouge_l"]

_WORD = re.compile(r"\w+")


def exact_match(expected: str, text: str) -> float:
    """1 if the texts are equal, apart from white space at both ends; else 0."""
    return float(expected.strip() == text.strip())


def rouge_l(expected: str, text: str) -> float:
    """F1 of the longest common subsequence of their words, in lower case, without stemming."""
    wanted, found = (_WORD.findall(each.lower()) for each in (expected, text))
    if not wanted or not found:
        return float(wanted == found)
    return 2 * longest_common(wanted, found) / (len(wanted) + len(found))


def agreeing_share(one: Sequence[object], other: Sequence[object]) -> float:
    """Length of the common beginning, as a share of the longer sequence; 1 if both are empty."""
    same = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return same / max(len(one), len(other)) if one or other else 1.0


def longest_common(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The length of their longest common subsequence: a bit for each word of the first, cleared where a match ends."""
    places = dict[Hashable, int]()
    for at, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << at
    everything = (1 << len(one)) - 1
    left = everything
    for word in other:
        matched = left & places.get(word, 0)
        left = ((left + matched) | (left - matched)) & everything
    return len(one) - left.bit_count()
