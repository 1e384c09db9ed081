"""TLS settings of a server."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.declare import setting
from twoshift.errors import InvalidInput
from twoshift.values import text

__all__ = ["TlsCert", "TlsKey", "check_tls"]

TlsCert = Annotated[
    str | None,
    setting(
        "PEM file with the server's certificate and its chain: HTTP and gRPC then use TLS.",
        text("FILE"),
        more="The file is read again when it changes. See [TLS](serving.md#tls).",
    ),
]
TlsKey = Annotated[
    str | None, setting("PEM file with the private key of the certificate, without a passphrase.", text("FILE"))
]


def check_tls(settings: Any) -> None:
    """Raises InvalidInput if only one of certificate and key is set."""
    if settings.tls_cert is not None and settings.tls_key is None:
        raise InvalidInput("tls_key", None, "--tls-key with the private key of the certificate in --tls-cert")
    if settings.tls_key is not None and settings.tls_cert is None:
        raise InvalidInput("tls_cert", None, "--tls-cert with the certificate of the private key in --tls-key")
