"""Which certificates a client trusts, on the loopback address, too, and what it says where TLS does not fit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("cryptography")

from certificates import Authority
from twoshift.client.calls import json_call
from twoshift.client.transport import AsyncTransport, Transport
from twoshift.errors import InvalidInput, TryLater

GET = json_call("GET", "/v1/models", lambda found: found)
_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@contextlib.contextmanager
def _server(context: ssl.SSLContext | None, reply: bytes = _REPLY) -> Iterator[int]:
    """Answers every request alike, with TLS where there is a context; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                _answer(listener.accept()[0], context, reply)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _answer(plain: socket.socket, context: ssl.SSLContext | None, reply: bytes) -> None:
    with plain, contextlib.suppress(OSError):  # a client that does not trust it, or has no TLS
        peer = plain if context is None else context.wrap_socket(plain, server_side=True)
        with peer:
            peer.recv(65536)
            peer.sendall(reply)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.write(made.folder / "cert.pem", made.folder / "key.pem")
    return made


@pytest.fixture(scope="module")
def tls_port(authority: Authority) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / "cert.pem", authority.folder / "key.pem")
    with _server(context) as port:
        yield port


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def _asked(url: str) -> object:
    transport = Transport(url, max_retries=0)
    try:
        return transport.run(GET)
    finally:
        transport.close()


async def _asked_with_asyncio(url: str) -> object:
    transport = AsyncTransport(url, max_retries=0)
    try:
        return await transport.run(GET)
    finally:
        await transport.close()


def test_ssl_cert_file_is_trusted_for_a_server_on_the_same_machine(
    authority: Authority, tls_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # where nobody listens
    assert _asked(f"https://127.0.0.1:{tls_port}") == {}
    assert asyncio.run(_asked_with_asyncio(f"https://127.0.0.1:{tls_port}")) == {}


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_that_are_not_there_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, str(tmp_path / "missing"))
    with pytest.raises(InvalidInput, match=f"(?s){name}.*missing"):
        Transport("https://127.0.0.1:1")
    Transport("http://127.0.0.1:1").close()  # needs none


def test_a_file_without_a_certificate_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(InvalidInput, match="PEM"):
        Transport("https://127.0.0.1:1")


def test_a_certificate_that_cannot_be_verified_is_nothing_to_wait_for(tls_port: int) -> None:
    with pytest.raises(InvalidInput, match="set SSL_CERT_FILE"):
        _asked(f"https://127.0.0.1:{tls_port}")
    with pytest.raises(InvalidInput, match="set SSL_CERT_FILE"):
        asyncio.run(_asked_with_asyncio(f"https://127.0.0.1:{tls_port}"))


def test_a_url_without_tls_for_a_server_with_tls_is_told_https(tls_port: int) -> None:
    with pytest.raises(InvalidInput, match="https:// instead"):
        _asked(f"http://127.0.0.1:{tls_port}")
    with pytest.raises(InvalidInput, match="https:// instead"):
        asyncio.run(_asked_with_asyncio(f"http://127.0.0.1:{tls_port}"))


def test_a_url_with_tls_for_a_server_without_is_told_http() -> None:
    with _server(None) as port, pytest.raises(InvalidInput, match="http:// instead"):
        _asked(f"https://127.0.0.1:{port}")


def test_a_server_without_tls_that_cuts_the_connection_is_asked_again_later() -> None:
    with _server(None, b"") as port, pytest.raises(TryLater, match="does not answer"):
        _asked(f"http://127.0.0.1:{port}")
