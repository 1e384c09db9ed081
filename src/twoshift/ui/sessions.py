"""Who looks at the console: a login with a key, and a cookie that no script and no other site can use."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from twoshift.serve.http.messages import Request
from twoshift.serve.keys import ANYONE, Access, Caller, Keys
from twoshift.ui.feed import Sight

__all__ = ["Session", "Sessions", "is_same"]

_LASTS_S = 12 * 3600
_MOST_OF_KEY = 50  # sessions: its oldest go, and nobody else's
_MOST_COOKIE = 4096


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who may look."""

    caller: Caller
    token: str  # that a form must have: no other site can know it
    ends_unix_s: float = math.inf
    read_only: bool = False

    @property
    def sight(self) -> Sight:
        """What is seen of deployments: what all tenants ask of them is an admin's, as in /metrics."""
        return Sight(self.caller.is_admin, self.caller.models)

    def may(self, needs: Access, reads: bool = False) -> bool:
        """Whether it may do this."""
        return (reads or not self.read_only) and self.caller.may(needs, reads)


class Sessions:
    """Of one process: a restart asks for the key again. The browser has a random name of the session, not the key."""

    def __init__(self, keys: Keys, is_tls: bool = False, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._is_tls, self._clock = keys, is_tls, clock
        self._open = None if keys else Session(ANYONE, secrets.token_urlsafe(24))
        self._sessions: dict[bytes, Session] = {}  # by a digest: who reads the memory cannot use it

    @property
    def needs_login(self) -> bool:
        """Whether there are keys at all."""
        return self._open is None

    def find(self, request: Request) -> Session | None:
        """Whose request it is; None where nobody has logged in."""
        if self._open is not None:
            return self._open
        name = self._cookie(request)
        found = None if name is None else self._sessions.get(_digest(name))
        return found if found is not None and self._is_valid(found) else None

    def is_valid(self, session: Session) -> bool:
        """Whether it goes on."""
        return session is self._open or (session in self._sessions.values() and self._is_valid(session))

    def begin(self, request: Request, key: str, read_only: bool) -> bytes:
        """The header that sets its cookie; raises Denied."""
        caller = self._keys.caller(f"Bearer {key}")
        name, ends = secrets.token_urlsafe(32), self._clock() + _LASTS_S
        mine = [each for each, session in self._sessions.items() if session.caller.name == caller.name]
        for oldest in mine[: max(0, len(mine) - _MOST_OF_KEY + 1)]:
            del self._sessions[oldest]
        self._sessions[_digest(name)] = Session(caller, secrets.token_urlsafe(24), ends, read_only)
        return self._set_cookie(request, name, _LASTS_S)

    def end(self, request: Request) -> bytes:
        """The header that removes its cookie."""
        if (name := self._cookie(request)) is not None:
            self._sessions.pop(_digest(name), None)
        return self._set_cookie(request, "", 0)

    def _is_valid(self, session: Session) -> bool:
        return self._clock() < session.ends_unix_s

    def _name(self, request: Request) -> str:
        """Ports share their cookies: another server of this machine must not end this one's sessions."""
        port = (request.header(b"host") or "").rpartition(":")[2]
        name = f"twoshift-{port if port.isdecimal() else 'console'}"
        return f"__Host-{name}" if self._is_tls else name

    def _cookie(self, request: Request) -> str | None:
        given = request.header(b"cookie")
        if given is None or len(given) > _MOST_COOKIE:
            return None
        try:
            found = SimpleCookie(given).get(self._name(request))
        except CookieError:
            return None
        return None if found is None else found.value

    def _set_cookie(self, request: Request, value: str, lasts_s: int) -> bytes:
        secure = "; Secure" if self._is_tls else ""
        told = f"{self._name(request)}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}"
        return told.encode()


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "replace")).digest()


def is_same(token: str, given: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(token.encode(), given.encode("utf-8", "replace"))
