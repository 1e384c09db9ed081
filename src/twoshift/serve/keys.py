"""Who may ask, and how much: API keys, kept as digests."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from twoshift.declare import check, key
from twoshift.errors import Denied, Forbidden, OverLimit
from twoshift.serve.bucket import Bucket
from twoshift.serve.limit_record import LimitRecord
from twoshift.serve.tenants import Tenant, TenantSettings
from twoshift.values import count, names, text, whole

if TYPE_CHECKING:
    from twoshift.serve.shared_limits import SharedLimits

__all__ = ["ANYONE", "SCOPES", "Access", "Caller", "KeySettings", "Keys", "digest_of", "new_key", "tenant_of"]

_BUSY_S = 0.1
_DIGEST = text(
    plain="64 hexadecimal digits, as `twoshift key` prints them",
    fits=lambda given: re.fullmatch(r"[0-9a-f]{64}", given) is not None,
)


class Access(StrEnum):
    """What a route needs; the last five are the scopes of keys."""

    OPEN = "open"  # no key
    KEY = "key"  # any key
    SERVE = "serve"  # live endpoints
    BATCH = "batch"  # jobs and files
    DEPLOY = "deploy"  # which version answers
    READ = "read"  # to look at what the tenant has, and change nothing
    ADMIN = "admin"  # everything of all tenants


SCOPES = (Access.SERVE, Access.BATCH, Access.DEPLOY, Access.READ, Access.ADMIN)
_SCOPES = names(f"one or several of {', '.join(SCOPES)}", lambda given: bool(given) and set(given) <= set(SCOPES))


def new_key() -> str:
    """One that nobody can guess."""
    return f"ts-{secrets.token_urlsafe(32)}"


def digest_of(key: str) -> str:
    """What is stored of a key. It is random and long, so a plain digest is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class KeySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key, as a configuration has it."""

    sha256: Annotated[str, key("SHA-256 digest of the API key.", _DIGEST)]
    tenant: Annotated[
        str,
        key(
            "Tenant of the key; the key sees the files and jobs of this tenant.",
            shown="a tenant with the name of the key",
        ),
    ] = ""
    requests_per_minute: Annotated[
        float | None, key("Maximum number of requests per minute.", count(most=1e9), shown="no limit")
    ] = None
    concurrency: Annotated[int | None, key("Maximum number of concurrent requests.", whole(), shown="no limit")] = None
    models: Annotated[tuple[str, ...], key("Models that the key may use.", names(), shown="all")] = ()
    scopes: Annotated[
        tuple[str, ...], key("Operations that the key may use: `serve`, `batch`, `deploy`, `read`, `admin`.", _SCOPES)
    ] = (
        Access.SERVE,
        Access.BATCH,
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def is_limited(self) -> bool:
        """Whether there is something to count for it with each request."""
        return self.requests_per_minute is not None or self.concurrency is not None


def tenant_of(name: str, settings: KeySettings) -> str:
    """Whose key it is: its tenant's, or one of its own name."""
    return settings.tenant or name


class Caller:
    """A key in use. Of one thread, as the server's loop is."""

    def __init__(
        self,
        name: str,
        settings: KeySettings | None,
        of: Tenant,
        clock: Callable[[], float] = time.monotonic,
        shared: SharedLimits | None = None,  # by which other processes know what was taken
    ) -> None:
        self.name, self._settings, self.of = name, settings, of
        self.tenant = of.name
        scopes = SCOPES if settings is None else settings.scopes
        self.is_admin = Access.ADMIN in scopes
        self._may = frozenset(Access if self.is_admin else (Access.OPEN, Access.KEY, *scopes))
        is_limited = settings is not None and settings.is_limited
        self._record = shared.key(name) if shared is not None and is_limited else LimitRecord()
        rate = None if settings is None else settings.requests_per_minute
        self._bucket = None if rate is None else Bucket(rate / 60, clock, self._record.bucket)
        self._most_running = None if settings is None else settings.concurrency
        held = [*([of.record] if of.bucket is not None else []), *([self._record] if is_limited else [])]
        self._guard = None if shared is None or not held else shared.guard(*held)

    @property
    def models(self) -> tuple[str, ...]:
        """That it may ask; none: all."""
        return self._settings.models if self._settings else ()

    def may(self, needs: Access, reads: bool = False) -> bool:
        """Whether the key has the scope; to look at jobs, `read` is enough."""
        return needs in self._may or (reads and needs is Access.BATCH and Access.READ in self._may)

    def check(self, needs: Access, reads: bool = False) -> None:
        """Raises Forbidden where the key has not the scope."""
        if not self.may(needs, reads):
            scopes = ", ".join(() if self._settings is None else self._settings.scopes)
            raise Forbidden(f"this needs a key with the scope {needs}; the key {self.name} has only {scopes}")

    def check_model(self, model: str) -> None:
        """Raises Forbidden where the key is not for this model."""
        if self.models and model not in self.models:
            raise Forbidden(f"the key {self.name} may use {', '.join(self.models)}, not {model}")

    def enter(self, model: str, live: bool = True) -> None:
        """Begins a request; `leave` ends it. Raises Forbidden, OverLimit. Jobs wait where live requests are refused."""
        if self._settings is None:
            return
        self.check_model(model)
        if self._guard is None:
            self._take(self._settings, live)
        else:
            with self._guard:
                self._take(self._settings, live)

    def leave(self) -> None:
        """Ends a request."""
        if self._most_running is not None:
            self._record.running[self._record.process] -= 1  # no other process writes it

    def _take(self, settings: KeySettings, live: bool) -> None:
        most, running = self._most_running, self._record.running
        if most is not None and sum(running) >= most:
            raise OverLimit(f"the key {self.name} has reached its limit of {most} concurrent requests", _BUSY_S)
        if live:
            self.of.check_device()
        own, shared = self._bucket, self.of.bucket
        if own is not None and (wait_s := own.wait_s()):
            limit = f"{settings.requests_per_minute:g} requests per minute"
            raise OverLimit(f"the key {self.name} is over its limit of {limit}", wait_s)
        if shared is not None:
            self.of.check_rate()
            shared.take()
        if own is not None:
            own.take()
        if most is not None:
            running[self._record.process] += 1


ANYONE = Caller("anyone", None, Tenant("anyone"))  # where there are no keys


class Keys:
    """The known keys, and whose they are."""

    def __init__(
        self,
        keys: dict[str, KeySettings],
        clock: Callable[[], float] = time.monotonic,
        tenants: Mapping[str, TenantSettings] | None = None,
        shared: SharedLimits | None = None,  # None: this process has all requests
    ) -> None:
        names = sorted({tenant_of(name, each) for name, each in keys.items()})
        made = {name: _tenant(name, (tenants or {}).get(name), clock, shared) for name in names}
        self.tenants = made or {ANYONE.tenant: ANYONE.of}
        self._callers: Sequence[tuple[bytes, Caller]] = [
            (settings.sha256.encode(), Caller(name, settings, made[tenant_of(name, settings)], clock, shared))
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
            raise Denied("an API key is required; send the header `Authorization: Bearer ts-...`")
        digest = digest_of(key.strip()).encode()
        found = None
        for known, caller in self._callers:  # each is compared, so that the time says nothing
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise Denied("this server does not know the API key of the request")
        return found


def _tenant(
    name: str, settings: TenantSettings | None, clock: Callable[[], float], shared: SharedLimits | None
) -> Tenant:
    is_limited = settings is not None and settings.is_limited
    return Tenant(name, settings, clock, record=shared.tenant(name) if shared is not None and is_limited else None)
