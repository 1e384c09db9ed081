"""Forms as they come in, whole, in pieces, and broken."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.serve.http.form import Form, read_form
from twoshift.serve.http.messages import Request
from twoshift.serve.http.multipart import FormEvent, FormReader, PartBegin, PartData, PartEnd, boundary_of
from twoshift.serve.http.streamed import BodyStream

BOUNDARY = b"x-y"
PARTS = st.lists(st.tuples(st.sampled_from(["a", "file", "é"]), st.binary(max_size=60)), min_size=1, max_size=5)


def form(parts: list[tuple[str, bytes]]) -> bytes:
    made = b"".join(
        b'--x-y\r\ncontent-disposition: form-data; name="%b"\r\nx: y\r\n\r\n%b\r\n' % (name.encode(), content)
        for name, content in parts
    )
    return made + b"--x-y--\r\n"


def read(pieces: list[bytes]) -> list[tuple[str, bytes]]:
    reader, found = FormReader(BOUNDARY), list[tuple[str, bytes]]()
    for piece in pieces:
        for event in reader.feed(piece):
            found = _with(found, event)
    reader.end()
    return found


def _with(found: list[tuple[str, bytes]], event: FormEvent) -> list[tuple[str, bytes]]:
    match event:
        case PartBegin(name, _):
            return [*found, (name, b"")]
        case PartData(data):
            name, before = found[-1]
            return [*found[:-1], (name, before + data)]
        case PartEnd():
            return found


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


@given(PARTS, st.lists(st.integers(0, 10_000), max_size=20))
@example([("a", b"")], [])
@example([("a", b"\r\n--x-"), ("file", b"\r\n--x\r\n-y")], list(range(200)))
def test_a_form_is_the_same_however_it_is_cut(parts: list[tuple[str, bytes]], cuts: list[int]) -> None:
    if any(b"\r\n--x-y" in b"\r\n" + content for _, content in parts):
        return
    data = form(parts)
    assert read([data]) == parts
    assert read(pieces_of(data, cuts)) == parts
    assert read([data[k : k + 1] for k in range(len(data))]) == parts


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=5), st.booleans())
def test_whatever_comes_is_a_form_or_is_refused(noise: bytes, cuts: list[int], inside: bool) -> None:
    data = form([("a", b"b")])
    data = data[: len(data) // 2] + noise + data[len(data) // 2 :] if inside else noise
    with contextlib.suppress(InvalidInput):
        read(pieces_of(data, cuts))


@pytest.mark.parametrize(
    "endless",
    [b"a", b"--x-y\r\nname: " + b"y" * 60, b"--x-y\r\n", b'--x-y\r\ncontent-disposition: form-data; name="a"\r\n\r\n'],
)
def test_what_has_no_end_is_not_kept(endless: bytes) -> None:
    reader = FormReader(BOUNDARY)
    with contextlib.suppress(InvalidInput):
        for _ in range(5000):
            reader.feed(endless)
            assert len(reader._header + reader._value) < 20_000  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("given_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; Boundary="a b"', b"a b"),
        (
            "multipart/form-data;boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
            b"----WebKitFormBoundary7MA4YWxkTrZu0gW",
        ),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ('multipart/form-data; boundary="a\tb"', None),
        ("multipart/mixed; boundary=abc", None),
        ("", None),
        (None, None),
    ],
)
def test_the_boundary_is_read_or_refused(given_type: str | None, boundary: bytes | None) -> None:
    if boundary is not None:
        assert boundary_of(given_type) == boundary
        return
    with pytest.raises(InvalidInput, match="content-type"):
        boundary_of(given_type)


def test_a_name_may_have_quotes_and_letters_of_any_kind() -> None:
    head = 'content-disposition: form-data; name="file"; filename="a \\"größer\\" 文.jsonl"'.encode()
    events = list(FormReader(BOUNDARY).feed(b"--x-y\r\n" + head + b"\r\n\r\n"))
    assert events == [PartBegin("file", 'a "größer" 文.jsonl')]


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("filename*=UTF-8''gr%C3%B6%C3%9Fer%20a.jsonl", "größer a.jsonl"),
        ("filename*=iso-8859-1'de'gr%F6.jsonl", "grö.jsonl"),
        ("filename=\"a.jsonl\"; filename*=UTF-8''b.jsonl", "a.jsonl"),
        ("filename*=UTF-8''..%2F..%2Fa.jsonl", "a.jsonl"),
        (r'filename="C:\tests\new files\a.jsonl"', "a.jsonl"),
        (r'filename="C:\\tests\\a.jsonl"', "a.jsonl"),
        ('filename="/tmp/x/a.jsonl"', "a.jsonl"),
        ("filename*=a.jsonl", None),
        ("filename*=koi9''a.jsonl", None),
    ],
)
def test_a_file_has_the_end_of_the_name_it_came_with(given_name: str, name: str | None) -> None:
    head = f'--x-y\r\ncontent-disposition: form-data; name="file"; {given_name}\r\n\r\n'.encode()

    async def filled() -> Form:
        async def write(_data: bytes) -> None: ...

        stream = BodyStream(60.0, lambda _full: None)
        stream.feed(head + b"{}\r\n--x-y--\r\n")
        stream.end()
        headers = {b"content-type": b"multipart/form-data; boundary=x-y"}
        return await read_form(Request("POST", b"/v1/files", headers, b"", 0.0, stream=stream), write)

    if name is None:
        with pytest.raises(InvalidInput, match="a file with a name"):
            asyncio.run(filled())
    else:
        assert asyncio.run(filled()).filename == name
