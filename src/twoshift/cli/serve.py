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
from twoshift.cli.params import choice, millis, text, usd, whole
from twoshift.cli.progress import Ongoing
from twoshift.errors import InvalidInput
from twoshift.extras import EXTRAS, needed

if TYPE_CHECKING:
    from twoshift.fleet.scaler import Scaler
    from twoshift.serve.live_model import LiveModel
    from twoshift.serve.llm.derived import LlmDerived
    from twoshift.serve.settings import ServeSettings

__all__ = ["serve_command"]

_CURL = {
    "embedding": '/v1/embeddings -d \'{"model": "%s", "input": "a red fox"}\'',
    "score": '/v1/rerank -d \'{"model": "%s", "query": "a red fox", "documents": ["an old road"]}\'',
    "text": '/v1/chat/completions -d \'{"model": "%s", "messages": [{"role": "user", "content": "Hello"}]}\'',
}
_LEAST_S = 0.5  # for the models to go, whatever the jobs took
_PORT, _GRPC = "The port to listen on; 8000 without it, 0 takes a free one.", "The port for gRPC; none without it."


@command(app, "serve", "twoshift serve minilm --slo-ms 50 --port 8000", ERROR_FIELDS)
def serve_command(
    model: Annotated[
        str | None,
        typer.Argument(help=MODELS),
    ] = None,
    config: Annotated[str | None, text("A TOML file with models, keys and limits.", metavar="FILE")] = None,
    slo_ms: Annotated[float | None, millis("The latency objective of a request; 50 without it.")] = None,
    ttft_ms: Annotated[float | None, millis("Of a language model: to the first token; 2000.")] = None,
    tpot_ms: Annotated[float | None, millis("Of a language model: for each token after it; 100.")] = None,
    name: Annotated[str | None, text("What clients call it; its file's name without it.", metavar="NAME")] = None,
    host: Annotated[str | None, text("The address to listen on; 127.0.0.1 without it.")] = None,
    port: Annotated[int | None, whole(_PORT, least=0, most=65535)] = None,
    grpc_port: Annotated[int | None, whole(_GRPC, least=0, most=65535)] = None,
    open_: Annotated[bool, typer.Option("--open", help="Serve beyond this machine without keys.")] = False,
    grace: Annotated[str | None, text("What was admitted may finish within this on SIGTERM; 30s.")] = None,
    database: Annotated[str | None, text("Which remembers jobs: sqlite:///file or postgresql://...")] = None,
    price: Annotated[float | None, usd("Dollars an hour of a device; usage has none without it.")] = None,
    otlp_endpoint: Annotated[str | None, text("Where traces go: http://collector:4318.", metavar="URL")] = None,
    replicas: Annotated[int | None, whole("Processes, a GPU or a share of the cores each; 1.", most=1024)] = None,
    engine: Annotated[str | None, choice("Where replicas run; local without it.", ["local", "ray"])] = None,
    address: Annotated[str | None, text("The Ray cluster: auto or host:port; a local one without it.")] = None,
    min_replicas: Annotated[int | None, whole("The least, where they are scaled; 1.", most=1024)] = None,
    max_replicas: Annotated[int | None, whole("The most: they are scaled by live load.", most=1024)] = None,
    cooldown: Annotated[str | None, text("A replica that was needed within this stays; 5m.")] = None,
    scale_log: Annotated[str | None, text("Where scaling decisions are logged.", metavar="FOLDER")] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="A line for each request, on stderr.")] = False,
    call_budget_ms: Annotated[float | None, millis("Instead of what follows from the SLO.")] = None,
    max_batch: Annotated[int | None, whole("Rows of a call, instead of what follows from the SLO.")] = None,
    max_waiting: Annotated[int | None, whole("Rows that may wait, instead of what follows from the SLO.")] = None,
    device: Device = "auto",
    precision: Precision = None,
    threads: Threads = None,
    trust_pickle: TrustPickle = False,
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
        "call_budget_ms": call_budget_ms, "max_batch": max_batch, "max_waiting": max_waiting,
        "device": None if device == "auto" else device, "precision": precision, "threads": threads,
        "trust_pickle": trust_pickle or None, "replicas": replicas, "min_replicas": min_replicas,
        "max_replicas": max_replicas, "scale": None if cooldown is None else {"cooldown": cooldown},
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
    from twoshift.desks import desk_metrics, desks_for, ledger_for
    from twoshift.serve.keys import Keys
    from twoshift.serve.run import serve
    from twoshift.serve.service import Service, close_models
    from twoshift.serve.starting import Starting, check_address
    from twoshift.wiring import live_model, scalers_for, scaling_metrics

    if settings.grpc_port is not None:
        needed("grpc", "grpc", f"{settings.grpc_port}", "grpc_port")
        needed("google.protobuf", "grpc", f"{settings.grpc_port}", "grpc_port")
        check_address(settings.host, settings.grpc_port, "grpc_port")  # now, not after a model has been loaded
    if settings.access_log:
        _log_accesses(logging.DEBUG if settings.log_probes else logging.INFO)
    # One text is tokenised faster by the thread that has it than by a pool that is woken for it
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    models: list[LiveModel] = []
    desks = usage = None
    keys = Keys(settings.keys, tenants=settings.tenants)
    scalers: dict[str, Scaler] = {}
    left_s = settings.grace_s
    starting = Starting(settings.host, settings.port)
    try:
        note(f"Listening at http://{starting.address}; loading {', '.join(settings.models)}")
        for name in settings.models:
            starting.loading(name)
            with Ongoing() as ongoing:
                models.append(live_model(name, settings, int(time.time()), ongoing))
        starting.loading("the job database")
        service = Service(models)
        desks = desks_for(service.models, settings, keys, note)
        usage, tenant_metrics = ledger_for(service.models, settings, keys, desks.jobs)
        usage.start()  # before the jobs: it knows what was spent today
        desks.start()
        scalers = scalers_for(service.models, settings, desks.jobs, note)
        metrics = [scaling_metrics(service.models, scalers, desks.jobs), tenant_metrics, desk_metrics(desks)]
        for name, scaler in scalers.items():
            scaler.start(settings.models[name].scale.every_s)
        tell = partial(_tell, models, bool(keys))
        left_s = serve(service, settings, tell, desks, keys, usage, starting, metrics)
    finally:
        until_s = time.monotonic() + left_s
        starting.close()
        for scaler in scalers.values():
            scaler.close()
        ended = desks is None or desks.close(left_s)
        if usage is not None:
            usage.close()
        ended &= left_s > 0 and close_models(models, max(_LEAST_S, until_s - time.monotonic()))
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


