"""Rows that came as columns are the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twoshift.errors import InvalidInput
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.table import Table

COLUMNS: dict[str, Any] = {
    "age": np.array([7.0, 8.0, np.nan]),
    "visits": np.array([1, 2, 3], np.uint64),
    "city": np.array(["Ulm", "Bonn", "Köln"], object),
    "known": np.array([True, False, True]),
    "vector": np.arange(6, dtype=np.float32).reshape(3, 2),
    "words": np.array([["a", "b"], ["c", "d"], ["e", "f"]], object),
}


def test_its_rows_are_plain_values() -> None:
    table = Table(COLUMNS)
    assert len(table) == 3
    row = table[1]
    assert [type(row[name]) for name in ("age", "visits", "city", "known", "words")] == [float, int, str, bool, list]
    assert row["vector"].tolist() == [2.0, 3.0]
    assert [each["city"] for each in table[1:]] == ["Bonn", "Köln"]


@pytest.mark.parametrize("fields", [None, ("city", "age")])
def test_columns_are_those_of_its_rows(fields: tuple[str, ...] | None) -> None:
    table = Table(COLUMNS)
    direct = ColumnRows.from_rows(table, fields, missing=True)
    one_by_one = ColumnRows.from_rows(list(table), fields, missing=True)
    assert list(direct.columns) == list(one_by_one.columns)
    assert direct.lengths.tolist() == one_by_one.lengths.tolist()
    for name, values in one_by_one.columns.items():
        assert direct.columns[name].dtype == values.dtype, name
        np.testing.assert_array_equal(direct.columns[name], values)


def test_what_rows_are_refused_for_it_is_refused_for_too() -> None:
    with pytest.raises(InvalidInput, match=r"row 1, field 'n': 18446744073709551615.*int64"):
        ColumnRows.from_rows(Table({"n": np.array([1, 2**64 - 1], np.uint64)}))
    with pytest.raises(InvalidInput, match="row 0, field 'b'"):
        ColumnRows.from_rows(Table({"a": np.ones(2)}), ("a", "b"))
