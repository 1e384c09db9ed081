"""The frozen plan, and what a resume may not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.plan import (
    Plan,
    PlannedAdapter,
    PlannedModel,
    RowFigures,
    check_same_model,
    check_same_weights,
    part_location,
    plan_location,
    read_plan,
    same_files,
    weights_of,
)
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput
from twoshift.ports import RuntimeInfo
from twoshift.types import LoadedAdapter

MODEL = PlannedModel("minilm", "abc", "fp32", ("embedding",))
FILES = tuple(InputFile(f"docs/{k}.parquet", 100, f"id{k}", "parquet") for k in range(6))
SCHEMA = pa.schema([pa.field("embedding", pa.list_(pa.float32(), 4)), pa.field("error", pa.string())])


def settings(**given: Any) -> JobSettings:
    return JobSettings(**{"inputs": ("docs",), "output": "out/", "model": "minilm", "text": "body", **given})


def plan(**given: Any) -> Plan:
    shards = tuple((Piece(k, 0, 10, 10, 1000),) for k in range(6))
    return Plan.make(settings(**given), MODEL, FILES, shards, SCHEMA, RowFigures(0.01))


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made, output = plan(), str(tmp_path)
    assert LocalBlobs().create(plan_location(output), msgspec.json.encode(made))
    found = read_plan(LocalBlobs(), output)
    assert found == made
    assert found is not None
    assert found.schema == SCHEMA
    assert found.rows == 60
    assert read_plan(LocalBlobs(), str(tmp_path / "none")) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"half of {", b'{"format": 99}'])
def test_a_damaged_plan_is_named(tmp_path: Path, data: bytes) -> None:
    LocalBlobs().create(plan_location(str(tmp_path)), data)
    with pytest.raises(Broken, match=r"plan\.json"):
        read_plan(LocalBlobs(), str(tmp_path))


def test_a_plan_of_another_format_is_refused(tmp_path: Path) -> None:
    other = msgspec.structs.replace(plan(), format=2)
    LocalBlobs().create(plan_location(str(tmp_path)), msgspec.json.encode(other))
    with pytest.raises(Broken, match="format 2"):
        read_plan(LocalBlobs(), str(tmp_path))


def test_rows_are_unknown_where_one_piece_is_not_counted() -> None:
    shards = ((Piece(0, 0, 10, 10, 1000), Piece(1, 0, 50, None, 50)),)
    assert Plan.make(settings(), MODEL, FILES, shards, SCHEMA, RowFigures(0.01)).rows is None


def unread(file: InputFile) -> str:
    raise AssertionError(f"{file.location} need not be read")


def test_a_part_has_one_name() -> None:
    assert part_location(plan(), 7) == "out/part-000007.parquet"
    assert part_location(plan(output="s3://b/x", output_format="jsonl"), 1234567) == "s3://b/x/part-1234567.jsonl"


def test_nothing_is_refused_where_nothing_changed() -> None:
    now = settings(workers=4, window="2h", price_usd_per_hour=1.0, max_errors="1%", device="cpu", threads=1)
    same_files(plan(), now, FILES, unread)
    check_same_model(plan(), now, MODEL)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": "title"}, "text was body, now title"),
        ({"keep": ("id", "url")}, "keep was not given, now id, url"),
        ({"shard_rows": 5}, "shard_rows was not given, now 5"),
        ({"output_format": "jsonl"}, "output_format was parquet, now jsonl"),
    ],
)
def test_changed_settings_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        same_files(plan(), settings(**given), FILES, unread)


def test_a_changed_model_is_named() -> None:
    now = PlannedModel("minilm", "xyz", "int8", ("embedding",))
    with pytest.raises(InvalidInput, match=r"checksum was abc, now xyz; the model's precision was fp32, now int8"):
        check_same_model(plan(), settings(), now)


def test_another_version_of_the_model_is_named_by_its_number_with_what_to_do() -> None:
    begun = msgspec.structs.replace(plan(), model=msgspec.structs.replace(MODEL, name="m:1"))
    now = msgspec.structs.replace(MODEL, name="m:2", checksum="xyz")
    with pytest.raises(
        InvalidInput,
        match=r"the job began with m:1, and the model is now m:2; to finish the job, use m:1, or deploy m:1",
    ) as told:
        check_same_model(begun, settings(), now)
    assert "xyz" not in str(told.value)
    check_same_model(begun, settings(), msgspec.structs.replace(MODEL, name="m:2"))  # the same content


def adapted(*checksums: str, path: str = "adapters/sql") -> PlannedModel:
    adapters = tuple(PlannedAdapter(path, path, each) for each in checksums)
    return msgspec.structs.replace(MODEL, adapters=adapters)


def test_an_adapter_is_part_of_a_job_by_its_content() -> None:
    begun = msgspec.structs.replace(plan(), model=adapted("one"))
    check_same_model(begun, settings(), adapted("one", path="/elsewhere/sql"))
    for now, said in ((adapted("two"), "was one, now two"), (MODEL, "was one, now none")):
        with pytest.raises(InvalidInput, match=f"the checksum of the adapter {said}"):
            check_same_model(begun, settings(), now)
    with pytest.raises(InvalidInput, match="was none, now one"):
        check_same_model(plan(), settings(), adapted("one"))


def test_the_adapters_of_a_job_are_among_those_that_were_loaded() -> None:
    loaded = {name: LoadedAdapter(f"adapters/{name}", f"sha256:{name}") for name in ("sql", "support")}
    info = RuntimeInfo("m", "sha256:m", "vllm", "cpu", "fp32", 64, ("text",), adapters=loaded)
    assert PlannedModel.of(info).weights == weights_of(info, ()) == "sha256:m"
    made = PlannedModel.of(info, ("support",))
    assert made.weights == weights_of(info, ("support",)) == "sha256:m+sha256:support"
    with pytest.raises(InvalidInput, match="an adapter of m, which has the adapters sql, support"):
        PlannedModel.of(info, ("chess",))
    check_same_weights("node:1", info, ("sql",), "sha256:m+sha256:sql")
    with pytest.raises(Broken, match="worker node:1 has loaded different weights of m and sql"):
        check_same_weights("node:1", info, ("sql",), "sha256:m+sha256:other")


def test_a_model_is_known_by_its_content_and_a_class_by_its_name_too() -> None:
    check_same_model(plan(), settings(), msgspec.structs.replace(MODEL, name="/models/minilm"))
    begun = msgspec.structs.replace(plan(), model=msgspec.structs.replace(MODEL, name="m.py:Square"))
    check_same_model(begun, settings(), msgspec.structs.replace(MODEL, name="/some/where/m.py:Square"))
    with pytest.raises(InvalidInput, match=r"name was m.py:Square, now m.py:Cube"):
        check_same_model(begun, settings(), msgspec.structs.replace(MODEL, name="m.py:Cube"))


def test_the_same_files_by_other_names_are_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun = msgspec.structs.replace(plan(), folder=str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    now = tuple(msgspec.structs.replace(file, location=f"{tmp_path.name}/{file.location}") for file in FILES)
    assert same_files(begun, settings(), now, unread) == now
    assert same_files(begun, settings(), FILES, unread) == FILES  # where all was moved, names included
    with pytest.raises(InvalidInput, match=r"missing: docs/5\.parquet"):
        same_files(begun, settings(), now[:-1], unread)


def test_changed_files_are_named_a_few_at_least() -> None:
    changed = tuple(msgspec.structs.replace(file, identity="new") for file in FILES)
    with pytest.raises(InvalidInput, match=r"changed: docs/0.parquet \(.*docs/1.parquet \(.*docs/2.* and 3 more"):
        same_files(plan(), settings(), changed, unread)
    with pytest.raises(InvalidInput, match=r"missing: docs/5\.parquet"):
        same_files(plan(), settings(), FILES[:-1], unread)
    with pytest.raises(InvalidInput, match="a different order"):
        same_files(plan(), settings(), FILES[::-1], unread)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size_bytes": 12}, r"docs/0.parquet \(10 bytes before, 12 bytes now\)"),
        ({}, r"docs/0.parquet \(of the same size, with different content\)"),
    ],
)
def test_what_has_changed_in_a_file_is_said(changes: dict[str, Any], said: str) -> None:
    was = msgspec.structs.replace(FILES[0], size_bytes=10, fingerprint="f")
    now = msgspec.structs.replace(was, identity="new", fingerprint="", **changes)
    begun = msgspec.structs.replace(plan(), files=(was,))
    with pytest.raises(InvalidInput, match=said):
        same_files(begun, settings(), (now,), lambda _: "g")


def test_a_file_of_the_same_content_is_the_same_whenever_it_was_written() -> None:
    was = msgspec.structs.replace(FILES[0], fingerprint="f")
    now = msgspec.structs.replace(was, identity="new", fingerprint="")
    begun = msgspec.structs.replace(plan(), files=(was,))
    (found,) = same_files(begun, settings(), (now,), lambda _: "f")
    assert (found.identity, found.fingerprint) == ("new", "f")
