"""Rows to measure a model with: texts made to a wanted length, or the user's own, repeated."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from twoshift.errors import InvalidInput
from twoshift.policy.plan.row import RowSize
from twoshift.ports import Runtime

__all__ = ["ExampleRows", "examples_of", "given_rows", "made_texts"]

# Common enough to be one token each in about every vocabulary.
_WORDS = ("the", "house", "is", "on", "an", "old", "road", "and", "people", "come", "to", "see", "it", "in", "summer")
_PROBE_WORDS = 16
_SHORT_TOKENS, _LONG_TOKENS = 8, 512
_VARIED = 1.5  # the longest row over the shortest, from which length squared can be told from length


@dataclass(frozen=True, slots=True)
class ExampleRows:
    """Rows in any number: `make(rows, tokens)`; `lengths` are the ones to measure, `row` the typical one."""

    make: Callable[[int, int], list[Any]]
    lengths: tuple[int, ...]
    row: RowSize


def made_texts(runtime: Runtime, row_tokens: int) -> ExampleRows | None:
    """Texts of plain words for a model that takes texts, or pairs of them; None for one that does not."""
    known = [words for words in (_WORDS, runtime.info.example_words) if words]
    for shape in (partial(shape, words) for words in known for shape in (_text, _pair)):
        if not _takes(runtime, shape):
            continue
        short, long = (int(n) for n in runtime.prepare([shape(2, 0), shape(2 + _PROBE_WORDS, 0)]).lengths)
        per_word = (long - short) / _PROBE_WORDS
        if per_word > 0:  # else its tokens do not count these words
            return _texts(runtime, row_tokens, shape, short, per_word)
    return None


def _texts(
    runtime: Runtime, row_tokens: int, shape: Callable[[int, int], Any], short: int, per_word: float
) -> ExampleRows:
    """Texts of that shape, of which one of two words has `short` tokens."""

    def make(rows: int, tokens: int) -> list[Any]:
        words = max(1, 2 + round((tokens - short) / per_word))
        return [shape(words, number) for number in range(rows)]

    most = min(_LONG_TOKENS, runtime.info.max_row_tokens)
    typical = _fitting(runtime, make, min(row_tokens, runtime.info.max_row_tokens))
    longest = _fitting(runtime, make, max(typical, most))
    return ExampleRows(make, tuple(sorted({min(_SHORT_TOKENS, most), typical, longest})), RowSize.uniform(typical))


def examples_of(runtime: Runtime, row_tokens: int) -> ExampleRows | None:
    """The model's own example, repeated, or texts made for it; None where neither can be had."""
    if runtime.info.example is not None:
        return given_rows(runtime, [runtime.info.example])
    return made_texts(runtime, row_tokens)


def _fitting(runtime: Runtime, make: Callable[[int, int], list[Any]], tokens: int) -> int:
    """That length, or a shorter one where the model refuses texts of about it instead of cutting them."""
    for share in (1.0, 0.9, 0.75, 0.5):
        with contextlib.suppress(InvalidInput):
            runtime.prepare(make(len(_WORDS), int(share * tokens)))
            return max(1, int(share * tokens))
    return 1


def given_rows(runtime: Runtime, rows: Sequence[Any]) -> ExampleRows:
    """The user's rows, those nearest to a wanted length repeated; raises InvalidInput that names a bad one."""
    if not rows:
        raise InvalidInput("rows", 0, "at least one example row")
    lengths = runtime.prepare(rows).lengths
    order = np.argsort(lengths, kind="stable").tolist()
    ranked = [int(lengths[k]) for k in order]
    few = max(1, len(rows) // 4)

    def make(count: int, tokens: int) -> list[Any]:
        nearest = sorted(range(len(order)), key=lambda k: abs(ranked[k] - tokens))[:few]
        return [rows[order[k]] for k in itertools.islice(itertools.cycle(nearest), count)]

    varied = ranked[-1] >= _VARIED * ranked[0]
    wanted = [ranked[int(q * (len(ranked) - 1))] for q in ((0.1, 0.5, 0.9) if varied else (0.5,))]
    mean = float(lengths.mean())
    # The length that a row's tokens see on average: long rows hold more of them.
    seen = float((lengths.astype(np.float64) ** 2).sum() / lengths.sum())
    return ExampleRows(make, tuple(sorted(set(wanted))), RowSize(mean, max(mean, seen)))


def _takes(runtime: Runtime, shape: Callable[[int, int], Any]) -> bool:
    if runtime.info.max_row_tokens <= 1:
        return False
    try:
        runtime.prepare([shape(1, 0)])
    except InvalidInput:
        return False
    return True


def _text(known: Sequence[str], words: int, number: int) -> str:
    chosen = itertools.islice(itertools.cycle(known), number % len(known), number % len(known) + words)
    return " ".join(chosen)


def _pair(known: Sequence[str], words: int, number: int) -> tuple[str, str]:
    query = max(1, words // 4)
    return _text(known, query, number), _text(known, max(1, words - query), number + 1)
