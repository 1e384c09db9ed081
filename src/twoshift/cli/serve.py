"""`serve`: models behind a port, each inside its SLO."""

from __future__ import annotations

import logging
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import ERROR_FIELDS, MODELS, Device, Precision, Threads, TrustPickle
from twoshift.cli.output import note
from twoshift.cli.params import choice, factor, millis, text, usd, whole
from twoshift.cli.progress import Ongoing
from twoshift.errors import InvalidInput
from twoshift.extras import EXTRAS, needed
from twoshift.units import counted

if TYPE_CHECKING:
    from twoshift.fleet.scaler import Scaler
    from twoshift.serve.deployments import Deployment
    from twoshift.serve.derived import Derived
    from twoshift.serve.llm.derived import LlmDerived
    from twoshift.serve.settings import ServeSettings

__all__ = ["serve_command"]

_CURL = {
    "embedding": '/v1/embeddings -d \'{"model": "%s", "input": "a red fox"}\'',
    "score": '/v1/rerank -d \'{"model": "%s", "query": "a red fox", "documents": ["an old road"]}\'',
    "text": '/v1/chat/completions -d \'{"model": "%s", "messages": [{"role": "user", "content": "Hello"}]}\'',
}
_LEAST_S = 0.5  # for the models to go, whatever the jobs took


