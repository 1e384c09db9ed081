"""Which certificates a client trusts, and which lost connections are TLS that does not fit: those are not retried."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twoshift.errors import InvalidInput

__all__ = ["tls_context", "tls_problem"]

_PROBE_S = 2.0
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


def tls_context(url: str, httpx: Any) -> ssl.SSLContext:
    """What verifies the server's certificate: with SSL_CERT_FILE, SSL_CERT_DIR or the authorities that httpx knows."""
    if urlsplit(url).scheme != "https":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and trusts nobody
    if file := os.environ.get("SSL_CERT_FILE"):
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as error:  # also what is not PEM
            accepted = f"a readable PEM file with certificates ({error.strerror or error})"
            raise InvalidInput("SSL_CERT_FILE", file, accepted) from None
    if folder := os.environ.get("SSL_CERT_DIR"):
        if not Path(folder).is_dir():
            raise InvalidInput(
                "SSL_CERT_DIR", folder, "an existing folder of certificates, prepared with `openssl rehash`"
            )
        return ssl.create_default_context(capath=folder)
    return httpx.create_ssl_context(trust_env=False)


def tls_problem(url: str, error: Exception, is_cut: bool) -> InvalidInput | None:
    """What to change; None where TLS is not the reason. `is_cut`: the server closed the connection without a reply."""
    cause = _tls_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        accepted = (
            f"a server whose certificate can be verified ({cause.verify_message.rstrip('.')}); to trust another "
            "certificate authority, set SSL_CERT_FILE to the PEM file of that authority"
        )
        return InvalidInput("url", url, accepted)
    if cause is not None and cause.reason in _NOT_TLS:
        return InvalidInput("url", url, "http:// instead of https://: the server does not use TLS")
    if is_cut and urlsplit(url).scheme == "http" and _speaks_tls(url):
        return InvalidInput("url", url, "https:// instead of http://: the server uses TLS")
    return None


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _speaks_tls(url: str) -> bool:
    """Whether a handshake succeeds there: a server that is just ending cuts connections, too."""
    parsed, context = urlsplit(url), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent, and nothing believed
    try:
        with (
            socket.create_connection((parsed.hostname, parsed.port or 80), _PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=parsed.hostname),
        ):
            return True
    except OSError:
        return False
