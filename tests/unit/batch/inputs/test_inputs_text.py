"""Rows of JSON Lines and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from input_files import BLOBS, COMPRESS, cut_in, found, jsonl, put, rows_of

from sampling import examples
from twoshift.batch.inputs import READ_ERROR, Piece, read, records, source
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput, TryLater

QUICK = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
LINES = st.lists(
    st.sampled_from(
        [b'{"a": 1}', b'{"a": "x\\ny", "b": null}', b"", b" \t", b"\r", b"{broken", b"[1]", b'{"a": "\xff"}']
    )
    | st.text("ab", max_size=9).map(lambda text: json.dumps({"a": text}).encode()),
    max_size=12,
)
FIELDS = st.text('ab ,"\n\r', max_size=5)
TABLES = st.lists(st.lists(FIELDS, min_size=2, max_size=2), max_size=8)
CSV_BYTES = st.lists(
    st.sampled_from([b"a", b"b", b",", b'"', b'""', b"\n", b"\r\n", b"\r", b"\xff", b'","']), max_size=40
)


def told(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row[READ_ERROR] for row in rows]


def test_types_that_differ_between_lines_are_kept_as_text(tmp_path: Path) -> None:
    file = put(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": "x"}\n{}\n{"a": null}\n{"a": [1, {"b": 2.5}]}\n{"a": true}\n')
    assert [row["a"] for row in rows_of(file)] == ["1", "x", None, None, '[1,{"b":2.5}]', "true"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([True, False], pa.bool_()),
        ([None, None], pa.null()),
        ([2**70, 1], pa.string()),
        ([2**60 + 1, 0.5], pa.string()),
        ([{"b": 1}, [2]], pa.string()),
    ],
)
def test_a_column_has_the_type_of_its_values(tmp_path: Path, values: list[Any], kind: pa.DataType) -> None:
    file = put(tmp_path / "a.jsonl", jsonl({"a": value} for value in values))
    (batch,) = read(file.whole(), file, BLOBS, ["a"], 10, 1000)
    assert batch.schema.field("a").type == kind


def test_a_number_comes_as_it_is_where_text_is_wanted_whatever_batch_it_is_in(tmp_path: Path) -> None:
    file = put(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": 2.5}\n{"a": "x"}\n')
    schema = pa.schema([("a", pa.string())])
    for batch_rows in (1, 2, 3):
        assert [row["a"] for row in rows_of(file, None, ["a"], schema, batch_rows)] == ["1", "2.5", "x"]


def test_broken_lines_are_rows_with_an_error(tmp_path: Path) -> None:
    lines = [
        b'{"a": "x"}',
        b'{"a": ',
        b"[1]",
        b'{"a": "\xff"}',
        b'{"a": NaN}',
        b'{"a": 1}{"a": 2}',
        b"[" * 9999,
        b'{"a": "y"}',
    ]
    rows = rows_of(put(tmp_path / "a.jsonl", b"\n".join(lines)), None, ["a"])
    assert [row["a"] for row in rows] == ["x", *[None] * 6, "y"]
    assert [error is None for error in told(rows)] == [True, *[False] * 6, True]
    assert told(rows)[3] == "the line is not UTF-8"


@pytest.mark.parametrize("suffix", COMPRESS)
def test_odd_line_ends_and_marks_are_no_rows(tmp_path: Path, suffix: str) -> None:
    file = put(tmp_path / f"a.jsonl{suffix}", b'\xef\xbb\xbf\n\r\n{"a": 1}\r\n  \n{"a": 2}')
    assert [row["a"] for row in rows_of(file)] == [1, 2]
    table = put(tmp_path / f"a.csv{suffix}", b'\xef\xbb\xbf"a",b\r\n\r\n1,\r\n\n"",4')
    assert [(row["a"], row["b"]) for row in rows_of(table)] == [("1", None), ("", "4")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.jsonl.gz", "a.csv.xz"])
def test_an_empty_file_has_no_rows(tmp_path: Path, name: str) -> None:
    for content in (b"", b"\n", b"\n\r\n"):
        file = put(tmp_path / name, content)
        assert rows_of(file, None, ["a"]) == []
        assert sum(piece.rows or 0 for piece in cut_in(file, 1)) == 0


def test_a_file_with_only_a_header_has_no_rows(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv", b"a,b\n")
    assert rows_of(file, None, ["b"]) == []
    assert cut_in(file, 1) == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.zst", "a.csv.bz2"])
@pytest.mark.slow
def test_rows_of_megabytes_come_one_by_one(tmp_path: Path, name: str) -> None:
    texts = ["x" * 5_000_000, "small", "y" * 5_000_000, "z"]
    data = jsonl({"a": text} for text in texts) if "json" in name else ("a\n" + "\n".join(texts)).encode()
    file = put(tmp_path / name, data)
    assert [row["a"] for row in rows_of(file, cut_in(file, 1), ["a"])] == texts
    assert [row["a"] for row in rows_of(file, None, ["a"], batch_bytes=10)] == texts


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz", "a.csv.gz"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 4096])
def test_a_row_above_the_cap_is_an_error_and_not_an_allocation(
    tmp_path: Path, name: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_ROW_BYTES", 40)
    monkeypatch.setattr(source, "_CHUNK_BYTES", chunk_bytes)
    texts = ["a", "x" * 100, "b", "y" * 41, "c", "z" * 300]
    data = (
        jsonl({"a": text} for text in texts)
        if "json" in name
        else ("a\n" + "\n".join(f'"{t}"' for t in texts)).encode()
    )
    file = put(tmp_path / name, data)
    rows = rows_of(file, None, ["a"])
    assert [row["a"] for row in rows] == ["a", None, "b", None, "c", None]
    assert all("longer than" in (error or "") for error in told(rows)[1::2])
    assert sum(piece.rows or 0 for piece in cut_in(file, 2)) == len(texts)


def test_csv_keeps_quoted_newlines_commas_and_quotes(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv", b'a,b\n"x\n,""y""",1\n5" pipe,2\n"q"r,"3\n\n"\n')
    assert [(row["a"], row["b"]) for row in rows_of(file)] == [('x\n,"y"', "1"), ('5" pipe', "2"), ("qr", "3\n\n")]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (['"x"', "y", '"stray', "z", "z"], 4),
        (['"p\nq"', '"never closed'], 4),
        (['"ok', '"ok"', '"ok"'], 2),  # the second cell's quote closes the first one, and `ok` follows
        (['"a ""b"" c', "z", '"ok"'], 2),
    ],
)
def test_a_quote_that_swallows_rows_is_an_error_that_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk_bytes: int, cells: list[str], line: int
) -> None:
    monkeypatch.setattr(source, "_CHUNK_BYTES", chunk_bytes)
    file = put(tmp_path / name, "".join(f"{row}\n" for row in ["id,t", *(f"1,{cell}" for cell in cells)]).encode())
    for use in (lambda: cut_in(file, 2), lambda: rows_of(file)):  # planning and reading agree
        with pytest.raises(InvalidInput, match=f"{name}.*the quote that opens on line {line} "):
            use()


