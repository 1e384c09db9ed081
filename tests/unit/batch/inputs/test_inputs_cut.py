"""Shards: many of a large file, one of many small files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from input_files import arrow, blobs_for, jsonl, parquet, put, rows_of

from twoshift.batch.inputs import InputFile, Piece, Shard, Target, cut, shards
from twoshift.errors import InvalidInput

PIECES = st.lists(st.tuples(st.none() | st.integers(1, 50), st.integers(1, 5000)), max_size=60)


@given(sizes=PIECES, target=st.builds(Target, st.none() | st.integers(1, 100), st.integers(1, 5000)))
def test_neighbours_share_a_shard_up_to_the_target(sizes: list[tuple[int | None, int]], target: Target) -> None:
    pieces = [Piece(k, 0, 1, rows, size) for k, (rows, size) in enumerate(sizes)]
    made = shards(pieces, target)
    assert [piece for shard in made for piece in shard] == pieces
    for shard in made:
        assert shard
        assert len(shard) == 1 or sum(target.share(piece.rows, piece.bytes) for piece in shard) <= 1 + 1e-6


def test_one_large_file_becomes_many_shards_and_small_ones_share(tmp_path: Path) -> None:
    big = put(tmp_path / "big.jsonl", jsonl({"a": n, "pad": "x" * 50} for n in range(100_000)))
    small = [put(tmp_path / f"{n:03}.csv", b"a\n1\n2\n") for n in range(300)]
    made = cut([big, *small], blobs_for, Target(rows=10_000, row_bytes=70))
    assert 8 <= sum(1 for shard in made if shard[0].file == 0) <= 14
    assert len(made) <= 15
    rows = rows_of(big, [piece for shard in made for piece in shard if piece.file == 0], ["a"])
    assert [row["a"] for row in rows] == list(range(100_000))


def test_a_hundred_thousand_tiny_files_are_planned_without_opening_them() -> None:
    files = [InputFile(f"/nowhere/{n}.parquet", 900, "id", "parquet") for n in range(100_000)]
    made = cut(files, blobs_for, Target(rows=50_000, row_bytes=100))
    assert len(made) == 100
    assert [piece.file for shard in made for piece in shard] == list(range(100_000))


def test_a_hundred_thousand_shards_go_through_json() -> None:
    files = [InputFile(f"/nowhere/{n}.jsonl", 1 << 40, "id", "jsonl") for n in range(2)]
    pieces = [Piece(file, n, n + 1, None, 1 << 20) for file in range(2) for n in range(50_000)]
    made = tuple(shards(pieces, Target(bytes=1 << 20)))
    assert len(made) == 100_000
    text = msgspec.json.encode(made)
    assert len(text) < 4_000_000
    assert msgspec.json.decode(text, type=tuple[Shard, ...]) == made
    assert len(files) == 2


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
    made = cut(files, blobs_for, Target(rows=30))
    assert all(sum(piece.rows or 0 for piece in shard) <= 30 for shard in made)
    rows = [row["a"] for shard in made for piece in shard for row in rows_of(files[piece.file], [piece], ["a"])]
    assert rows == [str(n) for n in range(100)] * 6


def test_a_target_must_say_something() -> None:
    for rows, size_bytes in ((None, None), (0, None), (5, -1)):
        with pytest.raises(InvalidInput, match="target"):
            Target(rows, size_bytes)
