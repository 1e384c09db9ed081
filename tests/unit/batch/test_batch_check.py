"""A batch's input, looked through."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twoshift.batch.inputs import piece_lines, resolve
from twoshift.batch.inputs.piece import Piece
from twoshift.batch.kinds.request_lines import read_line, response_line
from twoshift.batch.requests.check import Checked, check_input
from twoshift.blobs.local import LocalBlobs
from twoshift.endpoints.faults import Fault

URL = "/v1/embeddings"
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        JSON.map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {}, optional={"custom_id": JSON, "method": JSON, "url": st.just(URL) | JSON, "body": JSON}
        ).map(lambda value: json.dumps(value).encode()),
        st.text(max_size=5).map(lambda name: line(name)[:-1]),
        st.sampled_from([b"", b" ", b"\r", b"\xef\xbb\xbf", b"\x00", b"[" * 5000, b"{" * 5000, b'{"a":' * 5000]),
    ),
    max_size=8,
)


def line(custom_id: str, **more: Any) -> bytes:
    body = more.pop("body", {"model": "m", "input": "x"})
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": URL, "body": body, **more}).encode() + b"\n"


def checked(data: bytes, most: int = 100) -> Checked:
    return check_input(io.BytesIO(data), URL, {"m": "m", "sql": "m"}, most)


@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
@example([b"\xef\xbb\xbf" + line("a")[:-1]], b"\n")
def test_whatever_a_file_holds_something_is_told(lines: list[bytes], end: bytes) -> None:
    found = checked(end.join(lines))
    assert found.errors or (found.total and found.model == "m")
    for error in found.errors:
        assert set(error) == {"code", "message", "line", "param"}
        assert error["line"] is None or error["line"] >= 1
        json.dumps(error).encode()


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 5000), max_size=6), st.booleans())
def test_the_job_reads_the_very_lines_that_were_looked_at(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[int], cuts: list[int], ended: bool
) -> None:
    """However it is cut: blank lines, carriage returns and a missing end mean the same to both."""
    some = [b"", b"  ", line("{}")[:-1], line("{}")[:-1] + b"\r"]
    rows = [some[kind].replace(b"{}", str(k).encode()) for k, kind in enumerate(kinds)]
    data = b"\n".join(rows) + (b"\n" if ended else b"")
    path = Path(tmp_path_factory.mktemp("in") / "file")
    path.write_bytes(data)
    file = resolve([str(path)], lambda _: LocalBlobs(), "jsonl")[0]
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [Piece(0, a, b, None, b - a) for a, b in pairwise(places)]
    read = [read_line(each).custom_id for piece in pieces for each in piece_lines(piece, file, LocalBlobs())]
    assert read == [str(k) for k, kind in enumerate(kinds) if kind > 1]
    assert checked(data).total == len(read)


@pytest.mark.parametrize(
    ("data", "code", "param", "number"),
    [
        (line("a") + line("a"), "duplicate_custom_id", "custom_id", 2),
        (line(""), "missing_required_parameter", "custom_id", 1),
        (b'{"method":"POST"}\n', "invalid_request_line", "custom_id", 1),
        (line("a", method="GET"), "invalid_method", "method", 1),
        (line("a", url="/v1/chat/completions"), "invalid_url", "url", 1),
        (line("a", body={"input": "x"}), "invalid_request_body", "body.model", 1),
        (line("a", body=[]), "invalid_request_body", "body", 1),
        (line("a", body={"model": "n"}), "model_not_found", "body.model", 1),
        (line("a") + line("b", body={"model": "n"}), "mismatched_model", "body.model", 2),
        (line("a") + b"\n\n{\n", "invalid_json_line", None, 4),
        (b"".join(line(str(k)) for k in range(101)), "too_many_requests", None, 101),
        (b'{"custom_id":"' + b"x" * (17 << 20), "line_too_long", None, 1),
        (b"", "empty_file", None, None),
    ],
)
def test_what_is_wrong_is_told_by_line_and_name(data: bytes, code: str, param: str | None, number: int | None) -> None:
    found = [(error["code"], error["param"], error["line"]) for error in checked(data).errors]
    assert (code, param, number) in found


def test_of_many_errors_the_first_are_told() -> None:
    found = checked(b"no\n" * 1000, most=5000)
    assert [error["line"] for error in found.errors] == list(range(1, 101))


def test_a_result_says_the_same_each_time() -> None:
    assert response_line("batch_a", "é", b"{}") == response_line("batch_a", "é", b"{}")
    told = json.loads(response_line("batch_a", "x", Fault(429, "rate", "slow down")))
    assert told["response"]["status_code"] == 429
    assert told["response"]["body"]["error"]["message"] == "slow down"
    assert told["id"] != json.loads(response_line("batch_b", "x", b"{}"))["id"]


def test_a_file_may_name_a_model_and_its_adapters() -> None:
    asked = [line(str(k), body={"model": name}) for k, name in enumerate(("sql", "m", "support", "sql"))]
    found = check_input(io.BytesIO(b"".join(asked)), URL, {"m": "m", "sql": "m", "support": "m", "n": "n"}, 9)
    assert (found.errors, found.model, found.adapters) == ([], "m", {"sql", "support"})
    mixed = check_input(io.BytesIO(asked[0] + line("b", body={"model": "n"})), URL, {"sql": "m", "n": "n"}, 9)
    assert [each["code"] for each in mixed.errors] == ["mismatched_model"]


def test_a_key_for_an_adapter_alone_has_not_its_model() -> None:
    asked = b"".join(line(str(k), body={"model": name}) for k, name in enumerate(("sql", "m", "m")))
    found = check_input(io.BytesIO(asked), URL, {"sql": "m"}, 9)
    assert [(each["code"], each["line"]) for each in found.errors] == [("model_not_found", 2)]
