"""Settings of a server, from options or a file."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from twoshift.config import naming_file, read_toml
from twoshift.declare import check, key, setting, settings_of
from twoshift.decodable import decodable
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.loading_settings import RegistryLocation
from twoshift.logs import LogFormat
from twoshift.serve.console_settings import ConsoleHosts, HasConsole
from twoshift.serve.keys import KeySettings, tenant_of
from twoshift.serve.model_settings import ModelSettings, check_names
from twoshift.serve.tenants import TenantSettings
from twoshift.serve.tls_settings import TlsCert, TlsKey, check_tls
from twoshift.triggers.webhook_settings import WebhookSettings, check_webhook
from twoshift.units import parse_duration
from twoshift.values import FLAG, choice, count, names, share, span, text, usd, whole

__all__ = ["FileSettings", "ServeSettings", "make_settings", "read_settings"]

_LONGEST_TENANT = 100
_IN_HOME = "in TWOSHIFT_HOME"
_PER_ADDRESS = (
    "Maximum number of connections per client address. There is no limit for the server's own machine and for the "
    "addresses in `proxies`."
)
_A_QUARTER = "a quarter of `max_connections`"


class FileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Storage of batch files."""

    location: Annotated[
        str | None,
        key(
            "Where uploaded files and result files are stored: a folder, or an s3://, gs:// or az:// prefix.",
            shown=f"a folder {_IN_HOME}",
        ),
    ] = None
    max_mb: Annotated[float, key("Maximum size of a file in MB (millions of bytes).", count(most=5000))] = 200.0
    max_requests: Annotated[int, key("Maximum number of requests in a batch.", whole())] = 50_000
    retention: Annotated[
        str, key("Delete a file after this time, unless its upload request sets another time.", span())
    ] = "30d"

    def __post_init__(self) -> None:
        check(self)

    @property
    def retention_s(self) -> float:
        """Lifetime of a file, unless the file has its own."""
        return parse_duration(self.retention, "retention")


