"""What a tenant may have stored and may have on its way, with the real program: others are not held up."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_clients import client_of, ended, request_line
from servers import Got, Server, until
from user_models import written

pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow
QUOTA_BYTES = 100_000
HEAD = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
PURPOSE = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
FILE = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
FORM = {"content-type": "multipart/form-data; boundary=b"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    pytest.importorskip("httptools")
    tables = [
        f'[models.embed]\nmodel = "{written(tmp_path)}:Embed"\n',
        f"[tenants.red]\nstored_bytes = {QUOTA_BYTES}\n",
    ]
    tables += [f'[keys.{name}]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n' for name in ("red", "blue")]
    (tmp_path / "server.toml").write_text("\n".join(tables))
    made = Server(tmp_path / "home", "--config", str(tmp_path / "server.toml"))
    yield made
    made.end()


def sent(server: Server, who: str, size: int) -> Got:
    body = PURPOSE + FILE + b"x" * size + b"\r\n--b--\r\n"
    return server.ask("POST", "/v1/files", body, {**FORM, "authorization": f"Bearer {who}"})


def slow(server: Server, who: str, size: int) -> socket.socket:
    """A file of which only the beginning comes."""
    made = server.connect()
    key = b"authorization: Bearer %b\r\n" % who.encode()
    made.sendall(HEAD + key + b"content-length: %d\r\n\r\n" % size + PURPOSE + FILE)
    return made


def staged(tmp_path: Path) -> int:
    return len(list((tmp_path / "home" / "files" / "_twoshift" / "staging").glob("*")))


def test_a_file_on_its_way_takes_room_until_it_is_given_up(server: Server, tmp_path: Path) -> None:
    with slow(server, "red", 60_000):
        until(lambda: staged(tmp_path) == 1)
        refused = sent(server, "red", 50_000)
        assert refused.status == 413
        declared = len(PURPOSE + FILE) + 50_000 + len(b"\r\n--b--\r\n")
        assert f"a file of {declared:,} bytes" in refused.json()["error"]["message"]
        assert sent(server, "blue", 500_000).status == 200
    until(lambda: sent(server, "red", 50_000).status == 200)
    assert sent(server, "red", 50_000).status == 413


def test_slow_files_of_one_tenant_do_not_shut_out_another(server: Server, tmp_path: Path) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(8):
            open_ones.enter_context(slow(server, "blue", 100_000))
        until(lambda: staged(tmp_path) == 8)
        refused = sent(server, "blue", 10)
        assert refused.status == 429
        assert "the tenant blue has reached the limit of 8" in refused.json()["error"]["message"]
        assert "retry-after" in refused.headers
        assert sent(server, "red", 10).status == 200
    until(lambda: sent(server, "blue", 10).status == 200)


def test_a_retry_without_room_is_refused(server: Server) -> None:
    client = client_of(server, "red")
    lines = [request_line(str(k), "embed", "fox" if k else ["a"] * 5000) for k in range(40)]
    file = client.files.create(file=("r.jsonl", b"".join(lines)), purpose="batch")
    given = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    batch = ended(client, client.batches.create(**given).id)
    assert batch.request_counts.failed
    used = sum(each.bytes for each in client.files.list().data)
    assert sent(server, "red", QUOTA_BYTES - used - 1000).status == 200
    refused = server.ask("POST", f"/v1/batches/{batch.id}/retry", {}, {"authorization": "Bearer red"})
    assert refused.status == 413
    assert f"a file of {file.bytes:,} bytes" in refused.json()["error"]["message"]
