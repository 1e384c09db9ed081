"""Who may ask, and how much: API keys, kept as digests."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from twoshift.errors import Denied, Forbidden, InvalidInput, OverLimit

__all__ = ["ANYONE", "Caller", "KeySettings", "Keys", "digest_of", "new_key"]

_BURST_S = 10.0  # of its rate that a key may use at once
_BUSY_S = 0.1
_DIGEST = re.compile(r"[0-9a-f]{64}")


def new_key() -> str:
    """One that nobody can guess."""
    return f"ts-{secrets.token_urlsafe(32)}"


def digest_of(key: str) -> str:
    """What is stored of a key. It is random and long, so a plain digest is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class KeySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key, as a configuration has it."""

    sha256: str
    tenant: str = ""  # whose files and jobs it may see; none: its own alone
    requests_per_minute: float | None = None
    concurrency: int | None = None  # requests at the same time
    models: tuple[str, ...] = ()  # none: all

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.sha256):
            raise InvalidInput("sha256", self.sha256, "64 hexadecimal digits, as `twoshift key` prints them")
        if self.requests_per_minute is not None and not 0 < self.requests_per_minute < 1e9:
            raise InvalidInput("requests_per_minute", self.requests_per_minute, "a number above 0")
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidInput("concurrency", self.concurrency, "a whole number of at least 1")


class Caller:
    """A key in use. Of one thread, as the server's loop is."""

    def __init__(self, name: str, settings: KeySettings | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self._settings, self._clock = name, settings, clock
        self.tenant = (settings.tenant if settings else "") or name
        self._running = 0
        self._rate_per_s = (settings.requests_per_minute or 0.0) / 60 if settings else 0.0
        self._most = max(1.0, self._rate_per_s * _BURST_S)
        self._left, self._filled_s = self._most, clock()

    @property
    def models(self) -> tuple[str, ...]:
        """That it may ask; none: all."""
        return self._settings.models if self._settings else ()

    def enter(self, model: str) -> None:
        """Begins a request; `leave` ends it. Raises Forbidden, OverLimit."""
        if self._settings is not None:
            self._take(model, self._settings)
        self._running += 1

    def leave(self) -> None:
        """Ends a request."""
        self._running -= 1

    def _take(self, model: str, settings: KeySettings) -> None:
        if settings.models and model not in settings.models:
            raise Forbidden(f"the key {self.name} may use {', '.join(settings.models)}, not {model}")
        if settings.concurrency is not None and self._running >= settings.concurrency:
            raise OverLimit(f"the key {self.name} has {self._running} requests running, its limit", _BUSY_S)
        if self._rate_per_s:
            now_s = self._clock()
            self._left = min(self._most, self._left + (now_s - self._filled_s) * self._rate_per_s)
            self._filled_s = now_s
            if self._left < 1:
                limit = f"{settings.requests_per_minute:g} requests a minute"
                raise OverLimit(f"the key {self.name} is over its {limit}", (1 - self._left) / self._rate_per_s)
            self._left -= 1


ANYONE = Caller("anyone", None)  # where there are no keys


class Keys:
    """The known keys."""

    def __init__(self, keys: dict[str, KeySettings], clock: Callable[[], float] = time.monotonic) -> None:
        self._callers: Sequence[tuple[bytes, Caller]] = [
            (settings.sha256.encode(), Caller(name, settings, clock)) for name, settings in keys.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._callers)

    def caller(self, authorization: str | None) -> Caller:
        """Whose `Bearer` key it is; raises Denied."""
        if not self._callers:
            return ANYONE
        kind, _, key = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not key.strip():
            raise Denied("a key is needed: Authorization: Bearer ts-...")
        digest = digest_of(key.strip()).encode()
        found = None
        for known, caller in self._callers:  # each is compared, so that the time says nothing
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise Denied("this key is not known here")
        return found
