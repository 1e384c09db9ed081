"""Which addresses a server may call: public addresses and the usual ports, unless the operator allows more."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from twoshift.errors import InvalidInput

__all__ = ["Target", "is_public", "target_of"]

_PORTS = (443, 8443)
_DEFAULT_PORTS = {"https": 443, "http": 80}
_MOST_CHARACTERS = 2000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")
_CLOSED = tuple(
    ip_network(each)
    for each in (
        "100.64.0.0/10",  # shared by a provider's customers
        "168.63.129.16/32",  # a cloud's own services, behind a public address
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
    )
)
_CARRIERS = (  # IPv6 that leads to an IPv4 address, and where in it that is
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)
_SIX_CLOSED = tuple(
    IPv6Network(each) for each in ("64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16", "fec0::/10")
)


class Target(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str  # as certificates name it
    port: int
    path: str  # with its query

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def target_of(url: str, private_too: bool, field: str = "url") -> Target:
    """Parse the URL; raises InvalidInput if it may not be called. Does not resolve the host name."""
    try:
        parsed = urlsplit(url)
        port = parsed.port
    except ValueError:
        raise InvalidInput(field, url, "a URL such as https://example.com/hook") from None
    printable = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if parsed.scheme not in _DEFAULT_PORTS or not parsed.hostname or not printable or len(url) > _MOST_CHARACTERS:
        raise InvalidInput(field, url, "a URL such as https://example.com/hook")
    if "@" in parsed.netloc or parsed.fragment:
        raise InvalidInput(field, url, "a URL without a user name, a password or a '#'")
    if parsed.scheme == "http" and not private_too:
        raise InvalidInput(field, url, "an https URL; `allow_private_webhooks = true` on the server also allows http")
    literal = _literal(parsed.hostname)
    if literal is None and not _NAME.fullmatch(parsed.hostname):
        raise InvalidInput(field, url, "a URL with a host name or an IP address")
    made = Target(parsed.scheme, parsed.hostname, port or _DEFAULT_PORTS[parsed.scheme], _path(parsed))
    if not private_too and made.port not in _PORTS:
        ports = " or ".join(map(str, _PORTS))
        accepted = f"a URL with port {ports}; `allow_private_webhooks = true` on the server allows every port"
        raise InvalidInput(field, url, accepted)
    if not private_too and literal is not None and not is_public(parsed.hostname):
        allowed = "`allow_private_webhooks = true` on the server also allows private addresses"
        raise InvalidInput(field, url, f"a URL with a public IP address; {allowed}")
    return made


def is_public(address: str) -> bool:
    """Whether an address is on the public internet: not private, loopback, link-local, multicast or cloud-internal."""
    found = _literal(address.partition("%")[0])
    if found is None or "%" in address:
        return False
    if isinstance(found, IPv4Address):
        return _is_public_four(found)
    for network, shift in _CARRIERS:
        if found in network:
            return _is_public_four(IPv4Address((int(found) >> shift) & 0xFFFFFFFF))
    if found.is_multicast or found.is_reserved or any(found in each for each in _SIX_CLOSED):
        return False
    return found.is_global


def _is_public_four(found: IPv4Address) -> bool:
    return found.is_global and not (found.is_multicast or found.is_reserved or any(found in each for each in _CLOSED))


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _path(parsed: SplitResult) -> str:
    path = parsed.path or "/"
    return f"{path}?{parsed.query}" if parsed.query else path
