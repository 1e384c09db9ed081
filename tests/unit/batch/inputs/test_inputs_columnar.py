"""Rows of Parquet and Arrow IPC."""

from __future__ import annotations

import contextlib
import datetime
import decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from input_files import BLOBS, arrow, cut_in, found, parquet, put, rows_of

from sampling import examples
from twoshift.batch.inputs import READ_ERROR, Piece, read
from twoshift.errors import Broken, InvalidInput, TwoshiftError

QUICK = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ["a.parquet", "file.arrow", "stream.arrow", "file.arrow.gz", "stream.arrow.xz"]


def table(rows: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(rows), pa.int64()), "text": pa.array([f"text {n}" for n in range(rows)], pa.string())}
    )


def content(name: str, data: pa.Table, group_rows: int) -> bytes:
    if name.endswith("parquet"):
        return parquet(data, row_group_size=max(1, group_rows))
    batches = data.to_batches(max_chunksize=max(1, group_rows)) or [pa.RecordBatch.from_pylist([], data.schema)]
    return arrow(batches, stream=name.startswith("stream"))


@QUICK
@given(
    name=st.sampled_from(KINDS),
    rows=st.integers(0, 40),
    group_rows=st.integers(1, 50),
    target=st.integers(1, 50),
    data=st.data(),
)
def test_any_cuts_give_every_row_once(
    tmp_path: Path, name: str, rows: int, group_rows: int, target: int, data: st.DataObject
) -> None:
    file = put(tmp_path / name, content(name, table(rows), group_rows))
    pieces = cut_in(file, target)
    assert all((piece.rows or 0) <= target for piece in pieces)
    assert [row["id"] for row in rows_of(file, pieces, ["id"])] == list(range(rows))
    cuts = sorted({0, rows, *data.draw(st.sets(st.integers(0, rows)))})
    freely = [Piece(0, a, b, b - a, 0) for a, b in pairwise(cuts)]
    batch_rows = data.draw(st.integers(1, 9))
    assert [row["id"] for row in rows_of(file, freely, ["id"], batch_rows=batch_rows)] == list(range(rows))
    assert [row["id"] for row in rows_of(file)] == list(range(rows))


@pytest.mark.parametrize("name", KINDS)
def test_pieces_follow_small_groups_and_cut_large_ones(tmp_path: Path, name: str) -> None:
    small = put(tmp_path / name, content(name, table(100), 10))
    assert [(piece.start, piece.stop) for piece in cut_in(small, 25)] == [
        (0, 20),
        (20, 40),
        (40, 60),
        (60, 80),
        (80, 100),
    ]
    large = put(tmp_path / name, content(name, table(100), 100))
    assert [(piece.start, piece.stop) for piece in cut_in(large, 40)] == [(0, 33), (33, 66), (66, 100)]


def test_groups_without_rows_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table(0).schema) as writer:
        for rows in (0, 3, 0, 2, 0):
            writer.write_table(table(rows))
    file = found(path)
    assert [row["id"] for row in rows_of(file, cut_in(file, 3))] == [0, 1, 2, 0, 1]
    batches = [
        batch
        for rows in (0, 3, 0, 2, 0)
        for batch in [pa.RecordBatch.from_pylist(table(rows).to_pylist(), table(0).schema)]
    ]
    file = put(tmp_path / "a.arrow", arrow(batches))
    assert [row["id"] for row in rows_of(file, cut_in(file, 3))] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("name", KINDS)
def test_batches_are_bounded_by_rows_and_by_bytes(tmp_path: Path, name: str) -> None:
    texts = ["x" * 1000] * 50 + ["y" * 300_000] * 4 + ["z"] * 2000
    file = put(tmp_path / name, content(name, pa.table({"text": texts}), 10_000))
    batches = list(read(file.whole(), file, BLOBS, ["text"], 500, 100_000))
    assert [text for batch in batches for text in batch.column("text").to_pylist()] == texts
    assert max(batch.num_rows for batch in batches) <= 500
    assert all(batch.num_rows == 1 or batch.nbytes <= 100_000 for batch in batches)


