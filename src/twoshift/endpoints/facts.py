"""What an endpoint has to know of a model, and what it is given back by it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from twoshift.errors import BrokenModel, InvalidInput, Malformed, NotFound, TooLarge
from twoshift.runtime.table import Table
from twoshift.types import Tensor, TextPolicy

__all__ = [
    "EndpointCall",
    "ModelFacts",
    "Row",
    "characters_of",
    "check_cut",
    "check_lengths",
    "check_rows",
    "check_texts",
    "finite",
    "finite_rows",
    "least_lengths",
    "least_tokens",
    "requires",
]

_CHARACTERS_PER_TOKEN = 64  # of a text, at most: a longer one cannot fit, whatever its tokens are
_CHARACTERS_PER_ID = 4
_CHARACTERS_PER_ROW = 250  # of one that is no text: what preparing it takes
_AS_THEY_COME = TextPolicy()
_LOOKED_AT = 2_000  # characters of a request, from which on it is looked at before it is prepared


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model, as far as a request's form depends on it."""

    name: str
    outputs: Sequence[str]  # that it answers with; none: not known before its first answer
    sizes: Mapping[str, int]  # of the vectors among them, where that is known
    most_rows: int  # of a request
    row_tokens: int = 1  # of the longest row; longer ones are cut
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])  # what goes before a text, by name
    inputs: Sequence[Tensor] = ()  # what a row has; none: only the model knows
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])  # by output
    adapters: Collection[str] = ()  # further names that it is asked by
    adapter: str = ""  # the one that it is asked by; empty: its own

    def asked_by(self, name: str | None) -> ModelFacts:
        """The same as a request of that name has it; raises NotFound where it is none of the model's."""
        if name == self.name:
            return self
        if name is None or name not in self.adapters:
            raise NotFound("model", name or "", " or ".join([self.name, *sorted(self.adapters)]))
        return replace(self, name=name, adapter=name)


class Row(Protocol):
    """A row's answer, by column; raises KeyError where the model has none of that name."""

    def __getitem__(self, name: str, /) -> Any: ...


class EndpointCall(Protocol):
    """A request that was read: what the model is asked, and how its answer is written."""

    @property
    def rows(self) -> list[Any]:
        """As the model takes them."""
        ...

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """The reply's body; raises BrokenModel, InvalidInput."""
        ...


def requires(model: ModelFacts, column: str, what: str) -> None:
    """Raises InvalidInput where the model has no such output."""
    if model.outputs and column not in model.outputs:
        answers = f"returns {', '.join(model.outputs)}"
        raise InvalidInput(
            "model", model.name, f"a model for {what}, with an output named `{column}`; this model {answers}"
        )


def check_cut(model: ModelFacts, field: str, tokens: int | None) -> None:
    """Raises InvalidInput where a request wants its texts cut at fewer tokens than the model takes; -1 is as many."""
    if tokens is not None and tokens != -1 and tokens < model.row_tokens:
        accepted = (
            f"at least {model.row_tokens} tokens; this server truncates texts only at the model's own token limit"
        )
        raise InvalidInput(field, tokens, accepted)


def finite(row: Row, column: str, axes: int, place: int) -> Any:
    """A row's answer, where JSON can say it; raises BrokenModel for another shape, NaN and infinities."""
    try:
        values = row[column]
    except KeyError:
        raise Malformed("model", f"a model with an output named `{column}`; this model has no such output") from None
    if np.ndim(values) != axes:
        told = f"the model's output `{column}` has {np.ndim(values)} dimensions per row; expected {axes}"
        raise BrokenModel(told)
    # The product is the cheap look at all of them.
    if not math.isfinite(np.dot(values, values)) and not np.isfinite(values).all():
        raise BrokenModel(f"the model's output `{column}` for row {place} contains NaN or infinity")
    return values


def finite_rows(rows: Sequence[Row], column: str) -> list[Any]:
    """The vectors of all rows, by one look at them together where nothing is wrong; raises as `finite` does."""
    if len(rows) > 1:
        with contextlib.suppress(KeyError, ValueError, TypeError):  # which row it is, the look at each says
            values = [row[column] for row in rows]
            whole = np.concatenate(values)
            if whole.ndim == 1 and math.isfinite(np.dot(whole, whole)):
                return values
    return [finite(row, column, 1, place) for place, row in enumerate(rows)]


_NO_TEXT = object()
_PROMPTS = {"prompt", "prompt_name"}  # of a text that does not have the default one


def characters_of(rows: Sequence[Any]) -> list[int]:
    """About what each row takes to prepare, as characters of a text."""
    if isinstance(rows, Table):
        return [_CHARACTERS_PER_ROW] * len(rows)
    return [_characters_of(row) for row in rows]


def _characters_of(row: Any) -> int:
    if isinstance(row, str):
        return len(row)
    if isinstance(row, dict) and "text" in row and not _PROMPTS.isdisjoint(row):
        return _characters_of(row["text"])
    if isinstance(row, tuple):
        return sum(len(text) for text in row if isinstance(text, str))
    return _CHARACTERS_PER_ID * len(row) if isinstance(row, list) else _CHARACTERS_PER_ROW


def check_rows(
    rows: Sequence[Any], most_rows: int, max_row_tokens: int, texts: TextPolicy = _AS_THEY_COME
) -> list[int]:
    """About how many characters each row has; raises InvalidInput and TooLarge for what can never be answered."""
    if not rows:
        raise InvalidInput("input", rows, "at least one row")
    if len(rows) > most_rows:
        raise TooLarge("input", f"{len(rows):,} rows", f"at most {most_rows:,} rows in a request")
    sizes = characters_of(rows)
    if max_row_tokens > 1:
        check_lengths(sizes, texts.most_tokens(max_row_tokens, most_rows))
    return sizes


def check_texts(rows: Sequence[Any], texts: TextPolicy) -> None:
    """Raises InvalidInput for a text that says nothing, where those are not to be answered."""
    if texts.empty != "error":
        return
    for place, row in enumerate(rows):
        text = row.get("text", _NO_TEXT) if isinstance(row, Mapping) else row
        if any(map(texts.is_empty, text if isinstance(text, tuple) else (text,))):
            raise InvalidInput(f"row {place}", text, "a text that is not empty")


def check_lengths(sizes: Sequence[int], max_row_tokens: int) -> None:
    """Raises TooLarge that names the text that is longer than any of so many tokens."""
    most = _CHARACTERS_PER_TOKEN * max_row_tokens
    if sum(sizes) > most and max(sizes) > most:
        place = sizes.index(max(sizes))
        raise TooLarge(f"input[{place}]", f"a text of {sizes[place]:,} characters", f"at most {most:,} characters")


def least_lengths(sizes: Sequence[int], max_row_tokens: int) -> list[int] | None:
    """At least so many tokens each, where a look at them is cheaper than their preparing; else None.

    A text that no row can hold is looked at as the pieces that it will be.
    """
    if max_row_tokens <= 1 or sum(sizes) < _LOOKED_AT:
        return None
    least = least_tokens(sizes)
    if max(least) <= max_row_tokens:
        return least
    return [min(max_row_tokens, tokens - at) for tokens in least for at in range(0, tokens, max_row_tokens)]


def least_tokens(sizes: Sequence[int]) -> list[int]:
    """That texts of so many characters have: a refusal should not cost what an answer does."""
    return [max(1, size // _CHARACTERS_PER_TOKEN) for size in sizes]
