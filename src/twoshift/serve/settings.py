"""What a server is asked to do, read once from flags or a file."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from twoshift.config import naming_file, read_toml, settings_of
from twoshift.errors import InvalidInput
from twoshift.serve.keys import KeySettings, tenant_of
from twoshift.serve.scale_settings import ScaleSettings
from twoshift.serve.tenants import TenantSettings
from twoshift.triggers.webhook_settings import WebhookSettings, check_webhook
from twoshift.units import parse_duration

__all__ = ["FileSettings", "ModelSettings", "ServeSettings", "make_settings", "read_settings"]

_LONGEST_NAME = 100
_SLO_MS = 50.0


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model. The objective is all that must be said; the last group overrides what follows from it."""

    model: str
    slo_ms: float | None = None  # of a request; 50 without it
    ttft_ms: float | None = None  # of a language model: to the first token
    tpot_ms: float | None = None  # and for each token after it
    device: str = "auto"
    precision: str | None = None
    threads: int | None = None
    trust_pickle: bool = False
    load_timeout: str = "10m"  # after which a process whose model is not loaded ends
    price_usd_per_hour: float | None = None  # of a device; None: the server's
    replicas: int = 1  # processes, a GPU each or a share of the cores; to begin with, where they are scaled
    min_replicas: int | None = None
    max_replicas: int | None = None
    scale: ScaleSettings = ScaleSettings()

    call_budget_ms: float | None = None
    live_slowdown: float | None = None  # mean live latency beside jobs over that without, at the most
    min_share: float = 0.0  # of the device, for jobs that would miss their window otherwise
    max_batch: int | None = None
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        for name in ("slo_ms", "ttft_ms", "tpot_ms", "call_budget_ms"):
            value = getattr(self, name)
            _require(value is None or (math.isfinite(value) and value > 0), name, value, "milliseconds above 0")
        _require(self.load_timeout_s > 0, "load_timeout", self.load_timeout, "a duration above 0, such as 10m")
        _require_price(self.price_usd_per_hour)
        for name in ("threads", "replicas", "min_replicas", "max_replicas", "max_batch", "max_waiting"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "a whole number of at least 1")
        slowdown = self.live_slowdown
        bounded = slowdown is None or (math.isfinite(slowdown) and slowdown >= 1)
        _require(bounded, "live_slowdown", slowdown, "a factor of at least 1, such as 1.2")
        _require(0 <= self.min_share <= 0.5, "min_share", self.min_share, "a share from 0 to 0.5")
        least, most = max(self.replicas, self.min_replicas or 1), self.max_replicas
        _require(most is None or most >= least, "max_replicas", most, f"at least {least}, the least number of replicas")
        bounded = self.min_replicas is None or most is not None
        _require(bounded, "min_replicas", self.min_replicas, "max_replicas as well")

    def check_rows(self) -> None:
        """Raises InvalidInput where something is said that only a language model has."""
        for name in ("ttft_ms", "tpot_ms"):
            accepted = f"slo_ms: {self.model} generates no tokens"
            _require(getattr(self, name) is None, name, getattr(self, name), accepted)

    def check_sequences(self) -> None:
        """Raises InvalidInput where something is said that a language model has not."""
        accepted = "ttft_ms and tpot_ms: a language model's answer takes as long as it has tokens"
        _require(self.slo_ms is None, "slo_ms", self.slo_ms, accepted)
        for name in ("call_budget_ms", "live_slowdown", "max_batch"):
            value = getattr(self, name)
            _require(value is None, name, value, "nothing here: a language model's steps follow from tpot_ms")
        one = self.first_replicas == 1 and not self.is_scaled
        _require(one, "replicas", self.first_replicas, "1: a language model is served by one process")

    @property
    def load_timeout_s(self) -> float:
        """For loading and warming up."""
        return parse_duration(self.load_timeout, "load_timeout")

    @property
    def slo_s(self) -> float:
        """Of a request."""
        return (_SLO_MS if self.slo_ms is None else self.slo_ms) / 1e3

    @property
    def ttft_s(self) -> float | None:
        """To a first token; None: what the device can keep."""
        return None if self.ttft_ms is None else self.ttft_ms / 1e3

    @property
    def tpot_s(self) -> float | None:
        """For each token after it; None: what the device can keep."""
        return None if self.tpot_ms is None else self.tpot_ms / 1e3

    @property
    def is_scaled(self) -> bool:
        """Whether the number of its replicas changes by itself."""
        return self.max_replicas is not None and (self.min_replicas is not None or self.max_replicas > self.replicas)

    @property
    def first_replicas(self) -> int:
        """How many it begins with."""
        return max(self.replicas, self.min_replicas or 1)


class FileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The files of batches."""

    location: str | None = None  # a folder or an s3:// prefix; None: a folder of this user's
    max_mb: float = 200.0  # of a file, in millions of bytes
    max_requests: int = 50_000  # of a batch
    retention: str = "30d"

    def __post_init__(self) -> None:
        _require(0 < self.max_mb <= 5000, "max_mb", self.max_mb, "a number above 0, up to 5000")
        _require(self.max_requests >= 1, "max_requests", self.max_requests, "a whole number of at least 1")
        _require(self.retention_s > 0, "retention", self.retention, "a time such as 30d")

    @property
    def retention_s(self) -> float:
        """After which a file goes, unless it says otherwise."""
        return parse_duration(self.retention, "retention")


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server: where it listens, what it serves, and to whom."""

    models: dict[str, ModelSettings]  # by the names that clients use
    keys: dict[str, KeySettings] = {}
    tenants: dict[str, TenantSettings] = {}  # of the keys; those that are not named have no limits
    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    grpc_port: int | None = None  # None: no gRPC; 0: a free one
    open: bool = False  # whether everybody who reaches it may ask
    grace: str = "30s"
    otlp_endpoint: str | None = None  # where traces go
    access_log: bool = False  # a line for each request
    log_probes: bool = False  # also for those of /healthz, /readyz and /metrics that succeed
    database: str | None = None  # which remembers jobs; None: a file of this user's
    engine: str = "local"  # where replicas run: processes of this machine, or Ray Serve
    address: str | None = None  # of the Ray cluster
    scale_log: str | None = None  # the folder of decision logs; None: one of this user's
    job_roots: tuple[str, ...] = ()  # folders and s3:// prefixes where jobs may read and write
    files: FileSettings = msgspec.field(default_factory=FileSettings)
    price_usd_per_hour: float | None = None  # of a device; None: usage has no dollars
    batch_price_share: float = 0.5  # of that price, for jobs
    webhooks: dict[str, WebhookSettings] = {}  # who is told when a job ends
    allow_private_webhooks: bool = False  # whether they may be of a private network, over plain HTTP, on any port
    max_body_mib: float = 64.0
    max_connections: int = 4096
    max_connections_per_address: int | None = None  # None: a quarter of them; this machine's and proxies' have no limit
    proxies: tuple[str, ...] = ()  # addresses that many clients share

    def __post_init__(self) -> None:
        _require(bool(self.models), "models", self.models, "at least one model")
        for name in ("port", "grpc_port"):
            value = getattr(self, name)
            _require(value is None or 0 <= value <= 65535, name, value, "a port from 0 to 65535")
        _require(0 < self.max_body_mib <= 4096, "max_body_mib", self.max_body_mib, "a number above 0, up to 4096")
        for name in ("max_connections", "max_connections_per_address"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "a whole number of at least 1")
        for proxy in self.proxies:
            _require(_is_address(proxy), "proxies", proxy, "IP addresses such as 10.0.0.1")
        for name, key in self.keys.items():
            for model in key.models:
                accepted = f"one of {', '.join(sorted(self.models))}"
                _require(model in self.models, f"keys.{name}.models", model, accepted)
        named = {tenant_of(name, key) for name, key in self.keys.items()}
        for name in self.tenants:
            accepted = f"one that a key has: {', '.join(sorted(named)) or 'there are no keys'}"
            _require(name in named, f"tenants.{name}", name, accepted)
        for name in named:
            _require(
                len(name) <= _LONGEST_NAME and name.isprintable(), "tenant", name, "up to 100 printable characters"
            )
        _require_price(self.price_usd_per_hour)
        share = self.batch_price_share
        _require(0 <= share <= 1, "batch_price_share", share, "a share from 0 to 1")
        for name, hook in self.webhooks.items():
            _named(f"webhooks.{name}", lambda hook=hook: check_webhook(hook, self.allow_private_webhooks))
        parse_duration(self.grace, "grace")
        _require(self.engine in ("local", "ray"), "engine", self.engine, "local or ray")
        _require(self.address is None or self.engine == "ray", "address", self.address, "engine = ray as well")
        if not (self.keys or self.open or _is_loopback(self.host)):
            accepted = "127.0.0.1, or keys (twoshift key), or --open where everybody who reaches it may ask"
            raise InvalidInput("host", self.host, accepted)

    @property
    def is_private(self) -> bool:
        """Whether only those who are on this machine anyway can ask, without a key."""
        return not self.keys and _is_loopback(self.host)

    def price_of(self, model: str) -> float | None:
        """Dollars for an hour of a device that serves it; None where nobody has said."""
        own = self.models[model].price_usd_per_hour
        return self.price_usd_per_hour if own is None else own

    @property
    def grace_s(self) -> float:
        """What was admitted may finish within this."""
        return parse_duration(self.grace, "grace")


