"""TLS: pairs that fit and that do not, new ones while connections are open, connections that go to another process."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("httptools")

from tried_server import BIG, TriedServer

from certificates import Authority
from twoshift.errors import InvalidInput
from twoshift.serve.http.handover import Handover, HandoverListener
from twoshift.serve.http.peers import HttpLimits
from twoshift.serve.http.server import HttpServer, SharedPort
from twoshift.serve.settings import make_settings
from twoshift.serve.tls import TlsFiles


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.write(tmp_path / "cert.pem", tmp_path / "key.pem")
    return made


@pytest.fixture
def tls(authority: Authority) -> TlsFiles:
    return TlsFiles(authority.folder / "cert.pem", authority.folder / "key.pem")


class _Tls(TriedServer):
    def __init__(self, tls: TlsFiles | None, given: Path | None = None, taken: Path | None = None) -> None:
        super().__init__()
        self._tls, self._given, self._taken = tls, given, taken

    def made(self, limits: HttpLimits) -> HttpServer:
        handover = None if self._given is None else Handover(self._given, lambda method, _target: method == "POST")
        shared = SharedPort(handover)
        return HttpServer(self._handle, self._refused, limits, shared=shared, tls=self._tls, sweep_s=0.02)

    async def _start(self, limits: HttpLimits) -> None:
        await super()._start(limits)
        self.listener = None if self._taken is None else HandoverListener(self._taken, self.server.take_over)

    async def stop_taking(self) -> None:
        if self.listener is not None:
            self.listener.close()


@contextmanager
def _running(made: _Tls) -> Iterator[_Tls]:
    made.start(HttpLimits())
    try:
        yield made
    finally:
        made.call(made.stop_taking)
        made.end()
    assert not made.failures


def _client(server: _Tls, authority: Authority) -> httpx.Client:
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    return httpx.Client(base_url=f"https://127.0.0.1:{server.port}", verify=trusted, timeout=120)


def _serial(server: _Tls) -> str:
    """Of the certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", server.port))


def test_a_client_that_trusts_the_authority_is_answered_and_plain_http_is_not(
    tls: TlsFiles, authority: Authority
) -> None:
    with _running(_Tls(tls)) as server, _client(server, authority) as client:
        assert [client.post("/a", content=b"abc").text for _ in range(2)] == ["POST /a 3"] * 2
        assert len(client.get("/big").content) == BIG
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://127.0.0.1:{server.port}/a", timeout=120)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/a", timeout=120)
        assert client.get("/a").status_code == 200


def test_a_request_that_is_refused_before_its_body_is_read_gets_its_reply(tls: TlsFiles, authority: Authority) -> None:
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    asked = b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\nabc" % (1 << 40)
    with (
        _running(_Tls(tls)) as server,
        server.connection() as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as made,
    ):
        made.sendall(asked)
        assert b" 413 " in made.recv(1 << 16)


def test_a_new_pair_is_used_by_new_connections_and_open_ones_go_on(
    tls: TlsFiles, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with _running(_Tls(tls)) as server, _client(server, authority) as client:
        assert client.get("/a").status_code == 200
        first = _serial(server)
        authority.write(authority.folder / "cert.pem", authority.folder / "key.pem")
        server.until(lambda: _serial(server) != first)
        asked = len(server.asked)
        assert client.get("/a").status_code == 200  # on the connection from before
        assert len(server.asked) == asked + 1
        (authority.folder / "key.pem").write_text("nothing")
        server.until(lambda: "was not replaced" in caplog.text)
        with _client(server, authority) as another:
            assert another.get("/a").status_code == 200


def test_requests_for_another_process_go_there_over_the_connection_that_has_the_keys(
    tls: TlsFiles, authority: Authority
) -> None:
    way = authority.folder / "way"
    with _running(_Tls(None, taken=way)) as main, _running(_Tls(tls, given=way)) as front:
        with _client(front, authority) as client:
            for _ in range(2):
                assert client.post("/here", content=b"abc").text == "POST /here 3"
                assert client.get("/there").text == "GET /there 0"
            assert len(client.get("/big").content) == BIG
        assert [each.path for each in front.asked] == ["/here", "/here"]
        assert [each.path for each in main.asked] == ["/there", "/there", "/big"]
        front.until(lambda: not front.server.connections and not main.server.connections)


def test_pairs_that_cannot_be_used_are_refused_by_the_name_of_their_setting(authority: Authority) -> None:
    cert, key = authority.folder / "cert.pem", authority.folder / "key.pem"
    other, text = authority.folder / "other.pem", authority.folder / "text.pem"
    authority.write(authority.folder / "unused.pem", other)
    text.write_text("nothing")
    for given, message in {
        (cert, other): f"tls_key.*the private key of the certificate in {cert}",
        (cert, text): "tls_key.*a PEM file with a private key",
        (key, key): "tls_cert.*a PEM file with a certificate",
        (cert.with_name("none.pem"), key): "tls_cert.*a readable PEM file \\(No such file",
        (cert, authority.folder): "tls_key.*a readable PEM file \\(Is a directory",
    }.items():
        with pytest.raises(InvalidInput, match=message):
            TlsFiles(*given)


def test_a_certificate_without_a_key_is_refused() -> None:
    for given, missing in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        with pytest.raises(InvalidInput, match=missing):
            make_settings({"models": {"m": {"model": "minilm"}}, given: "a.pem"})