@pytest.mark.parametrize("name", KINDS)
def test_values_of_every_type_come_as_they_are(tmp_path: Path, name: str) -> None:
    data = pa.table(
        {
            "when": pa.array([datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC")),
            "cost": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
            "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
            "struct": pa.array([{"x": 1}, None], pa.struct([("x", pa.int8())])),
            "large": pa.array(["a", None], pa.large_string()),
            "dictionary": pa.array(["b", None]).dictionary_encode(),
        }
    )
    file = put(tmp_path / name, content(name, data, 10))
    (batch,) = read(file.whole(), file, BLOBS, None, 10, 10_000)
    expected = data.set_column(5, "dictionary", pa.array(["b", None]))
    assert batch.select(data.column_names).to_pylist() == expected.to_pylist()
    assert [batch.schema.field(k).type for k in range(5)] == [data.schema.field(k).type for k in range(5)]
    assert batch.schema.field("dictionary").type == pa.string()
    assert batch.column(READ_ERROR).null_count == 2


@pytest.mark.parametrize("name", KINDS)
def test_only_wanted_columns_come_and_in_the_order_asked_for(tmp_path: Path, name: str) -> None:
    file = put(tmp_path / name, content(name, table(3), 10))
    (batch,) = read(file.whole(), file, BLOBS, ["text", "id"], 10, 10_000)
    assert batch.schema.names == ["text", "id", READ_ERROR]
    (batch,) = read(file.whole(), file, BLOBS, [], 10, 10_000)
    assert (batch.num_rows, batch.schema.names) == (3, [READ_ERROR])
    with pytest.raises(InvalidInput, match="did you mean text"):
        rows_of(file, None, ["texts"])
    schema = pa.schema([("lang", pa.int16())])
    (batch,) = read(file.whole(), file, BLOBS, ["lang", "id"], 10, 10_000, schema)
    assert (batch.schema.field("lang").type, batch.column("lang").null_count) == (pa.int16(), 3)


@pytest.mark.parametrize("name", KINDS)
def test_texts_that_are_not_utf8_are_errors_of_their_rows(tmp_path: Path, name: str) -> None:
    raw = pa.array([b"good", b"\xff\xfe", None, b"fine"], pa.binary())
    texts = pa.StringArray.from_buffers(4, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    file = put(tmp_path / name, content(name, pa.table({"text": texts, "id": [1, 2, 3, 4]}), 10))
    rows = rows_of(file)
    assert [row["text"] for row in rows] == ["good", None, None, "fine"]
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert [row[READ_ERROR] for row in rows] == [None, "column text: the value is not valid UTF-8", None, None]


def outcome(file: Any) -> list[dict[str, Any]]:
    return rows_of(file, cut_in(file, 7))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("share", [0.001, 0.3, 0.6, 0.95])
def test_a_file_that_is_cut_short_is_broken(tmp_path: Path, name: str, share: float) -> None:
    path = tmp_path / name
    put(path, content(name, table(1000), 100))
    whole = path.read_bytes()
    path.write_bytes(whole[: max(1, int(share * len(whole)))])
    with pytest.raises(Broken, match=r"damaged or truncated .*; write the file again"):
        outcome(found(path))


def test_damaged_pages_are_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = bytearray(parquet(table(5000), compression="zstd", write_page_checksum=True))
    for place in range(2000, 2400):
        data[place] ^= 0x5A
    path.write_bytes(data)
    with pytest.raises(Broken, match=r"a\.parquet"):
        outcome(found(path))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_file_of_another_kind_is_broken_and_an_empty_one_has_no_rows(tmp_path: Path, name: str) -> None:
    with pytest.raises(Broken, match="damaged"):
        outcome(put(tmp_path / name, b"id,text\n1,x\n" * 10))
    assert outcome(put(tmp_path / name, b"")) == []


def test_feather_of_the_first_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="write it again"):
        outcome(put(tmp_path / "a.feather", b"FEA1" + bytes(100)))


@QUICK
@given(name=st.sampled_from(KINDS), data=st.data())
def test_whatever_is_damaged_the_error_is_one_of_ours(tmp_path: Path, name: str, data: st.DataObject) -> None:
    path = tmp_path / name
    put(path, content(name, table(200), 50))
    damaged = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=9)):
        damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with contextlib.suppress(TwoshiftError):
        outcome(found(path))
