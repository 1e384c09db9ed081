"""Shards: many of a large file, one of many small files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from input_files import arrow, blobs_for, jsonl, parquet, put, rows_of

from sampling import examples
from twoshift.batch.inputs import InputFile, Shard, ShardTarget, cut
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import InvalidInput
from twoshift.ports import Blob


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 9), max_size=12), rows=st.integers(1, 20))
def test_neighbours_share_a_shard_up_to_the_target(tmp_path: Path, sizes: list[int], rows: int) -> None:
    files = [put(tmp_path / f"{k}.csv", b"a\n" + b"1\n" * size) for k, size in enumerate(sizes)]
    made = cut(files, blobs_for, ShardTarget(rows))
    filled = [sum(piece.rows or 0 for piece in shard) for shard in made]
    pieces = [piece for shard in made for piece in shard]
    assert [sum(piece.rows or 0 for piece in pieces if piece.file == k) for k in range(len(files))] == sizes
    assert sorted(pieces, key=lambda piece: (piece.file, piece.start)) == pieces
    assert all(0 < count <= rows for count in filled)
    firsts = [shard[0].rows or 0 for shard in made[1:]]
    assert all(before + first > rows for before, first in zip(filled, firsts, strict=False))  # no room was left


@pytest.mark.slow
def test_one_large_file_becomes_many_shards_and_small_ones_share(tmp_path: Path) -> None:
    big = put(tmp_path / "big.jsonl", jsonl({"a": n, "pad": "x" * 50} for n in range(100_000)))
    small = [put(tmp_path / f"{n:03}.csv", b"a\n1\n2\n") for n in range(300)]
    made = cut([big, *small], blobs_for, ShardTarget(rows=10_000, row_bytes=70))
    assert 8 <= sum(1 for shard in made if shard[0].file == 0) <= 14
    assert len(made) <= 15
    rows = rows_of(big, [piece for shard in made for piece in shard if piece.file == 0], ["a"])
    assert [row["a"] for row in rows] == list(range(100_000))


def test_a_hundred_thousand_tiny_files_are_planned_without_opening_them() -> None:
    files = [InputFile(f"/nowhere/{n}.parquet", 900, "id", "parquet") for n in range(100_000)]
    made = cut(files, blobs_for, ShardTarget(rows=50_000, row_bytes=100))
    assert len(made) == 100
    assert [piece.file for shard in made for piece in shard] == list(range(100_000))


def test_a_hundred_thousand_shards_go_through_json() -> None:
    line = b'{"a": 1}\n'
    size_bytes = 50_000 * 10_000 * len(line)

    class LargeBlobs(LocalBlobs):
        def stat(self, location: str) -> Blob:
            return Blob(location, size_bytes, "id")

        def open(self, location: str) -> Any:
            return io.BytesIO(line * 200_000)  # only the first lines are looked at

    files = [InputFile(f"/nowhere/{n}.jsonl", size_bytes, "id", "jsonl") for n in range(2)]
    made = cut(files, lambda _: LargeBlobs(), ShardTarget(10_000, row_bytes=len(line)))
    assert len(made) == 100_000
    text = msgspec.json.encode(made)
    assert len(text) < 4_000_000
    assert msgspec.json.decode(text, type=tuple[Shard, ...]) == made


def test_every_format_in_one_input_is_read_once(tmp_path: Path) -> None:
    table = pa.table({"a": [str(n) for n in range(100)]})
    text = "a\n" + "".join(f"{n}\n" for n in range(100))
    files = [
        put(tmp_path / "a.parquet", parquet(table)),
        put(tmp_path / "b.arrow", arrow(table.to_batches())),
        put(tmp_path / "c.jsonl.gz", jsonl(table.to_pylist())),
        put(tmp_path / "d.csv", text.encode()),
        put(tmp_path / "e.tsv.zst", text.encode()),
        put(tmp_path / "f.jsonl", jsonl(table.to_pylist())),
        put(tmp_path / "g.csv", b""),
    ]
    made = cut(files, blobs_for, ShardTarget(rows=30))
    assert all(sum(piece.rows or 0 for piece in shard) <= 30 for shard in made)
    rows = [row["a"] for shard in made for piece in shard for row in rows_of(files[piece.file], [piece], ["a"])]
    assert rows == [str(n) for n in range(100)] * 6


def test_a_target_must_say_something() -> None:
    for rows in (0, -1):
        with pytest.raises(InvalidInput, match=f"rows: {rows} .*at least one row"):
            ShardTarget(rows)
