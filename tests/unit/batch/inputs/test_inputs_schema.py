"""Kept columns: one schema over all files, and values that fit it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from input_files import blobs_for, jsonl, parquet, put

from twoshift.batch.inputs import conform, kept_schema
from twoshift.batch.inputs.schema import unified
from twoshift.errors import InvalidInput

NUMBERS = [pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
KINDS = [*NUMBERS, *TEXTS, pa.null(), pa.bool_(), pa.timestamp("us"), pa.list_(pa.int8())]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (pa.int64(), pa.int64(), pa.int64()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.null(), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.int64(), pa.uint64(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("ns"), pa.string()),
        (pa.list_(pa.int8()), pa.int8(), pa.string()),
        (pa.bool_(), pa.int8(), pa.string()),
        (pa.large_string(), pa.string(), pa.string()),
    ],
)
def test_types_are_unified(first: pa.DataType, second: pa.DataType, both: pa.DataType) -> None:
    assert unified(first, second) == unified(second, first) == both


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_unifying_again_changes_nothing(kinds: list[pa.DataType]) -> None:
    kind = kinds[0]
    for other in kinds:
        kind = unified(kind, other)
    assert all(unified(kind, other) in (kind, pa.string()) for other in kinds)


def test_one_schema_for_files_that_differ(tmp_path: Path) -> None:
    stamps = pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("ms"))
    files = [
        put(tmp_path / "a.parquet", parquet(pa.table({"id": [1], "x": [1], "when": stamps, "lang": ["en"]}))),
        put(tmp_path / "b.jsonl", jsonl([{"id": 2, "x": 2.5, "tags": ["a"]}])),
        put(tmp_path / "c.csv", b"id,x,code\n3,4,007\n"),
        put(tmp_path / "d.csv", b""),
    ]
    schema = kept_schema(files, blobs_for, ["x", "id", "when", "tags", "code", "lang"])
    assert schema.names == ["x", "id", "when", "tags", "code", "lang"]
    assert [schema.field(k).type for k in range(5)] == [
        pa.float64(),
        pa.int64(),
        pa.timestamp("ms"),
        pa.string(),
        pa.string(),
    ]
    assert kept_schema(files, blobs_for, None).names == ["id", "x", "tags", "code", "when", "lang"]
    assert kept_schema(files, blobs_for, []) == pa.schema([])


def test_a_column_that_no_file_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    files = [put(tmp_path / "a.csv", b"id,body\n1,x\n"), put(tmp_path / "b.jsonl", jsonl([{"id": 1}]))]
    with pytest.raises(InvalidInput, match="did you mean body"):
        kept_schema(files, blobs_for, ["bodi"])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", ""], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["1.5e-3", "0"], pa.string()),
        (["-0"], pa.string()),
        (["007"], pa.string()),
        (["true", "false"], pa.bool_()),
        (["True"], pa.string()),
        (["", ""], pa.string()),
        (["12345678901234567890"], pa.string()),
        (["nan"], pa.string()),
    ],
)
def test_columns_of_csv_are_numbers_only_where_nothing_is_lost(
    tmp_path: Path, values: list[str], kind: pa.DataType
) -> None:
    file = put(tmp_path / "a.csv", ("a,b\n" + "".join(f"{value},x\n" for value in values)).encode())
    assert kept_schema([file], blobs_for, ["a"]).field("a").type == kind


def test_the_end_of_a_long_file_is_looked_at_too(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": n, "pad": "x" * 100} for n in range(20_000)]
    file = put(tmp_path / "a.jsonl", jsonl([*rows, {"a": "last"}]))
    assert kept_schema([file], blobs_for, ["a"]).field("a").type == pa.string()


def test_values_that_do_not_fit_are_null_and_told() -> None:
    batch = pa.RecordBatch.from_pydict({"n": ["1", "x", None, "4"], "f": [1.5, 2.0, 3.0, 2.5]})
    done, errors = conform(batch, pa.schema([("f", pa.int64()), ("n", pa.int64()), ("gone", pa.string())]))
    assert done.to_pydict() == {"f": [None, 2, 3, None], "n": [1, None, None, 4], "gone": [None] * 4}
    assert errors == {
        0: "column f: 1.5 is not a valid int64",
        1: "column n: 'x' is not a valid int64",
        3: "column f: 2.5 is not a valid int64",
    }


def test_an_error_names_every_column_of_its_row() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x"], "b": ["y"]})
    _, errors = conform(batch, pa.schema([("a", pa.int64()), ("b", pa.bool_())]))
    assert errors == {0: "column a: 'x' is not a valid int64; column b: 'y' is not a valid bool"}


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([1, None]), ["1", None]),
        (pa.array([1.0, 2.5, float("nan")]), ["1.0", "2.5", "nan"]),
        (pa.array([0.1], pa.float32()), ["0.1"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([[1, 2], None]), ["[1,2]", None]),
        (pa.array([{"x": 1}]), ['{"x":1}']),
        (pa.array([datetime.date(2024, 1, 2)]), ["2024-01-02"]),
        (pa.array([b"ok", b"\xff"]), ["ok", None]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.nulls(2), [None, None]),
        (pa.array([[b"\xff"]]), ['["/w=="]']),
    ],
)
def test_anything_becomes_a_string(column: pa.Array, texts: list[str | None]) -> None:
    done, errors = conform(pa.RecordBatch.from_arrays([column], ["a"]), pa.schema([("a", pa.string())]))
    assert done.column("a").to_pylist() == texts
    assert bool(errors) == (None in texts and column.null_count == 0)


@given(st.lists(st.none() | st.integers(-9, 9).map(str) | st.just("x"), max_size=40))
def test_just_the_values_that_do_not_fit_are_told(values: list[str | None]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], ["a"])
    done, errors = conform(batch, pa.schema([("a", pa.int32())]))
    assert done.column("a").to_pylist() == [None if value in (None, "x") else int(value) for value in values]
    assert set(errors) == {row for row, value in enumerate(values) if value == "x"}


def test_a_batch_without_kept_columns_keeps_its_rows() -> None:
    done, errors = conform(pa.RecordBatch.from_pydict({"a": [1, 2]}), pa.schema([]))
    assert (done.num_columns, errors) == (0, {})


def test_a_text_that_the_kept_type_would_change_is_an_error_of_its_row() -> None:
    batch = pa.RecordBatch.from_pydict({"zip": ["10115", "00501", None], "flag": ["true", "1", "false"]})
    kept, errors = conform(batch, pa.schema([("zip", pa.int64()), ("flag", pa.bool_())]))
    assert kept.to_pydict() == {"zip": [10115, None, None], "flag": [True, None, False]}
    assert errors == {1: "column zip: '00501' is not a valid int64; column flag: '1' is not a valid bool"}
