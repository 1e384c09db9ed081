"""Who may ask, and how much: API keys, kept as digests."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from twoshift.errors import Denied, Forbidden, InvalidInput, OverLimit
from twoshift.serve.bucket import Bucket
from twoshift.serve.tenants import Tenant, TenantSettings

__all__ = ["ANYONE", "SCOPES", "Access", "Caller", "KeySettings", "Keys", "digest_of", "new_key", "tenant_of"]

_BUSY_S = 0.1
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Access(StrEnum):
    """What a route needs; the last three are the scopes of keys."""

    OPEN = "open"  # no key
    KEY = "key"  # any key
    SERVE = "serve"  # live endpoints
    BATCH = "batch"  # jobs and files
    ADMIN = "admin"  # everything of all tenants


SCOPES = (Access.SERVE, Access.BATCH, Access.ADMIN)


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
    scopes: tuple[str, ...] = (Access.SERVE, Access.BATCH)

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.sha256):
            raise InvalidInput("sha256", self.sha256, "64 hexadecimal digits, as `twoshift key` prints them")
        if self.requests_per_minute is not None and not 0 < self.requests_per_minute < 1e9:
            raise InvalidInput("requests_per_minute", self.requests_per_minute, "a number above 0")
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidInput("concurrency", self.concurrency, "a whole number of at least 1")
        if not self.scopes or not set(self.scopes) <= set(SCOPES):
            raise InvalidInput("scopes", list(self.scopes), f"some of {', '.join(SCOPES)}")


def tenant_of(name: str, settings: KeySettings) -> str:
    """Whose key it is: its tenant's, or one of its own name."""
    return settings.tenant or name


class Caller:
    """A key in use. Of one thread, as the server's loop is."""

    def __init__(
        self, name: str, settings: KeySettings | None, of: Tenant, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self._settings, self.of = name, settings, of
        self.tenant = of.name
        scopes = SCOPES if settings is None else settings.scopes
        self.is_admin = Access.ADMIN in scopes
        self._may = frozenset(Access if self.is_admin else (Access.OPEN, Access.KEY, *scopes))
        self._running = 0
        rate = None if settings is None else settings.requests_per_minute
        self._bucket = None if rate is None else Bucket(rate / 60, clock)

    @property
    def models(self) -> tuple[str, ...]:
        """That it may ask; none: all."""
        return self._settings.models if self._settings else ()

    def check(self, needs: Access) -> None:
        """Raises Forbidden where the key has not the scope."""
        if needs not in self._may:
            scopes = ", ".join(() if self._settings is None else self._settings.scopes)
            raise Forbidden(f"this needs a key with the scope {needs}; the key {self.name} has {scopes}")

    def check_model(self, model: str) -> None:
        """Raises Forbidden where the key is not for this model."""
        if self.models and model not in self.models:
            raise Forbidden(f"the key {self.name} may use {', '.join(self.models)}, not {model}")

    def enter(self, model: str, live: bool = True) -> None:
        """Begins a request; `leave` ends it. Raises Forbidden, OverLimit. Jobs wait where live requests are refused."""
        if self._settings is not None:
            self._take(model, self._settings, live)
        self._running += 1

    def leave(self) -> None:
        """Ends a request."""
        self._running -= 1

    def _take(self, model: str, settings: KeySettings, live: bool) -> None:
        self.check_model(model)
        if settings.concurrency is not None and self._running >= settings.concurrency:
            raise OverLimit(f"the key {self.name} has {self._running} requests running, its limit", _BUSY_S)
        if live:
            self.of.check_device()
        own, shared = self._bucket, self.of.bucket
        if own is not None and (wait_s := own.wait_s()):
            limit = f"{settings.requests_per_minute:g} requests a minute"
            raise OverLimit(f"the key {self.name} is over its {limit}", wait_s)
        if shared is not None:
            self.of.check_rate()
            shared.take()
        if own is not None:
            own.take()


ANYONE = Caller("anyone", None, Tenant("anyone"))  # where there are no keys


class Keys:
    """The known keys, and whose they are."""

    def __init__(
        self,
        keys: dict[str, KeySettings],
        clock: Callable[[], float] = time.monotonic,
        tenants: Mapping[str, TenantSettings] | None = None,
    ) -> None:
        names = sorted({tenant_of(name, each) for name, each in keys.items()})
        made = {name: Tenant(name, (tenants or {}).get(name), clock) for name in names}
        self.tenants = made or {ANYONE.tenant: ANYONE.of}
        self._callers: Sequence[tuple[bytes, Caller]] = [
            (settings.sha256.encode(), Caller(name, settings, made[tenant_of(name, settings)], clock))
            for name, settings in keys.items()
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
