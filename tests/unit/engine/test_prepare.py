"""Rows prepared although some of them cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from twoshift.engine.prepare import prepared_parts
from twoshift.errors import Broken


class Picky:
    """A runtime that raises the row itself, where a row is an error."""

    def prepare(self, rows: Sequence[Any]) -> Any:
        for row in rows:
            if isinstance(row, BaseException):
                raise row
        return list(rows)


def parts(*rows: Any) -> list[Any]:
    return list(prepared_parts(Picky().prepare, rows))


def test_a_row_that_cannot_be_prepared_is_alone_with_its_error() -> None:
    wrong = ValueError("no")
    assert parts(1, 2, wrong, 3) == [(0, [1, 2]), (2, wrong), (3, [3])]
    assert parts() == []


def test_what_would_end_the_program_is_the_row_s_error() -> None:
    first, second = parts(SystemExit(0), 1)
    assert isinstance(first[1], Exception)
    assert "SystemExit(0)" in str(first[1])
    assert second == (1, [1])


@pytest.mark.parametrize("error", [Broken("gone"), KeyboardInterrupt()])
def test_what_no_row_is_guilty_of_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        parts(1, error)
