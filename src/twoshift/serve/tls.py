"""A server's certificate and its private key, read again when their files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import NamedTuple

from twoshift.errors import InvalidInput
from twoshift.serve.settings import ServeSettings

__all__ = ["Pem", "TlsFiles", "tls_files"]

_logger = logging.getLogger("twoshift.serve")
_Signature = tuple[tuple[int, int, int], ...]  # of each file: what changes with its content


class Pem(NamedTuple):
    """A pair that fits, as its files hold it."""

    cert: bytes
    key: bytes


def tls_files(settings: ServeSettings) -> TlsFiles | None:
    """None: without TLS. Raises InvalidInput that names the setting."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return TlsFiles(Path(settings.tls_cert), Path(settings.tls_key))


class TlsFiles:
    """`context` and `pem` are of the newest pair that fits; connections keep the one that they began with."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Raises InvalidInput where they cannot be read, or do not fit."""
        self._cert, self._key = cert, key
        self._read = self._seen = _signature(cert, key)
        self.context, self.pem = _loaded(cert, key)

    def refresh(self) -> None:
        """Look at the files, from time to time; a pair that does not fit is logged, and the one before it stays."""
        now = _signature(self._cert, self._key)
        settled, self._seen = now == self._seen, now
        if now == self._read or not settled:  # two files are replaced one after the other: a look later both are there
            return
        self._read = now
        try:
            self.context, self.pem = _loaded(self._cert, self._key)
        except InvalidInput as error:
            _logger.warning("the TLS certificate was not replaced, and the previous one stays in use: %s", error)
        else:
            _logger.warning("new connections use the new TLS certificate in %s", self._cert)


def _signature(*paths: Path) -> _Signature:
    return tuple(_signature_of(path) for path in paths)


def _signature_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()  # of what a link names: a mounted secret is replaced by its link
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _loaded(cert: Path, key: Path) -> tuple[ssl.SSLContext, Pem]:
    pem = Pem(_content("tls_cert", cert, b"-----BEGIN CERTIFICATE-----"), _content("tls_key", key, b"PRIVATE KEY-----"))
    if b"ENCRYPTED" in pem.key:  # OpenSSL would ask at the terminal
        raise InvalidInput("tls_key", str(key), "a private key without a passphrase")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise InvalidInput("tls_key", str(key), f"the private key of the certificate in {cert}") from error
        accepted = f"a PEM certificate whose private key is in {key} ({(error.reason or str(error)).lower()})"
        raise InvalidInput("tls_cert", str(cert), accepted) from error
    except OSError as error:  # gone since it was read
        raise InvalidInput("tls_cert", str(cert), f"a readable PEM file ({error.strerror})") from error
    return context, pem


def _content(field: str, path: Path, mark: bytes) -> bytes:
    try:
        found = path.read_bytes()
    except OSError as error:
        raise InvalidInput(field, str(path), f"a readable PEM file ({error.strerror})") from error
    if mark not in found:
        what = "certificate" if field == "tls_cert" else "private key"
        raise InvalidInput(field, str(path), f"a PEM file with a {what}")
    return found
