"""`serve --tls-cert --tls-key`: HTTP and gRPC, front processes, and a new certificate while clients are connected."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from programs import PROGRAM, environment
from servers import Server, until
from test_replicas import SOURCE

from certificates import Authority

pytest.importorskip("grpc", reason="the grpc extra is not installed")

import grpc

from twoshift.serve.grpc.messages import SERVICE, message

pytestmark = pytest.mark.slow


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "m.py").write_text(SOURCE)
    made = Authority(tmp_path)
    made.write(tmp_path / "cert.pem", tmp_path / "key.pem")
    return made


def _words(authority: Authority, key: str = "key.pem") -> list[str]:
    return ["--tls-cert", str(authority.folder / "cert.pem"), "--tls-key", str(authority.folder / key)]


@pytest.fixture(params=["1", "2"], ids=["one process", "two fronts"])
def server(authority: Authority, request: pytest.FixtureRequest) -> Iterator[Server]:
    model = f"{authority.folder}/m.py:Sized"
    more = ["--slo-ms", "60000", "--fronts", request.param, "--grpc-port", "0"]
    made = Server(authority.folder / "home", model, *more, *_words(authority))
    yield made
    made.end()


def _is_ready(port: int, authority: Authority) -> bool:
    """Over gRPC, on a connection of its own."""
    trusted = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{port}", trusted, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method = channel.unary_unary(
            f"/{SERVICE}/ServerReady",
            request_serializer=message("ServerReadyRequest").SerializeToString,
            response_deserializer=message("ServerReadyResponse").FromString,
        )
        return method(message("ServerReadyRequest")(), timeout=120).ready


def _certificate(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_clients_of_http_and_grpc_are_answered_before_and_after_the_certificate_is_replaced(
    server: Server, authority: Authority
) -> None:
    found = re.search(r"gRPC at \S+:(\d+)", server.said)
    assert found, server.said
    grpc_port = int(found[1])
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    asked = {"model": "Sized", "input": "abc"}
    with httpx.Client(base_url=f"https://127.0.0.1:{server.port}", verify=trusted, timeout=120) as client:
        assert client.post("/v1/embeddings", json=asked).json()["data"]
        assert client.get("/readyz").json()["status"] == "ready"  # the main process answers
        assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["Sized"]
        assert _is_ready(grpc_port, authority)
        before = _certificate(server.port)
        authority.write(authority.folder / "cert.pem", authority.folder / "key.pem")
        for port in (server.port, grpc_port):
            until(lambda port=port: _certificate(port) != before)
        assert client.post("/v1/embeddings", json=asked).status_code == 200
        assert _is_ready(grpc_port, authority)
    assert server.stop() == 0


def test_a_key_of_another_certificate_is_refused_before_anything_is_loaded(authority: Authority) -> None:
    authority.write(authority.folder / "unused.pem", authority.folder / "other.pem")
    words = [PROGRAM, "serve", f"{authority.folder}/m.py:Sized", *_words(authority, "other.pem")]
    ended = subprocess.run(
        words, env=environment(authority.folder / "home"), capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "--tls-key" in ended.stderr
    assert "the private key of the certificate in" in ended.stderr
    assert "Loading" not in ended.stderr