def _tell(models: list[LiveModel], needs_key: bool, address: str, grpc_address: str | None) -> None:
    from twoshift.serve.llm.derived import LlmDerived

    for model in models:
        derived, info = model.derived, model.info
        note(f"{model.name} on {info.device} by {info.runtime} in {info.precision}")
        if isinstance(derived, LlmDerived):
            _tell_llm(derived)
            continue
        budget, rows = f"{1e3 * derived.call_budget_s:.3g} ms", f"{derived.largest_live_rows:,}"
        note(f"  SLO {1e3 * derived.slo_s:g} ms: up to {rows} live rows a call; {budget} for one with background rows;")
        admitted, capacity = f"{derived.admission_rows:,}", f"{derived.capacity_rows_per_s:,.0f}"
        note(f"  {admitted} rows may wait and more are refused; {capacity} rows/s")
    if grpc_address is not None:
        note(f"gRPC at {grpc_address}")
    note(f"Ready at {address}")
    key = ' -H "Authorization: Bearer $KEY"' if needs_key else ""
    note(f"curl{key} {address}{_curl(models[0])}")


def _tell_llm(derived: LlmDerived) -> None:
    objective = f"{1e3 * derived.ttft_s:,.0f} ms to the first token, {1e3 * derived.tpot_s:,.0f} ms for each more"
    note(f"  {objective}: up to {derived.sequences:,} sequences a step, {derived.output_tokens_per_s:,.0f} tokens/s;")
    waiting, context = f"{derived.max_waiting:,}", f"{derived.context_tokens:,}"
    note(f"  {waiting} requests may wait and more are refused; {context} tokens of context")


def _curl(model: LiveModel) -> str:
    outputs = model.info.outputs
    return next((curl % model.name for output, curl in _CURL.items() if output in outputs), f"/v2/models/{model.name}")
