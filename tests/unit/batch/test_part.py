"""Parts: what is written comes back, with what it tells about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.part_stats import PartStats
from twoshift.batch.result_columns import output_schema, result_array
from twoshift.batch.sinks.known import SINKS, read_stats
from twoshift.errors import Broken, InvalidInput

STATS = PartStats(3, 4, 1, 9, 0, 1.5, 0.5, "host:0", {"null": 1})
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("vector", pa.list_(pa.float32(), 2)),
        pa.field("error", pa.string()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "tags": ["a", "b"], "vector": [1.0, 2.0], "error": None},
    {"id": None, "tags": None, "vector": None, "error": "the text is null"},
    {"id": 3, "tags": [], "vector": [3.0, 4.0], "error": None},
    {"id": 4, "tags": ["ü"], "vector": [5.0, 6.0], "error": None},
]


def write(path: Path, kind: str) -> None:
    writer = SINKS[kind].open(path, SCHEMA)
    for start in (0, 2):
        writer.write(pa.RecordBatch.from_pylist(ROWS[start : start + 2], SCHEMA))
    writer.finish(STATS)


def test_a_parquet_part_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "part-000003.parquet"
    write(path, "parquet")
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == ROWS
    with path.open("rb") as file:
        assert read_stats(file, str(path), "parquet") == STATS


def test_a_jsonl_part_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "part-000003.jsonl"
    write(path, "jsonl")
    with path.open("rb") as file:
        found = read_stats(file, str(path), "jsonl")
    assert (found.shard, found.rows, found.errors) == (3, 4, 1)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_part_that_is_cut_short_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"part-000003.{kind}"
    write(path, kind)
    path.write_bytes(path.read_bytes()[:-9])
    with path.open("rb") as file, pytest.raises(Broken, match=r"part-000003.* is not a complete part of a job"):
        read_stats(file, str(path), kind)


def test_somebody_elses_parquet_file_is_no_part(tmp_path: Path) -> None:
    path = tmp_path / "part-000003.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with path.open("rb") as file, pytest.raises(Broken, match="not a complete part"):
        read_stats(file, str(path), "parquet")


@pytest.mark.parametrize("name", ["vector", "error"])
def test_a_kept_column_called_like_a_result_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        output_schema(pa.schema([pa.field(name, pa.int64())]), {"vector": pa.float32()})


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (np.array([1.5, 2.5]), pa.float64(), [1.5, None]),
        (np.array([1, 2], np.int32), pa.int32(), [1, None]),
        (np.array([True, False]), pa.bool_(), [True, None]),
        (np.array(["yes", "no"]), pa.string(), ["yes", None]),
        (np.array(["yes", 0], object), pa.string(), ["yes", None]),  # what failed is a zero
        (np.array([[1, 2], [3, 4]], np.float32), pa.list_(pa.float32(), 2), [[1.0, 2.0], None]),
        (np.arange(8.0).reshape(2, 2, 2), pa.list_(pa.list_(pa.float64())), [[[0.0, 1.0], [2.0, 3.0]], None]),
    ],
)
def test_results_of_any_kind_are_null_where_the_row_failed(values: Any, kind: pa.DataType, expected: list[Any]) -> None:
    array = result_array(values, np.array([False, True]))
    assert array.type == kind
    assert array.to_pylist() == expected
