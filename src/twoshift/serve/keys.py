"""Who may ask, and how much: API keys, kept as digests."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from twoshift.declare import check, key
from twoshift.errors import Denied, Forbidden, OverLimit
from twoshift.serve.bucket import Bucket
from twoshift.serve.tenants import Tenant, TenantSettings
from twoshift.values import count, names, text, whole

__all__ = ["ANYONE", "SCOPES", "Access", "Caller", "KeySettings", "Keys", "digest_of", "new_key", "tenant_of"]

_BUSY_S = 0.1
_DIGEST = text(
    plain="64 hexadecimal digits, as `twoshift key` prints them",
    fits=lambda given: re.fullmatch(r"[0-9a-f]{64}", given) is not None,
)


class Access(StrEnum):
    """What a route needs; the last three are the scopes of keys."""

    OPEN = "open"  # no key
    KEY = "key"  # any key
    SERVE = "serve"  # live endpoints
    BATCH = "batch"  # jobs and files
    ADMIN = "admin"  # everything of all tenants


SCOPES = (Access.SERVE, Access.BATCH, Access.ADMIN)
_SCOPES = names(f"some of {', '.join(SCOPES)}", lambda given: bool(given) and set(given) <= set(SCOPES))


def new_key() -> str:
    """One that nobody can guess."""
    return f"ts-{secrets.token_urlsafe(32)}"


def digest_of(key: str) -> str:
    """What is stored of a key. It is random and long, so a plain digest is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class KeySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key, as a configuration has it."""

    sha256: Annotated[str, key("Digest of the key.", _DIGEST)]
    tenant: Annotated[str, key("Tenant whose files and jobs the key may see.", shown="one of the key's own")] = ""
    requests_per_minute: Annotated[float | None, key("Most requests a minute.", count(most=1e9), shown="no limit")] = (
        None
    )
    concurrency: Annotated[int | None, key("Most requests at the same time.", whole(), shown="no limit")] = None
    models: Annotated[tuple[str, ...], key("Models that the key may use.", names(), shown="all")] = ()
    scopes: Annotated[tuple[str, ...], key("What the key may do.", _SCOPES)] = (
        Access.SERVE,
        Access.BATCH,
    )

    def __post_init__(self) -> None:
        check(self)


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
            raise Denied("an API key is required: Authorization: Bearer ts-...")
        digest = digest_of(key.strip()).encode()
        found = None
        for known, caller in self._callers:  # each is compared, so that the time says nothing
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise Denied("unknown API key")
        return found