def read_settings(path: Path, overrides: dict[str, Any]) -> ServeSettings:
    """A server's TOML file with the flags that were given put over it; raises InvalidInput that names the key."""
    data = read_toml(path, "--config")
    with naming_file(path, overrides):
        return make_settings({**data, **overrides})


def make_settings(data: dict[str, Any]) -> ServeSettings:
    """Settings from plain values; raises InvalidInput that names the key. A model is called like its table."""
    models = {name: _model_settings(name, each) for name, each in _tables(data, "models").items()}
    keys = {name: settings_of(KeySettings, each, f"keys.{name}") for name, each in _tables(data, "keys").items()}
    tenants = {
        name: settings_of(TenantSettings, each, f"tenants.{name}") for name, each in _tables(data, "tenants").items()
    }
    of_files = data.get("files", {})
    if not isinstance(of_files, dict):
        raise InvalidInput("files", of_files, "a table: [files]")
    files = settings_of(FileSettings, of_files, "files")
    webhooks = {
        name: settings_of(WebhookSettings, each, f"webhooks.{name}") for name, each in _tables(data, "webhooks").items()
    }
    parsed = {"models": models, "keys": keys, "tenants": tenants, "files": files, "webhooks": webhooks}
    return settings_of(ServeSettings, {**data, **parsed})


def _model_settings(name: str, data: dict[str, Any]) -> ModelSettings:
    given = {"model": name, **data}
    if isinstance(scale := given.get("scale"), dict):
        given["scale"] = settings_of(ScaleSettings, scale, f"models.{name}.scale")
    return settings_of(ModelSettings, given, f"models.{name}")


def _tables(data: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    tables = data.get(name, {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise InvalidInput(name, tables, f"tables such as [{name}.first]")
    return tables


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _require_price(price: float | None) -> None:
    is_price = price is None or (math.isfinite(price) and price >= 0)
    _require(is_price, "price_usd_per_hour", price, "dollars for an hour of a device, 0 or more")


def _named(where: str, check: Callable[[], None]) -> None:
    try:
        check()
    except InvalidInput as error:
        raise error.renamed(f"{where}.{error.field}") from None


def _require(holds: bool, field: str, value: object, accepted: str) -> None:
    if not holds:
        raise InvalidInput(field, value, accepted)