@decodable
class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a server: address, models, keys and limits."""

    models: Annotated[dict[str, ModelSettings], key("Models, by the name that clients use.")]
    keys: Annotated[dict[str, KeySettings], key("API keys, by name.")] = {}
    tenants: Annotated[
        dict[str, TenantSettings],
        key("Limits of each tenant, by the name of the tenant. A tenant without an entry has the default limits."),
    ] = {}
    webhooks: Annotated[dict[str, WebhookSettings], key("Webhooks to call when a job, a batch or a rollout ends.")] = {}
    files: Annotated[FileSettings, key("Settings for the storage of batch files.")] = msgspec.field(
        default_factory=FileSettings
    )
    host: Annotated[str, setting("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, setting("Port to listen on; 0 picks a free port.", whole(0, 65535))] = 8000
    grpc_port: Annotated[int | None, setting("Port for gRPC.", whole(0, 65535), shown="no gRPC")] = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None
    open: Annotated[
        bool, setting("Accept requests from other machines even if the server has no API keys.", FLAG, "--open")
    ] = False
    grace: Annotated[str, setting("Time that admitted requests get to finish after SIGTERM.", span(zero=True))] = "30s"
    database: Annotated[
        str | None, setting("URL of the job database: sqlite:///file or postgresql://...", shown=f"a file {_IN_HOME}")
    ] = None
    price_usd_per_hour: Annotated[
        float | None,
        setting("Price of one device in dollars per hour, for `twoshift usage`.", usd(zero=True), "--price"),
    ] = None
    batch_price_share: Annotated[
        float,
        key("Price of device time for jobs, batches and streams, as a share of the price for live requests.", share()),
    ] = 0.5
    otlp_endpoint: Annotated[
        str | None, setting("OpenTelemetry (OTLP) endpoint for traces: http://collector:4318.", text("URL"))
    ] = None
    engine: Annotated[
        str, setting("Where the replicas run: as local processes or on Ray Serve.", choice(("local", "ray")))
    ] = "local"
    fronts: Annotated[
        int | None,
        setting(
            "Number of front-end processes that accept live requests.",
            whole(most=64),
            shown="1 with fewer than 8 cores, otherwise as many as keep the devices busy",
            more="See [front-end processes](serving.md#front-end-processes).",
        ),
    ] = None
    address: Annotated[
        str | None, setting("Address of the Ray cluster: auto or host:port.", shown="a local Ray cluster")
    ] = None
    registry: RegistryLocation = None
    scale_log: Annotated[
        str | None, setting("Folder for the autoscaler's decision log.", text("FOLDER"), shown=f"a folder {_IN_HOME}")
    ] = None
    access_log: Annotated[bool, setting("Write one log line per request to stderr.", FLAG, "--access-log")] = False
    log_format: LogFormat = "text"
    log_probes: Annotated[
        bool, key("With `access_log`: also log successful health checks and metric scrapes.", FLAG)
    ] = False
    job_roots: Annotated[
        tuple[str, ...],
        key(
            "Folders, s3://, gs:// or az:// prefixes, brokers and databases that jobs and streams may use.",
            names(),
            shown="all, if the server listens on 127.0.0.1 without API keys; otherwise none",
        ),
    ] = ()
    allow_private_webhooks: Annotated[
        bool, key("Allow webhooks in private networks, over plain HTTP and on any port.", FLAG)
    ] = False
    console: HasConsole = True
    console_hosts: ConsoleHosts = ()
    max_body_mib: Annotated[float, key("Maximum size of a request body in MiB.", count(most=4096))] = 64.0
    max_connections: Annotated[int, key("Maximum number of open connections.", whole())] = 4096
    max_connections_per_address: Annotated[int | None, key(_PER_ADDRESS, whole(), _A_QUARTER)] = None
    proxies: Annotated[
        tuple[str, ...],
        key("IP addresses of reverse proxies; `max_connections_per_address` does not apply to them.", names()),
    ] = ()

    def __post_init__(self) -> None:
        check(self)
        check_tls(self)
        _require(bool(self.models), "models", self.models, "at least one model")
        for proxy in self.proxies:
            _require(_is_address(proxy), "proxies", proxy, "an IP address such as 10.0.0.1")
        check_names(self.models)
        known = {*self.models, *(name for each in self.models.values() for name in each.adapters)}
        for name, its_key in self.keys.items():
            for model in its_key.models:
                _require(
                    model in known, f"keys.{name}.models", model, f"one of these models: {', '.join(sorted(known))}"
                )
        named = {tenant_of(name, its_key) for name, its_key in self.keys.items()}
        for name in self.tenants:
            accepted = f"the tenant of a key: {', '.join(sorted(named)) or 'there are no keys'}"
            _require(name in named, f"tenants.{name}", name, accepted)
        for name in named:
            is_fine = len(name) <= _LONGEST_TENANT and name.isprintable()
            _require(is_fine, "tenant", name, "a name of up to 100 printable characters")
        for name, hook in self.webhooks.items():
            _named(f"webhooks.{name}", lambda hook=hook: check_webhook(hook, self.allow_private_webhooks))
        accepted = "1, because engine = ray uses a single front-end process"
        _require(self.engine == "local" or self.fronts in (None, 1), "fronts", self.fronts, accepted)
        if any(each.min_replicas == 0 for each in self.models.values()):
            accepted = "at least 1 with engine = ray, which always keeps one replica"
            _require(self.engine == "local", "min_replicas", 0, accepted)
            accepted = "1: front-end processes cannot wake a model with min_replicas = 0"
            _require(self.fronts in (None, 1), "fronts", self.fronts, accepted)
        if self.address is not None and self.engine != "ray":
            raise Inapplicable("address", self.address, "without engine = ray")
        if not (self.keys or self.open or _is_loopback(self.host)):
            accepted = "127.0.0.1, or API keys (`twoshift key`), or --open to let everyone on the network send requests"
            raise InvalidInput("host", self.host, accepted)

    @property
    def is_private(self) -> bool:
        """Whether only users of this machine can send requests without a key."""
        return not self.keys and _is_loopback(self.host)

    def price_of(self, model: str) -> float | None:
        """Price per hour of a device that serves this model, in dollars; None if not set."""
        own = self.models[model].price_usd_per_hour
        return self.price_usd_per_hour if own is None else own

    @property
    def grace_s(self) -> float:
        """Time in which admitted requests may finish at shutdown."""
        return parse_duration(self.grace, "grace")


def read_settings(path: Path, overrides: dict[str, Any]) -> ServeSettings:
    """Settings from a server's TOML file, overridden by the given options; raises InvalidInput that names the key."""
    data = read_toml(path, "--config")
    with naming_file(path, overrides):
        return make_settings({**data, **overrides})


def make_settings(data: dict[str, Any]) -> ServeSettings:
    """Settings from plain values; raises InvalidInput that names the key. A model is called like its table."""
    models = data.get("models", {})
    if isinstance(models, dict):
        named = {name: {"model": name, **each} if isinstance(each, dict) else each for name, each in models.items()}
        data = {**data, "models": named}
    return settings_of(ServeSettings, data)


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


def _named(where: str, check: Callable[[], None]) -> None:
    try:
        check()
    except InvalidInput as error:
        raise error.renamed(f"{where}.{error.field}") from None


def _require(holds: bool, field: str, value: object, accepted: str) -> None:
    if not holds:
        raise InvalidInput(field, value, accepted)
