"""Certificates for tests: an authority, and pairs that it has signed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Authority"]

_DAY = datetime.timedelta(days=1)


class Authority:
    """`ca` is the file that clients trust."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, folder / "ca.pem"
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("Test authority")
        self._cert = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.ca.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    def write(self, cert: Path, key: Path, name: str = "server") -> None:
        """A new pair for 127.0.0.1, in place of what the files hold."""
        own = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = self._signed(_name(name), own, x509.BasicConstraints(ca=False, path_length=None), address)
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        _replace(key, own.private_bytes(serialization.Encoding.PEM, *plain))
        _replace(cert, signed.public_bytes(serialization.Encoding.PEM))

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(now - _DAY).not_valid_after(now + _DAY)
        for each in extensions:
            made = made.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
        return made.sign(self._key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
