"""A table of answers is what a dictionary would be, on a disk; and it says so where it is not whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoshift.answers import writing
from twoshift.answers.encoding import encoded_rows, key_kind, layouts_of
from twoshift.answers.keys import KeyKind, key_bytes, key_of
from twoshift.answers.layout import values_of
from twoshift.answers.table import AnswerTable
from twoshift.answers.writing import ROWS, SLOTS, STARTS, SUPERSEDED, TableWriter
from twoshift.errors import Broken, InvalidInput

SCHEMA = pa.schema(
    [("id", pa.string()), ("vector", pa.list_(pa.float32(), 3)), ("label", pa.string()), ("score", pa.float64()),
     ("ok", pa.bool_())]
)  # fmt: skip
OUTPUTS = ["vector", "label", "score", "ok"]


def written(folder: Path, rows: list[tuple[bytes, bytes]], made_unix_s: float = 5.0) -> TableWriter:
    folder.mkdir(parents=True, exist_ok=True)
    writer = TableWriter(folder)
    writer.add(rows, made_unix_s)
    writer.finish()
    return writer


def found(table: AnswerTable, key: bytes) -> bytes | None:
    record = table.find(key)
    return None if record is None else record.data[record.at :]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=6), st.binary(max_size=20)), max_size=120))
def test_a_table_finds_what_a_dictionary_finds(tmp_path_factory: pytest.TempPathFactory, rows: list) -> None:
    folder, wanted = tmp_path_factory.mktemp("table"), dict(rows)
    writer = written(folder, rows)
    table = AnswerTable(folder)
    assert writer.rows == len(wanted)
    assert writer.left_out[SUPERSEDED] == len(rows) - len(wanted)
    assert {key: found(table, key) for key in wanted} == wanted
    assert all(table.find(key) is None for key in (b"0123456", b"") if key not in wanted)


def test_keys_with_the_same_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, __import__("twoshift.answers.table", fromlist=["table"])):
        monkeypatch.setattr(module, "digest_of", lambda key: bytes([7]) * 7 + bytes([len(key)]))
    rows = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"cc", b"4")]
    writer = written(tmp_path, rows)
    table = AnswerTable(tmp_path)
    assert [found(table, key) for key in (b"a", b"b", b"cc", b"d")] == [b"3", b"2", b"4", None]
    assert writer.left_out[SUPERSEDED] == 1


def test_every_type_comes_back_as_it_was_and_rows_without_all_are_left_out(tmp_path: Path) -> None:
    vectors = [[1.5, 2.0, -0.0], None, [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    columns = [["a", "b", "ö", None], vectors, ["x", "y", "", "z"], [0.1, 0.2, 1e300, 0.0], [True, True, False, True]]
    batch = pa.record_batch(
        [pa.array(each, kind.type) for each, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    layouts, left_out = layouts_of(SCHEMA, OUTPUTS), Counter[str]()
    written(tmp_path, list(encoded_rows(batch, "id", layouts, left_out)))
    assert left_out == {"without a result": 1, "without a key": 1}
    record = AnswerTable(tmp_path).find("ö".encode())
    assert record is not None
    values = values_of(layouts, record.data, record.at)
    assert values["vector"].dtype == np.float32
    assert values["vector"].tolist() == [[3.0, 4.0, 5.0]]
    assert [values[name][0] for name in OUTPUTS[1:]] == ["", 1e300, False]
    assert record.made_unix_s == 5.0


def test_a_part_of_a_batch_has_its_own_rows(tmp_path: Path) -> None:
    """Arrow's slices share the memory of the whole."""
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), 2))])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    batch = pa.record_batch([pa.array([1, 2, 3, 4]), vectors], schema=schema).slice(2, 2)
    layouts = layouts_of(schema, ["vector"])
    written(tmp_path, list(encoded_rows(batch, "id", layouts, Counter())))
    record = AnswerTable(tmp_path).find(key_bytes(KeyKind.INTEGER, 4, "key"))
    assert record is not None
    assert values_of(layouts, record.data, record.at)["vector"].tolist() == [[6.0, 7.0]]


def test_a_damaged_row_is_refused_and_others_are_answered(tmp_path: Path) -> None:
    written(tmp_path, [(b"a", b"first"), (b"b", b"second")])
    data = bytearray((tmp_path / ROWS).read_bytes())
    data[-1] ^= 1
    (tmp_path / ROWS).write_bytes(data)
    table = AnswerTable(tmp_path)
    with pytest.raises(Broken, match="checksum"):
        table.find(b"b")
    assert found(table, b"a") == b"first"


@pytest.mark.parametrize("name", [ROWS, SLOTS])
def test_a_file_that_is_cut_short_while_it_is_served_does_not_end_the_process(tmp_path: Path, name: str) -> None:
    written(tmp_path, [(b"%d" % k, b"v" * 50) for k in range(500)])
    table = AnswerTable(tmp_path)
    with (tmp_path / name).open("r+b") as file:
        file.truncate(7)
    with pytest.raises(Broken, match="truncated"):
        [table.find(b"%d" % k) for k in range(500)]


def test_starts_that_are_damaged_are_refused(tmp_path: Path) -> None:
    written(tmp_path, [(b"a", b"1")])
    (tmp_path / STARTS).write_bytes(b"\0" * 32)
    with pytest.raises(Broken, match="damaged"):
        AnswerTable(tmp_path)


def test_a_row_that_is_too_large_is_counted(tmp_path: Path) -> None:
    assert written(tmp_path, [(b"a", bytes(1 << 24)), (b"b", b"1")]).left_out["too large"] == 1


@pytest.mark.parametrize(("kind", "key"), [(KeyKind.INTEGER, "5"), (KeyKind.INTEGER, True), (KeyKind.INTEGER, 1 << 63),
                                           (KeyKind.TEXT, 5)])  # fmt: skip
def test_a_key_of_another_type_is_refused(kind: KeyKind, key: object) -> None:
    with pytest.raises(InvalidInput, match=r"keys\[0\]"):
        key_bytes(kind, key, "keys[0]")


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.text())
def test_keys_come_back_from_their_bytes(key: int | str) -> None:
    kind = KeyKind.INTEGER if isinstance(key, int) else KeyKind.TEXT
    assert key_of(kind, key_bytes(kind, key, "key")) == key


def test_columns_that_a_table_cannot_hold_are_named() -> None:
    with pytest.raises(InvalidInput, match="price"):
        key_kind("price", pa.float64())
    with pytest.raises(InvalidInput, match="nested"):
        layouts_of(pa.schema([("nested", pa.list_(pa.int64()))]), ["nested"])