@command(app, "serve", "twoshift serve minilm --slo-ms 50 --port 8000", ERROR_FIELDS)
def serve_command(
    model: Annotated[
        str | None,
        typer.Argument(help=MODELS),
    ] = None,
    config: Annotated[str | None, text("TOML file with models, keys and limits.", metavar="FILE")] = None,
    slo_ms: Annotated[float | None, millis("Latency objective of a request.", shown="50")] = None,
    ttft_ms: Annotated[float | None, millis("Time to the first token of a language model.", shown="2000")] = None,
    tpot_ms: Annotated[float | None, millis("Time for each further token of a language model.", shown="100")] = None,
    name: Annotated[
        str | None, text("Name that clients use for the model.", metavar="NAME", shown="the file's name")
    ] = None,
    host: Annotated[str | None, text("Address to listen on.", shown="127.0.0.1")] = None,
    port: Annotated[
        int | None, whole("Port to listen on; 0 takes a free one.", least=0, most=65535, shown="8000")
    ] = None,
    grpc_port: Annotated[int | None, whole("Port for gRPC.", least=0, most=65535, shown="no gRPC")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Serve other machines without keys.")] = False,
    grace: Annotated[str | None, text("On SIGTERM, time for admitted requests to finish.", shown="30s")] = None,
    database: Annotated[
        str | None, text("URL of the job database: sqlite:///file or postgresql://...", shown="a file in TWOSHIFT_HOME")
    ] = None,
    price: Annotated[float | None, usd("Price of a device in dollars an hour, for `twoshift usage`.")] = None,
    otlp_endpoint: Annotated[
        str | None, text("OpenTelemetry endpoint for traces: http://collector:4318.", metavar="URL")
    ] = None,
    replicas: Annotated[
        int | None, whole("Replica processes; each has a GPU or a share of the cores.", most=1024, shown="1")
    ] = None,
    engine: Annotated[str | None, choice("Where replicas run.", ["local", "ray"], shown="local")] = None,
    address: Annotated[str | None, text("Ray cluster: auto or host:port.", shown="a local one")] = None,
    min_replicas: Annotated[int | None, whole("Fewest replicas, with --max-replicas.", most=1024, shown="1")] = None,
    max_replicas: Annotated[int | None, whole("Most replicas: scale them with live load.", most=1024)] = None,
    cooldown: Annotated[str | None, text("Keep a replica that was needed within this time.", shown="5m")] = None,
    scale_log: Annotated[
        str | None,
        text("Folder for the log of scaling decisions.", metavar="FOLDER", shown="a folder in TWOSHIFT_HOME"),
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Print a line for each request to stderr.")] = False,
    call_budget_ms: Annotated[
        float | None, millis("Longest call that carries batch rows.", shown="the knee of the curve")
    ] = None,
    live_slowdown: Annotated[
        float | None,
        factor("Most that a job may slow live requests down, on the average: 1.2 is 20 %.", shown="no bound"),
    ] = None,
    max_batch: Annotated[int | None, whole("Most rows of a call.", shown="derived from the SLO")] = None,
    max_waiting: Annotated[int | None, whole("Most rows that may wait.", shown="derived from the SLO")] = None,
    device: Device = "auto",
    precision: Precision = None,
    threads: Threads = None,
    trust_pickle: TrustPickle = False,
    load_timeout: Annotated[
        str | None, text("End where a model is not loaded within this time.", shown="10m", metavar="DURATION")
    ] = None,
) -> int:
    """Answer live requests inside an SLO, over OpenAI's API, the Open Inference Protocol and reranking."""
    for module in EXTRAS["serve"]:
        needed(module, "serve", "serve", "twoshift")
    of_server: dict[str, Any] = {
        "host": host, "port": port, "grpc_port": grpc_port, "open": open_ or None, "grace": grace,
        "database": database, "access_log": access_log or None, "scale_log": scale_log,
        "engine": engine, "address": address, "price_usd_per_hour": price,
        "otlp_endpoint": otlp_endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
    }  # fmt: skip
    of_model: dict[str, Any] = {
        "slo_ms": slo_ms, "ttft_ms": ttft_ms, "tpot_ms": tpot_ms,
        "call_budget_ms": call_budget_ms, "live_slowdown": live_slowdown,
        "max_batch": max_batch, "max_waiting": max_waiting,
        "device": None if device == "auto" else device, "precision": precision, "threads": threads,
        "trust_pickle": trust_pickle or None, "load_timeout": load_timeout, "replicas": replicas,
        "min_replicas": min_replicas, "max_replicas": max_replicas,
        "scale": None if cooldown is None else {"cooldown": cooldown},
    }  # fmt: skip
    return _serve(_settings(model, name, config, _given(of_server), _given(of_model)))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _settings(
    model: str | None, name: str | None, config: str | None, of_server: dict[str, Any], of_model: dict[str, Any]
) -> ServeSettings:
    from twoshift.serve.settings import make_settings, read_settings

    if config is not None:
        flags = [f"--{key.replace('_', '-')}" for key in of_model]
        if extra := ["MODEL"] * (model is not None) + ["--cooldown" if flag == "--scale" else flag for flag in flags]:
            raise InvalidInput(extra[0], model or next(iter(of_model.values())), f"a table in {config}, not an option")
        return read_settings(Path(config), of_server)
    if model is None:
        raise InvalidInput("MODEL", None, "a model, or --config FILE")
    called = name or _name_of(model)
    try:
        return make_settings({**of_server, "models": {called: {"model": model, **of_model}}})
    except InvalidInput as error:
        raise error.renamed(error.field.removeprefix(f"models.{called}.").removeprefix("scale.")) from None


def _name_of(model: str) -> str:
    """What clients say: the class, or the file's or folder's name."""
    last = model.rpartition(":")[2] if ".py:" in model else Path(model).expanduser().name or model
    return Path(last).stem if Path(last).suffix in (".onnx", ".json", ".ubj", ".skops", ".pkl", ".joblib") else last


def _serve(settings: ServeSettings) -> int:
    from twoshift.serve.deployments import Deployment, Deployments
    from twoshift.serve.keys import Keys
    from twoshift.serve.run import serve
    from twoshift.serve.service import Service, close_models
    from twoshift.serve.starting import Starting, check_address
    from twoshift.server_services import ledger_for, service_metrics, services_for
    from twoshift.wiring import check_named, live_model, scalers_for, scaling_metrics

    if settings.grpc_port is not None:
        needed("grpc", "grpc", f"{settings.grpc_port}", "grpc_port")
        needed("google.protobuf", "grpc", f"{settings.grpc_port}", "grpc_port")
        check_address(settings.host, settings.grpc_port, "grpc_port")  # now, not after a model has been loaded
    for name, each in settings.models.items() if settings.engine == "local" else ():
        try:
            check_named(each.model)  # all of them, before the first is loaded
        except InvalidInput as error:
            raise error.renamed(f"models.{name}.model" if len(settings.models) > 1 else error.field) from None
    if settings.access_log:
        _log_accesses(logging.DEBUG if settings.log_probes else logging.INFO)
    # One text is tokenised faster by the thread that has it than by a pool that is woken for it
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    deployments = Deployments()
    services = usage = None
    keys = Keys(settings.keys, tenants=settings.tenants)
    scalers: dict[str, Scaler] = {}
    left_s = settings.grace_s
    starting = Starting(settings.host, settings.port)
    try:
        note(f"Listening at http://{starting.address}; loading {', '.join(settings.models)}")
        for name in settings.models:
            starting.loading(name)
            with Ongoing() as ongoing:
                deployments.serve(deployments.add(Deployment(name)), live_model(name, settings, ongoing))
        starting.loading("the job database")
        service = Service(deployments)
        services = services_for(service.models, settings, keys, note)
        usage, tenant_metrics = ledger_for(service.models, settings, keys, services.jobs)
        usage.start()  # before the jobs: it knows what was spent today
        services.start()
        scalers = scalers_for(service.models, settings, services.jobs, note)
        metrics = [scaling_metrics(service.models, scalers, services.jobs), tenant_metrics, service_metrics(services)]
        for name, scaler in scalers.items():
            scaler.start(settings.models[name].scale.every_s)
        tell = partial(_tell, [*deployments.values()], bool(keys))
        left_s = serve(service, settings, tell, services, keys, usage, starting, metrics)
    finally:
        until_s = time.monotonic() + left_s
        starting.close()
        for scaler in scalers.values():
            scaler.close()
        ended = services is None or services.close(left_s)
        if usage is not None:
            usage.close()
        backends = [each.backend for each in deployments.values()]
        ended &= left_s > 0 and close_models(backends, max(_LEAST_S, until_s - time.monotonic()))
    return 0 if ended else _leave(settings)


def _log_accesses(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    access = logging.getLogger("twoshift.access")
    access.addHandler(handler)
    access.setLevel(level)
    access.propagate = False


def _leave(settings: ServeSettings) -> int:
    """Ends the process as it is: what does not come back would hold it for ever."""
    note(f"Not everything ended within {settings.grace}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _tell(models: list[Deployment], needs_key: bool, address: str, grpc_address: str | None) -> None:
    from twoshift.serve.llm.derived import LlmDerived

    for model in models:
        derived, info = model.derived, model.info
        note(f"{model.name} on {info.device} by {info.runtime} in {info.precision}")
        if isinstance(derived, LlmDerived):
            _tell_llm(derived)
            continue
        note(f"  SLO {1e3 * derived.slo_s:g} ms: up to {counted(derived.largest_live_rows, 'live row')} a call;")
        note(f"  {_beside_a_job(derived)};")
        admitted, capacity = counted(derived.admission_rows, "row"), f"{derived.capacity_rows_per_s:,.0f}"
        note(f"  {admitted} may wait and more are refused; {capacity} rows/s")
        if derived.threads is not None:
            note(f"  {derived.threads}")
        if derived.warning:
            note(f"  Warning: {derived.warning}.")
    if grpc_address is not None:
        note(f"gRPC at {grpc_address}")
    note(f"Ready at {address}")
    key = ' -H "Authorization: Bearer $KEY"' if needs_key else ""
    note(f"curl{key} {address}{_curl(models[0])}")


def _beside_a_job(derived: Derived) -> str:
    """How jobs run here, and what that costs live callers."""
    if not derived.background_share:
        return "rows of jobs do not run: live requests may not be slowed down at all"
    if not derived.background_call_s:
        return f"no call of {1e3 * derived.call_budget_s:.3g} ms has room for a row of a job"
    often = "" if derived.background_share == 1.0 else f", in {derived.background_share:.0%} of the time"
    call, most = (f"{1e3 * each:.3g}" for each in (derived.background_call_s, derived.call_budget_s))
    slower = f"live requests take about {derived.live_slowdown:.2g} x as long on the device"
    return f"a job's calls take {call} of at most {most} ms{often}: {slower}"


def _tell_llm(derived: LlmDerived) -> None:
    objective = f"{1e3 * derived.ttft_s:,.0f} ms to the first token, {1e3 * derived.tpot_s:,.0f} ms for each more"
    note(f"  {objective}: up to {derived.sequences:,} sequences a step, {derived.output_tokens_per_s:,.0f} tokens/s;")
    waiting, context = f"{derived.max_waiting:,}", f"{derived.context_tokens:,}"
    note(f"  {waiting} requests may wait and more are refused; {context} tokens of context")


def _curl(model: Deployment) -> str:
    outputs = model.info.outputs
    return next((curl % model.name for output, curl in _CURL.items() if output in outputs), f"/v2/models/{model.name}")
