"""Files that change after they were listed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from input_files import BLOBS, COMPRESS, arrow, blobs_for, cut_in, jsonl, parquet, put, rows_of

from twoshift.batch.inputs import InputFile, ShardTarget, cut, kept_schema, read
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken
from twoshift.ports import Blob

KINDS = ["a.parquet", "a.arrow", "a.arrow.gz", "a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.xz"]
ROWS = 5000


def content(name: str, first: int = 0) -> bytes:
    table = pa.table({"a": [str(n) for n in range(first, first + ROWS)]})
    if ".parquet" in name:
        return parquet(table, row_group_size=100)
    if ".arrow" in name:
        return arrow(table.to_batches(max_chunksize=100))
    return jsonl(table.to_pylist()) if ".jsonl" in name else b"a\n" + "\n".join(table["a"].to_pylist()).encode()


def replace(path: Path, data: bytes) -> None:
    """Another file under that name, as `mv` puts it there: what is open already still reads the old one."""
    beside = path.with_name("other")
    beside.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    beside.replace(path)


class CountingBlobs(LocalBlobs):
    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def stat(self, location: str) -> Blob | None:
        self.asked["stat"] += 1
        return super().stat(location)

    def open(self, location: str) -> Any:
        self.asked["open"] += 1
        return super().open(location)


@pytest.fixture(params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> InputFile:
    return put(tmp_path / request.param, content(request.param))


def test_a_file_that_was_replaced_before_it_is_read_is_broken(file: InputFile) -> None:
    pieces = cut_in(file, 1000)
    replace(Path(file.location), content(file.location, ROWS))
    with pytest.raises(Broken, match=rf"{file.location} has changed after the job listed its input; restore the file"):
        rows_of(file, pieces)


def test_a_file_that_is_as_large_as_before_but_newer_is_broken(file: InputFile) -> None:
    os.utime(file.location, ns=(1, 1))
    with pytest.raises(Broken, match="has changed"):
        rows_of(file)
    with pytest.raises(Broken, match="has changed"):
        cut([file], blobs_for, ShardTarget(10))
    with pytest.raises(Broken, match="has changed"):
        kept_schema([file], blobs_for, None)


def test_a_file_that_is_gone_is_broken(file: InputFile) -> None:
    Path(file.location).unlink()
    with pytest.raises(Broken, match=f"{file.location} was deleted"):
        rows_of(file)


def test_a_file_that_is_replaced_while_it_is_read_is_broken_before_its_last_row_is_taken_for_the_end(
    file: InputFile,
) -> None:
    batches = read(file.whole(), file, BLOBS, ["a"], 100, 1 << 20)
    assert next(batches).num_rows
    replace(Path(file.location), content(file.location, ROWS))
    with pytest.raises(Broken, match="has changed"):
        list(batches)


def test_a_file_that_is_written_over_while_it_is_read_has_changed_and_is_not_damaged(file: InputFile) -> None:
    batches = read(file.whole(), file, BLOBS, ["a"], 100, 1 << 20)
    assert next(batches).num_rows
    Path(file.location).write_bytes(b"")
    with pytest.raises(Broken, match="has changed"):
        list(batches)


def test_a_piece_asks_once_when_it_is_opened_and_once_at_its_end(file: InputFile) -> None:
    blobs = CountingBlobs()
    batches = read(file.whole(), file, blobs, ["a"], 100, 1 << 20)
    next(batches)
    assert blobs.asked == {"stat": 1, "open": 1}
    assert sum(batch.num_rows for batch in batches) == ROWS - 100
    assert blobs.asked == {"stat": 2, "open": 1}


def test_the_first_rows_alone_do_not_wait_for_the_end(file: InputFile) -> None:
    blobs = CountingBlobs()
    batches = read(file.head(), file, blobs, ["a"], 100, 1 << 20)
    next(batches)
    batches.close()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert blobs.asked == {"stat": 1, "open": 1}
