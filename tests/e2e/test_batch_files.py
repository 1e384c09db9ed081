"""Uploads and downloads: large ones in little memory, hostile ones without harm."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import WAIT_S, Server, until
from user_models import written

pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow
MANY_BYTES = 150_000_000
ROOM_BYTES = 60_000_000  # that the server may grow by; a small part of a file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("httptools")
    home = tmp_path_factory.mktemp("home")
    made = Server(home, f"{written(home)}:Embed")
    made.home = home  # type: ignore[attr-defined]
    yield made
    made.end()


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    return f'--b\r\ncontent-disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content + b"\r\n"


PURPOSE, FILE, CLOSE = part("purpose", b"batch"), part("file", b"{}\n", "a.jsonl"), b"--b--\r\n"
FORM = {"content-type": "multipart/form-data; boundary=b"}


def test_a_large_file_goes_through_in_little_memory(server: Server) -> None:
    head, tail = PURPOSE + part("file", b"", "a.jsonl")[:-2], b"\r\n" + CLOSE
    piece = b"0123456789abcde\n" * 65_536
    pieces = MANY_BYTES // len(piece)
    before, most = server.resident_bytes(), 0
    made = http.client.HTTPConnection(server.host, server.port, timeout=WAIT_S)
    made.putrequest("POST", "/v1/files")
    made.putheader("content-type", FORM["content-type"])
    made.putheader("content-length", str(len(head) + pieces * len(piece) + len(tail)))
    made.endheaders(head)
    for _ in range(pieces):
        made.send(piece)
        most = max(most, server.resident_bytes())
    made.send(tail)
    file = json.loads(made.getresponse().read())
    assert file["bytes"] == pieces * len(piece)
    made.request("GET", f"/v1/files/{file['id']}/content")
    reply, size = made.getresponse(), 0
    while data := reply.read(1 << 20):
        assert data == (piece * 2)[size % 16 : size % 16 + len(data)]
        size += len(data)
        most = max(most, server.resident_bytes())
    assert size == file["bytes"]
    made.close()
    assert most - before < ROOM_BYTES
    assert server.ask("DELETE", f"/v1/files/{file['id']}").status == 200


def test_a_client_that_reads_nothing_costs_little(server: Server) -> None:
    file = server.ask("POST", "/v1/files", PURPOSE + part("file", b"x" * 50_000_000, "a") + CLOSE, FORM).json()
    before = server.resident_bytes()
    made = [server.connect() for _ in range(8)]
    for each in made:
        each.sendall(f"GET /v1/files/{file['id']}/content HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert each.recv(100)
    assert server.ask("GET", "/healthz").status == 200
    assert server.resident_bytes() - before < ROOM_BYTES
    for each in made:
        each.close()
    assert server.ask("DELETE", f"/v1/files/{file['id']}").status == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (PURPOSE + FILE + CLOSE, FORM, 200),
        (FILE + PURPOSE + CLOSE, FORM, 200),
        (b"\r\nbefore it\r\n" + PURPOSE + FILE + CLOSE + b"behind it", FORM, 200),
        (PURPOSE + part("file", b"", "a") + CLOSE, FORM, 200),
        (PURPOSE + FILE + CLOSE, {"content-type": 'multipart/form-data; boundary="b"'}, 200),
        (PURPOSE + FILE + CLOSE, {}, 400),
        (PURPOSE + FILE + CLOSE, {"content-type": "application/json"}, 400),
        (PURPOSE + FILE + CLOSE, {"content-type": "multipart/form-data"}, 400),
        (PURPOSE + FILE + CLOSE, {"content-type": "multipart/form-data; boundary=" + "b" * 71}, 400),
        (PURPOSE + FILE + CLOSE, {"content-type": "multipart/form-data; boundary=another"}, 400),
        (PURPOSE + FILE + CLOSE, {**FORM, "content-encoding": "gzip"}, 415),
        (PURPOSE + FILE, FORM, 400),
        (PURPOSE + FILE[:-9], FORM, 400),
        (b"", FORM, 400),
        (CLOSE, FORM, 400),
        (PURPOSE + CLOSE, FORM, 400),
        (FILE + CLOSE, FORM, 400),
        (PURPOSE + FILE + FILE + CLOSE, FORM, 400),
        (PURPOSE + PURPOSE + FILE + CLOSE, FORM, 400),
        (PURPOSE + part("other", b"x") + FILE + CLOSE, FORM, 400),
        (PURPOSE + part("other", b"x", "file") + CLOSE, FORM, 400),
        (PURPOSE + part("file", b"no file") + CLOSE, FORM, 400),
        (part("purpose", b"x" * 5000) + FILE + CLOSE, FORM, 400),
        (part("purpose", b"fine-tune") + FILE + CLOSE, FORM, 400),
        (b"--b\r\nx: " + b"y" * 10_000 + b"\r\n\r\nz\r\n" + FILE + CLOSE, FORM, 400),
        (b"--b\r\n\r\nz\r\n" + FILE + CLOSE, FORM, 400),
        (b"--b\rpurpose" + FILE + CLOSE, FORM, 400),
        (b"x" * 100_000, FORM, 400),
    ],
)
def test_a_form_is_taken_or_told_what_is_wrong(
    server: Server, body: bytes, headers: dict[str, str], status: int
) -> None:
    reply = server.ask("POST", "/v1/files", body, headers)
    assert reply.status == status, reply.body
    assert "x-request-id" in reply.headers
    if status != 200:
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
        return
    assert server.ask("DELETE", f"/v1/files/{reply.json()['id']}").json()["deleted"]


def test_a_form_may_come_in_chunks_byte_by_byte(server: Server) -> None:
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
    head += b"content-type: multipart/form-data; boundary=b\r\n\r\n"
    # What looks like the boundary and is not a whole line is the file's
    content = b"\r\n--\r\n--a\r\n--b \r\r\n-b \r\n--"
    body = PURPOSE + part("file", content, "a.jsonl") + CLOSE
    chunks = b"".join(b"1\r\n%b\r\n" % body[k : k + 1] for k in range(len(body)))
    reply = server.raw(head + chunks + b"0\r\n\r\n")
    file = json.loads(reply.partition(b"\r\n\r\n")[2])
    assert server.ask("GET", f"/v1/files/{file['id']}/content").body == content


def test_what_can_never_fit_is_told_before_it_is_sent(server: Server) -> None:
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
    with server.connect() as made:
        made.sendall(head + b"content-length: 300000000\r\n\r\n--b\r\n")
        reply = made.recv(1 << 16)
    assert b" 413 " in reply
    assert b"x-should-retry: false" in reply


def test_clients_that_go_in_the_middle_leave_nothing(server: Server) -> None:
    home: Path = server.home  # type: ignore[attr-defined]
    staging = home / "files" / "_twoshift" / "staging"
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
    before = len(server.ask("GET", "/v1/files").json()["data"])
    for sent in (0, 100, 5 << 20):
        with server.connect() as made:
            form = PURPOSE + part("file", b"y" * sent, "a")[:-2]
            made.sendall(head + b"content-length: 90000000\r\n\r\n" + form)
            until(lambda: bool(list(staging.glob("*"))))
    until(lambda: not list(staging.glob("*")))
    assert len(server.ask("GET", "/v1/files").json()["data"]) == before
    assert server.ask("GET", "/readyz").status == 200
    assert "Traceback" not in server.said


def test_a_file_may_be_larger_than_any_other_body(server: Server) -> None:
    much = b"x" * (70 << 20)
    reply = server.ask("POST", "/v1/files", PURPOSE + part("file", much, "a") + CLOSE, FORM)
    assert reply.status == 200
    assert server.ask("DELETE", f"/v1/files/{reply.json()['id']}").status == 200
    assert server.ask("POST", "/v1/embeddings", much).status == 413
