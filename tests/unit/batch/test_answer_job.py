"""A table of answers from the parts of a job or a stream."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from twoshift.answers.following import open_answers
from twoshift.answers.generations import current, table_place
from twoshift.answers.keys import KeyKind, key_bytes
from twoshift.answers.layout import values_of
from twoshift.batch.answer_job import build_answers
from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.part_records import write_record
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, plan_location
from twoshift.batch.settings import make_settings
from twoshift.batch.sinks.known import SINKS
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput, TryLater

BLOBS = LocalBlobs()
SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("score", pa.float64()), ("error", pa.string())])


def begun(folder: Path, shards: int = 0) -> Path:
    """A job with so many shards, or a stream."""
    given = {"inputs": ["x.csv"], "output": str(folder), "model": "m.py:M", "keep": ["id", "price"]}
    model = PlannedModel("m.py:M", "sha256:1", "fp32", ("score",))
    pieces = tuple((Piece(0, at, at + 1, 2, 10),) for at in range(shards))
    files = (InputFile("x.csv", 10, "1", "csv"),) if shards else ()
    plan = Plan.make(make_settings(given), model, files, pieces, SCHEMA, RowFigures(1.0))
    BLOBS.create(plan_location(str(folder)), msgspec.json.encode(plan))
    return folder


def part(folder: Path, name: str, rows: dict[int, float], made_unix_s: float = 50.0) -> None:
    sink, path = SINKS["parquet"], folder / name
    writer = sink.open(path, SCHEMA)
    columns = [list(rows), [0.0] * len(rows), list(rows.values()), [None] * len(rows)]
    writer.write(
        pa.record_batch([pa.array(each, kind.type) for each, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    )
    stats = PartStats(0, len(rows), 0, 0, 0, 0.0, 0.0, "w", {}, began_unix_s=made_unix_s)
    write_record(BLOBS, str(path), writer.finish(stats), stats)


def scores(folder: Path, key: str = "id") -> dict[int, tuple[float, float]]:
    """What the table has by now: value and time."""
    place = table_place(str(folder), key)
    build_answers(str(folder), key, place, lambda _: BLOBS, lambda _: None)
    pointer = current(BLOBS, place)
    assert pointer is not None
    now, found = open_answers(BLOBS, place, pointer, key), {}
    for number in range(20):
        record = now.table.find(key_bytes(KeyKind.INTEGER, number, "key"))
        if record is not None:
            value = values_of(now.generation.columns, record.data, record.at)["score"][0]
            found[number] = (float(value), record.made_unix_s)
    return found


def test_a_stream_is_served_as_far_as_it_is_and_merged_parts_count_once(tmp_path: Path) -> None:
    stream = begun(tmp_path / "live")
    part(stream, "part-000000.parquet", {1: 0.1, 2: 0.2}, 10.0)
    part(stream, "part-000001.parquet", {2: 0.3}, 20.0)
    assert scores(stream) == {1: (0.1, 10.0), 2: (0.3, 20.0)}
    part(stream, "part-000000-000001.parquet", {1: 0.1, 2: 0.3}, 10.0)  # the others are about to be removed
    part(stream, "part-000002.parquet", {3: 0.4}, 30.0)
    assert scores(stream) == {1: (0.1, 10.0), 2: (0.3, 10.0), 3: (0.4, 30.0)}


def test_a_job_is_not_served_before_its_end(tmp_path: Path) -> None:
    job = begun(tmp_path / "out", shards=1)
    part(job, "part-000000.parquet", {1: 0.1})
    with pytest.raises(TryLater, match="has not ended"):
        scores(job)
    (job / "_SUCCESS").touch()
    assert scores(job) == {1: (0.1, 50.0)}


@pytest.mark.parametrize(("shards", "advice"), [(1, "Delete this part and run"), (0, "restore it from a backup")])
def test_a_damaged_part_is_refused_and_named(tmp_path: Path, shards: int, advice: str) -> None:
    job = begun(tmp_path / "out", shards)
    part(job, "part-000000.parquet", {1: 0.1})
    (job / "_SUCCESS").touch()
    data = bytearray((job / "part-000000.parquet").read_bytes())
    data[20] ^= 1
    (job / "part-000000.parquet").write_bytes(data)
    with pytest.raises(Broken, match=rf"part-000000.*{advice}"):
        scores(job)
    assert current(BLOBS, table_place(str(job), "id")) is None


def test_a_build_that_was_killed_leaves_nothing_that_is_served_or_stays(tmp_path: Path) -> None:
    job = begun(tmp_path / "out", shards=1)
    part(job, "part-000000.parquet", {1: 0.1})
    (job / "_SUCCESS").touch()
    left = BLOBS.staging(f"{table_place(str(job), 'id')}/table") / "0123456789abcdef-01234567"
    left.mkdir()
    (left / "rows.bin").write_bytes(b"half")
    assert scores(job) == {1: (0.1, 50.0)}
    assert not left.exists()


@pytest.mark.parametrize("key", ["score of nothing", "price", "error"])
def test_a_column_that_cannot_be_a_key_is_named(tmp_path: Path, key: str) -> None:
    job = begun(tmp_path / "out", shards=1)
    (job / "_SUCCESS").touch()
    with pytest.raises(InvalidInput, match=key):
        scores(job, key)


def test_what_is_no_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="output folder of a job"):
        scores(tmp_path)
