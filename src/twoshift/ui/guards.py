"""What a browser's request must be before the console looks at it: of this site, and not too large."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from twoshift.errors import Forbidden, InvalidInput, TooLarge
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.keys import ANYONE, Caller
from twoshift.ui.sessions import Sessions

__all__ = ["Guards", "secured", "wants_page"]

_MOST_BYTES = 256 << 10
_CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# same-origin and not none: without a referrer, a browser says `Origin: null` when it sends a form
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)


class Guards:
    """Who asks for a page or an action; raises before a body is read."""

    def __init__(self, sessions: Sessions, hosts: Sequence[str]) -> None:
        """`hosts`: names of this server, beside its addresses."""
        self._sessions, self._hosts = sessions, frozenset(each.lower() for each in hosts)

    def look(self, request: Request) -> Caller:
        """A page: anybody may ask for it, and may be asked to log in."""
        self._check_host(request)
        found = self._sessions.find(request)
        return ANYONE if found is None else found.caller

    def probe_or_look(self, request: Request) -> Caller:
        """The first page, which is also a probe: those come under any name, and are told nothing."""
        return self.look(request) if wants_page(request) else ANYONE

    def act(self, request: Request) -> Caller:
        """A form or a script of a page of ours."""
        check_origin(request)
        length, is_chunked = request.header(b"content-length") or "0", request.header(b"transfer-encoding") is not None
        if is_chunked or not length.isdecimal() or int(length) > _MOST_BYTES:
            size = "unknown size" if is_chunked else f"{length} bytes"
            accepted = f"at most {_MOST_BYTES:,} bytes, and the size in the header content-length"
            raise TooLarge("body", size, accepted)
        if (coding := request.header(b"content-encoding")) is not None:  # it would be larger than it says
            raise InvalidInput("content-encoding", coding, "an uncompressed form")
        return self.look(request)

    def _check_host(self, request: Request) -> None:
        """Without keys, a page of another site could have its own name point to this server (DNS rebinding)."""
        if self._sessions.needs_login:
            return
        name = _host_name(request)
        if not (_is_here(name) or name in self._hosts):
            why = f"this server has no API keys, so its console does not answer to the host name {name!r}"
            use = "its IP address, localhost, or a name in `console_hosts` of the server's configuration"
            raise Forbidden(f"{why}: use {use}")


def wants_page(request: Request) -> bool:
    """Whether a browser asks."""
    return "text/html" in (request.header(b"accept") or "")


def check_origin(request: Request) -> None:
    """Raises Forbidden where another site's page has made a browser ask."""
    site, origin = request.header(b"sec-fetch-site"), request.header(b"origin")
    if site is None and origin is None:
        raise Forbidden("only pages of this console may send this request; the request has no Origin header")
    if site is not None and site != "same-origin":
        found = f"the request has the header Sec-Fetch-Site: {site}"
        raise Forbidden(f"only pages of this console may send this request; {found}")
    if origin is not None and _place(origin) != (request.header(b"host") or "").lower():
        raise Forbidden(f"only pages of this console may send this request, not pages of {origin[:200]}")


def secured(reply: Reply, content: str = _CONTENT, cache: bytes = b"no-store") -> Reply:
    """With the headers that keep a page to itself."""
    reply.headers += [*_HEADERS, (b"content-security-policy", content.encode()), (b"cache-control", cache)]
    return reply


def _place(origin: str) -> str | None:
    """Its host and port; None where it is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _host_name(request: Request) -> str:
    try:
        return (urlsplit(f"//{request.header(b'host') or ''}").hostname or "").lower()
    except ValueError:
        return ""


def _is_here(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
