"""What is stored of an error beside its row."""

from __future__ import annotations

import pytest

from twoshift.engine.window import described
from twoshift.errors import InvalidInput

LONG = "a private letter, " * 30


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"could not convert string to float: {LONG!r}"),
        KeyError(LONG),
        ValueError(f'no such name: "{LONG}" in the table'),
        ValueError(f"no such id: {'x' * 1000}"),
        ValueError(f"an unfinished quote: '{LONG * 100}"),
        InvalidInput("field 'body'", LONG, "a number"),
    ],
)
def test_of_a_value_only_a_beginning_is_stored(error: Exception) -> None:
    told = described(error)
    assert len(told) < 160
    assert "..." in told
    assert told.count("private letter") <= 5


def test_what_is_short_stays_as_it_is_and_what_is_long_ends() -> None:
    assert described(ValueError("field 'x' is 'abc', no number")) == "ValueError: field 'x' is 'abc', no number"
    told = f"the model's own words, {'and so on, ' * 10}are longer than a value's"
    assert described(ValueError(told)) == f"ValueError: {told}"
    assert described(KeyError("x" * 70)) == f"KeyError: '{'x' * 70}'"
    assert len(described(ValueError("word " * 1000))) == 500
    assert described(ValueError("\ud800")) == "ValueError: \\ud800"


def test_what_stands_between_two_values_is_not_cut() -> None:
    accepted = (
        f"a row that the method prepare() accepts: it has {'many words that are worth to be read, ' * 3}and 'a field'"
    )
    error = InvalidInput("line 1", '{"text": "a"}', accepted)
    assert described(error) == str(error)
