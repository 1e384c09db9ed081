"""A POST to somebody else's server, over real sockets."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from receivers import Posted, Receiver

from twoshift.errors import InvalidInput
from twoshift.triggers.sending import Sender, Undelivered

pytestmark = pytest.mark.slow
BODY = b'{"type": "job.completed"}'
Start = Callable[..., Receiver]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Receiver] = []

    def started(*given: object, **more: object) -> Receiver:
        made.append(Receiver(*given, **more))  # pyright: ignore[reportArgumentType]
        return made[-1]

    yield started
    for each in made:
        each.end()


def post(receiver: Receiver, limit_s: float = 60.0) -> int:
    return Sender(private_too=True, limit_s=limit_s).post(receiver.url, {"webhook-id": "msg_1"}, BODY)


def test_it_arrives_as_it_was_sent(start: Start) -> None:
    receiver = start()
    assert post(receiver) == 204
    (got,) = receiver.posted
    assert (got.path, got.body) == ("/hook", BODY)
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["webhook-id"] == "msg_1"
    assert got.headers["content-type"] == "application/json"


def test_a_redirect_is_an_answer_and_nobody_follows_it(start: Start) -> None:
    other = start()
    receiver = start(lambda _: Receiver.status(302, f"location: {other.url}"))
    assert post(receiver) == 302
    assert other.posted == []


def test_words_before_the_answer_are_passed_over(start: Start) -> None:
    assert (
        post(start(lambda _: b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\n" + Receiver.status(201)))
        == 201
    )


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH_9.6 and more\r\n", b"HTTP/1.1 banana\r\n\r\n", b"\0" * 100_000]
)
def test_what_is_no_http_is_no_delivery(start: Start, answer: bytes) -> None:
    with pytest.raises(Undelivered, match=r"not valid HTTP|the connection failed"):
        post(start(lambda _: answer))


def test_one_who_says_nothing_or_a_little_now_and_then_is_left_in_time(start: Start) -> None:
    with pytest.raises(Undelivered, match=r"no answer within 0\.5 s"):
        post(start(lambda _: None), limit_s=0.5)

    def drip(_posted: Posted) -> Iterator[bytes]:
        yield b"HTTP/1.1 103 Hints\r\n"
        while True:
            time.sleep(0.05)
            yield b"a"

    receiver = start(drip)
    with pytest.raises(Undelivered, match=r"no answer within 0\.5 s"):
        post(receiver, limit_s=0.5)


def test_an_endless_answer_is_not_read_to_its_end(start: Start) -> None:
    assert post(start(lambda _: b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 10_000_000)) == 200
    for status in (b"200 OK", b"103 Hints"):
        head = b"HTTP/1.1 " + status + b"\r\n" + b"a: b\r\n" * 1_000_000
        with pytest.raises(Undelivered, match=r"not valid HTTP|the connection failed"):
            post(start(lambda _, head=head: head))


def test_nobody_there_is_no_delivery(start: Start) -> None:
    receiver = start()
    receiver.end()
    with pytest.raises(Undelivered, match="the connection failed"):
        post(receiver)


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["169.254.169.254"], ["::1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1%lo"]],
)
def test_a_name_of_which_one_address_is_private_is_not_called(start: Start, addresses: list[str]) -> None:
    receiver = start()
    sender = Sender(resolve=lambda _host, _port: addresses)
    with pytest.raises(Undelivered, match="not a public address"):
        sender.post("https://hooks.example.com/x", {}, BODY)
    assert receiver.posted == []


def test_a_url_of_a_private_address_is_not_called() -> None:
    for url in ("https://127.0.0.1/", "http://hooks.example.com/", "https://hooks.example.com:6379/"):
        with pytest.raises(InvalidInput, match="allow_private_webhooks"):
            Sender().post(url, {}, BODY)


@pytest.mark.parametrize("host", ["0x7f000001", "127.1", "2130706433", "localhost"])
def test_loopback_in_disguise_is_not_called(host: str) -> None:
    with pytest.raises(Undelivered, match=r"not a public address|has no address"):
        Sender().post(f"https://{host}/", {}, BODY)


def test_a_name_is_resolved_once_and_its_address_called_whatever_it_says_after_that(start: Start) -> None:
    receiver, asked = start(), list[str]()

    def rebinding(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    sender = Sender(private_too=True, resolve=rebinding)
    assert sender.post(f"http://hooks.example.com:{receiver.port}/a", {}, BODY) == 204
    assert asked == ["hooks.example.com"]
    assert receiver.posted[0].headers["host"] == f"hooks.example.com:{receiver.port}"


def test_an_address_where_nobody_is_leaves_the_next_one(start: Start) -> None:
    receiver = start()
    sender = Sender(private_too=True, resolve=lambda _host, _port: ["127.0.0.9", "127.0.0.1"])
    assert sender.post(f"http://hooks.example.com:{receiver.port}/a", {}, BODY) == 204


def test_a_resolver_that_does_not_answer_holds_nothing_up(start: Start) -> None:
    gate = threading.Event()

    def silent(_host: str, _port: int) -> list[str]:
        gate.wait(60)
        return []

    sender = Sender(resolve=silent, limit_s=0.3)
    with pytest.raises(Undelivered, match="was not resolved in time"):
        sender.post("https://hooks.example.com/", {}, BODY)
    gate.set()


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A receiver's side with a certificate of these names, and a sender's that trusts it."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a receiver")])
    known = [x509.IPAddress(ipaddress.ip_address(each)) if each[0].isdigit() else x509.DNSName(each) for each in names]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "both.pem"
    plain = serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(file)
    return theirs, ssl.create_default_context(cafile=str(file))


def test_tls_is_by_the_name_and_not_by_the_address(start: Start, tmp_path: Path) -> None:
    theirs, ours = certificate(tmp_path, "hooks.example.com")
    receiver = start(context=theirs)

    def sender(context: ssl.SSLContext | None) -> Sender:
        return Sender(private_too=True, resolve=lambda _host, _port: ["127.0.0.1"], context=context)

    assert sender(ours).post(f"https://hooks.example.com:{receiver.port}/", {}, BODY) == 204
    for host in ("other.example.com", "127.0.0.1"):
        with pytest.raises(Undelivered, match="the TLS certificate is not trusted"):
            sender(ours).post(f"https://{host}:{receiver.port}/", {}, BODY)
    with pytest.raises(Undelivered, match="the TLS certificate is not trusted"):
        sender(None).post(f"https://hooks.example.com:{receiver.port}/", {}, BODY)
    assert len(receiver.posted) == 1
