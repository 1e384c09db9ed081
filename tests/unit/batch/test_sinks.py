"""What is true of every output format."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twoshift.batch.part_stats import PartStats
from twoshift.batch.setting_values import OUTPUT_FORMATS
from twoshift.batch.settings import LINES_FORMAT
from twoshift.batch.sinks.known import SINKS, read_stats
from twoshift.batch.sinks.response_lines import LINES
from twoshift.errors import Broken

STATS = PartStats(3, 2, 1, 9, 0, 1.5, 0.5, "host:0", {"null": 1})
TABLE = pa.schema([pa.field("y", pa.float64()), pa.field("error", pa.string())])
BATCHES = {
    "lines": pa.RecordBatch.from_pylist([{"line": b'{"a": 1}\n'}, {"line": b'{"b": 2}\n', "error": "bad"}], LINES),
    "table": pa.RecordBatch.from_pylist([{"y": 1.0}, {"y": None, "error": "bad"}], TABLE),
}


def test_every_format_that_settings_accept_has_a_sink() -> None:
    assert {*OUTPUT_FORMATS, LINES_FORMAT} == SINKS.keys()


@pytest.mark.parametrize("name", SINKS)
def test_a_part_is_known_by_its_bytes_and_tells_its_rows_and_errors(tmp_path: Path, name: str) -> None:
    path, batch = tmp_path / f"part-000003.{name}", BATCHES["lines" if name == LINES_FORMAT else "table"]
    writer = SINKS[name].open(path, batch.schema)
    writer.write(batch)
    seal = writer.finish(STATS)
    assert seal == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    with path.open("rb") as file:
        found = read_stats(file, str(path), name)
    assert (found.shard, found.rows, found.errors) == (3, 2, 1)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]  # nothing else is left behind


@pytest.mark.parametrize("name", SINKS)
def test_a_part_that_was_cut_short_is_named(tmp_path: Path, name: str) -> None:
    path, batch = tmp_path / f"part-000003.{name}", BATCHES["lines" if name == LINES_FORMAT else "table"]
    writer = SINKS[name].open(path, batch.schema)
    writer.write(batch)
    writer.finish(STATS)
    path.write_bytes(path.read_bytes()[:-5])
    with path.open("rb") as file, pytest.raises(Broken, match=r"part-000003.* is not a complete part of a job"):
        read_stats(file, str(path), name)


@pytest.mark.parametrize("name", SINKS)
def test_a_part_that_is_given_up_is_closed_and_leaves_no_other_file(tmp_path: Path, name: str) -> None:
    path, batch = tmp_path / f"part-000003.{name}", BATCHES["lines" if name == LINES_FORMAT else "table"]
    writer = SINKS[name].open(path, batch.schema)
    writer.write(batch)
    writer.discard()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("compression", ["zstd:9", "snappy", "gzip:1", "none"])
def test_columns_of_parquet_are_compressed_as_asked_and_vectors_are_not(tmp_path: Path, compression: str) -> None:
    schema = pa.schema([pa.field("t", pa.string()), pa.field("v", pa.list_(pa.float32(), 2))])
    batch = pa.RecordBatch.from_pylist([{"t": "a" * 100, "v": [1.0, 2.0]}] * 100, schema)
    writer = SINKS["parquet"].open(tmp_path / "part", schema, compression)
    writer.write(batch)
    writer.finish(STATS)
    group = pq.read_metadata(tmp_path / "part").row_group(0)
    codecs = {group.column(k).path_in_schema: group.column(k).compression for k in range(group.num_columns)}
    wanted = {"none": "UNCOMPRESSED"}.get(compression, compression.partition(":")[0].upper())
    assert codecs == {"t": wanted, "v.list.element": "UNCOMPRESSED"}
    assert pq.read_table(tmp_path / "part").to_pylist() == batch.to_pylist()