def test_a_quoted_cell_of_very_many_lines_is_an_error_that_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_ROW_BYTES", 40)
    monkeypatch.setattr(source, "_CHUNK_BYTES", 16)
    file = put(tmp_path / "a.csv", b'id,t\n1,x\n2,"stray\n' + b"3,y\n" * 20 + b'4,""\n5,"\n')
    with pytest.raises(InvalidInput, match="the quote that opens on line 3 "):
        rows_of(file)


def test_csv_rows_that_do_not_fit_the_header_are_errors(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv", b"a,b\n1,2\n1\n1,2,3\n\xff,5\n6\r7,8\n9,10\n")
    rows = rows_of(file)
    assert [row["b"] for row in rows] == ["2", None, None, "5", None, "10"]
    assert told(rows)[1:5] == [
        "the row has 1 field, and the header has 2",
        "the row has 3 fields, and the header has 2",
        "column a: the value is not valid UTF-8",
        "the row has a carriage return outside of quotes",
    ]


def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv", b"id,body\n1,x\n")
    with pytest.raises(InvalidInput, match=r"\(id, body\); did you mean body\?"):
        rows_of(file, None, ["bdy"])
    assert rows_of(file, None, ["id", "lang"], pa.schema([("lang", pa.string())]))[0]["lang"] is None


def test_headers_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    for content, why in ((b"a,a\n1,2\n", "once"), (b"a\r1\r2\r", "alone"), (b"\xff,b\n1,2\n", "UTF-8")):
        with pytest.raises(InvalidInput, match=why):
            rows_of(put(tmp_path / "a.csv", content), None, ["a"])
    with pytest.raises(InvalidInput, match="reserved"):
        rows_of(put(tmp_path / "a.csv", b"a\n1\n"), None, [READ_ERROR])


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
def test_compressed_text_that_is_cut_short_is_broken(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    put(path, jsonl({"a": n} for n in range(1000)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    file = found(path)
    with pytest.raises(Broken, match=r"a.jsonl.*truncated"):
        rows_of(file)
    with pytest.raises(Broken, match="damaged"):
        cut_in(file, 10)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.zst", "a.tsv.xz"])
@pytest.mark.parametrize("rows", [15, 16, 17, 100, 1000])
def test_a_compressed_text_has_few_pieces_however_small_they_should_be(tmp_path: Path, name: str, rows: int) -> None:
    lines = jsonl({"a": str(n)} for n in range(rows)) if "json" in name else b"a\n%s" % numbered(rows)
    file = put(tmp_path / name, lines)
    pieces = cut_in(file, 1)
    sizes = [piece.rows or 0 for piece in pieces]
    assert len(pieces) == min(rows, 16)
    assert max(sizes) - min(sizes) <= 1
    assert sum(piece.bytes for piece in pieces) == sum(piece.bytes for piece in cut_in(file, rows))
    assert [row["a"] for row in rows_of(file, pieces, ["a"])] == [str(n) for n in range(rows)]


def test_a_plain_text_has_as_many_pieces_as_it_should(tmp_path: Path) -> None:
    assert len(cut_in(put(tmp_path / "a.csv", b"a\n" + numbered(100)), 1)) == 100


def numbered(rows: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(rows))


def test_a_lost_connection_is_no_damaged_file(tmp_path: Path) -> None:
    class Lost(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise TryLater("nobody answers", 1.0)

    class LostBlobs(LocalBlobs):
        def open(self, location: str) -> Any:
            return Lost(b"x" * 100)

    for name in ("a.jsonl", "a.csv.gz", "a.jsonl.xz", "a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(b"x")
        file = found(tmp_path / name)
        with pytest.raises(TryLater):
            list(read(file.whole(), file, LostBlobs(), None, 10, 10))


@QUICK
@given(
    lines=LINES, end=st.sampled_from([b"", b"\n", b"\r\n"]), data=st.data(), chunk=st.sampled_from([1, 3, 17, 1 << 20])
)
@pytest.mark.slow
def test_any_cuts_of_json_lines_give_every_row_once(
    tmp_path: Path, lines: list[bytes], end: bytes, data: st.DataObject, chunk: int
) -> None:
    file = put(tmp_path / "a.jsonl", b"\n".join(lines) + end)
    cuts = sorted(data.draw(st.sets(st.integers(0, file.size_bytes)))) if file.size_bytes else []
    cuts = sorted({0, *cuts, file.size_bytes})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_CHUNK_BYTES", chunk)
        pieces = [Piece(0, a, b, None, 0) for a, b in pairwise(cuts)]
        rows = rows_of(file, pieces, ["a"], pa.schema([("a", pa.string())]))
    assert rows == rows_of(file, None, ["a"], pa.schema([("a", pa.string())]))
    assert len(rows) == sum(1 for line in (b"\n".join(lines) + end).split(b"\n") if line.strip())
    for suffix in (".gz", ".xz"):
        packed = put(tmp_path / f"a.jsonl{suffix}", b"\n".join(lines) + end)
        assert rows_of(packed, cut_in(packed, 2), ["a"], pa.schema([("a", pa.string())])) == rows


@pytest.mark.slow
def test_every_byte_is_a_place_to_cut(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": "\xc3\xa9"}\n{"a": 3}'
    file = put(tmp_path / "a.jsonl", content)
    schema = pa.schema([("a", pa.string())])
    whole = rows_of(file, None, ["a"], schema)
    assert [row["a"] for row in whole] == ["1", "é", "3"]
    for a in range(file.size_bytes + 1):
        for b in range(a, file.size_bytes + 1):
            pieces = [Piece(0, x, y, None, 0) for x, y in ((0, a), (a, b), (b, file.size_bytes))]
            assert rows_of(file, pieces, ["a"], schema) == whole
    behind = [Piece(0, 3, 12, None, 0), Piece(0, 12, file.size_bytes, None, 0)]  # as a plan has them
    assert rows_of(file, behind, ["a"], schema) == whole


@QUICK
@given(
    table=TABLES,
    target=st.integers(1, 5),
    chunk=st.sampled_from([1, 2, 5, 1 << 20]),
    suffix=st.sampled_from(["", ".gz"]),
)
@pytest.mark.slow
def test_csv_is_read_as_python_writes_it_however_it_is_cut(
    tmp_path: Path, table: list[list[str]], target: int, chunk: int, suffix: str
) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["a", "b"], *table])
    file = put(tmp_path / f"a.csv{suffix}", text.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_CHUNK_BYTES", chunk)
        rows = rows_of(file, cut_in(file, target), ["a", "b"])
        assert [piece.rows for piece in cut_in(file, target)] == [
            min(target, len(table) - k) for k in range(0, len(table), target)
        ]
    assert [[row["a"], row["b"]] for row in rows] == table
    assert told(rows) == [None] * len(table)


@pytest.mark.slow
@QUICK
@example(parts=[b'""', b",", b"\n", b",", b"\n"], target=1, chunk=1)
@given(parts=CSV_BYTES, target=st.integers(1, 3), chunk=st.sampled_from([1, 2, 3, 1 << 20]))
def test_any_bytes_at_all_are_the_same_csv_however_they_are_cut(
    tmp_path: Path, parts: list[bytes], target: int, chunk: int
) -> None:
    file = put(tmp_path / "a.csv", b"a,b\n" + b"".join(parts))
    try:
        whole = rows_of(file, None, ["a", "b"])
    except InvalidInput as error:
        whole = str(error)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_CHUNK_BYTES", chunk)
        if isinstance(whole, str):
            with pytest.raises(InvalidInput, match=re.escape(whole)):
                cut_in(file, target)
            return
        pieces = cut_in(file, target)
        assert rows_of(file, pieces, ["a", "b"], batch_rows=1) == whole
        assert sum(piece.rows or 0 for piece in pieces) == len(whole)
