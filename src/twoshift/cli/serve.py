"""`serve`: models behind a port, each inside its SLO."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import MODELS
from twoshift.cli.output import note
from twoshift.cli.params import flags_of, given_of, text, with_settings
from twoshift.cli.progress import Ongoing
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.extras import EXTRAS, needed
from twoshift.logs import log_as
from twoshift.serve.model_settings import ModelSettings, name_of
from twoshift.serve.scale_settings import ScaleSettings
from twoshift.serve.settings import ServeSettings, make_settings, read_settings
from twoshift.units import counted

if TYPE_CHECKING:
    from twoshift.serve.deployments import Deployment
    from twoshift.serve.derived import Derived
    from twoshift.serve.llm_derived import LlmDerived
    from twoshift.server import Server

__all__ = ["serve_command"]

_CURL = {
    "embedding": '/v1/embeddings -d \'{"model": "%s", "input": "a red fox"}\'',
    "score": '/v1/rerank -d \'{"model": "%s", "query": "a red fox", "documents": ["an old road"]}\'',
    "text": '/v1/chat/completions -d \'{"model": "%s", "messages": [{"role": "user", "content": "Hello"}]}\'',
}
_SETTINGS = (ModelSettings, ScaleSettings, ServeSettings)


@command(app, "serve", "twoshift serve minilm --slo-ms 50 --port 8000", flags_of(*_SETTINGS))
@with_settings(*_SETTINGS)
def serve_command(
    model: Annotated[str | None, typer.Argument(help=MODELS)] = None,
    config: Annotated[
        str | None, text("TOML configuration file with models, API keys and limits.", metavar="FILE")
    ] = None,
    name: Annotated[
        str | None,
        text(
            "Name that clients use for the model.",
            metavar="NAME",
            shown="the name of the class, file, folder or registered model",
        ),
    ] = None,
    **given: Any,
) -> int:
    """Serve models within a latency SLO, over OpenAI's API, the Open Inference Protocol and rerank APIs."""
    for module in EXTRAS["serve"]:
        needed(module, "serve", "serve", "twoshift")
    of_model, of_scale, of_server = (given_of(kind, given) for kind in _SETTINGS)
    if (endpoint := os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")) and not of_server.get("otlp_endpoint"):
        of_server["otlp_endpoint"] = endpoint
    of_model |= {"scale": of_scale} if of_scale else {}
    reread = None if config is None else partial(_settings, model, name, config, of_server, {})
    return _serve(_settings(model, name, config, of_server, of_model), reread)


def _settings(
    model: str | None, name: str | None, config: str | None, of_server: dict[str, Any], of_model: dict[str, Any]
) -> ServeSettings:
    if config is not None:
        if said := ({} if model is None else {"model": model}) | of_model.pop("scale", {}) | of_model:
            key, value = next(iter(said.items()))
            raise Inapplicable(key, value, f"with --config; set this value in the table [models.NAME] of {config}")
        return read_settings(Path(config), of_server)
    if model is None:
        raise InvalidInput("MODEL", None, "a model, or --config FILE")
    called = name or name_of(model)
    try:
        return make_settings({**of_server, "models": {called: {"model": model, **of_model}}})
    except InvalidInput as error:
        raise error.renamed(error.field.removeprefix(f"models.{called}.").removeprefix("scale.")) from None


def _serve(settings: ServeSettings, reread: Callable[[], ServeSettings] | None) -> int:
    from twoshift.runtime.load_limit import is_loading
    from twoshift.server import Server

    log_as(settings.log_format)
    server = Server(settings, note=note, progress=Ongoing, reread=reread)
    ended = server.run(partial(_tell, server, bool(settings.keys)))
    if not ended:
        note(f"Some requests or processes did not end within the grace period of {settings.grace}.")
        _leave(1)
    if is_loading():
        _leave(0)
    return 0


def _leave(code: int) -> NoReturn:
    """Ends the process as it is: what does not come back would hold it for ever."""
    from twoshift.fleet.live_folder import LiveFolder

    LiveFolder.remove_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(server: Server, needs_key: bool) -> None:
    from twoshift.serve.llm_derived import LlmDerived

    address, models = server.address, [*server.deployments.values()]
    for model in models:
        derived, info = model.derived, model.info
        note(f"{model.name} (runtime {info.runtime}, precision {info.precision}) on {info.device}")
        if isinstance(derived, LlmDerived):
            _tell_llm(derived)
            continue
        note(f"  SLO {1e3 * derived.slo_s:g} ms: up to {counted(derived.largest_live_rows, 'live row')} per call;")
        note(f"  {_beside_a_job(derived)};")
        admitted, capacity = counted(derived.admission_rows, "row"), f"{derived.capacity_rows_per_s:,.0f} rows/s"
        note(f"  {admitted} may wait in the queue, and further rows are refused;")
        note(f"  capacity of the device: {capacity}")
        if derived.threads is not None:
            note(f"  {derived.threads}")
        if derived.warning:
            note(f"  Warning: {derived.warning}.")
    if server.grpc_address is not None:
        note(f"gRPC at {server.grpc_address}")
    if server.front_processes:
        note(f"{server.front_processes} front-end processes accept live requests")
    note(f"Ready at {address}")
    key = ' -H "Authorization: Bearer $KEY"' if needs_key else ""
    note(f"curl{key} {address}{_curl(models[0])}")


def _beside_a_job(derived: Derived) -> str:
    """How jobs run here, and what that costs live callers."""
    if not derived.background_share:
        return "batch rows run only in the free capacity of live calls, because live requests may not be slowed down"
    if not derived.background_call_s:
        budget = f"{1e3 * derived.call_budget_s:.3g} ms"
        return f"jobs cannot run, because a call with one row takes longer than the call budget of {budget}"
    often = "" if derived.background_share == 1.0 else f" and run at most {derived.background_share:.0%} of the time"
    call, most = (f"{1e3 * each:.3g}" for each in (derived.background_call_s, derived.call_budget_s))
    slower = f"live requests take about {derived.live_slowdown:.2g} times as long on the device"
    return f"calls with batch rows take {call} ms (limit {most} ms){often}; beside a job, {slower}"


def _tell_llm(derived: LlmDerived) -> None:
    objective = f"{1e3 * derived.ttft_s:,.0f} ms to the first token, {1e3 * derived.tpot_s:,.0f} ms per further token"
    note(f"  objectives: {objective}; up to {derived.sequences:,} sequences per step;")
    rate, streamed = (f"{each:,.0f}" for each in (derived.output_tokens_per_s, derived.streamed_tokens_per_s))
    asked, given = f"{derived.request_prompt_tokens:,.0f} tokens", f"{derived.request_answer_tokens:,.0f} tokens"
    note(f"  capacity: {rate} output tokens/s, or {streamed} if all answers are streamed,")
    note(f"  with prompts of {asked} and answers of {given};")
    waiting, context = f"{derived.max_waiting:,}", f"{derived.context_tokens:,}"
    note(f"  {waiting} requests may wait in the queue, and further requests are refused; {context} tokens of context")


def _curl(model: Deployment) -> str:
    from twoshift.serve.deployments import is_reranker

    known = [each for each in model.info.outputs if each != "score" or is_reranker(model)]
    return next((curl % model.name for output, curl in _CURL.items() if output in known), f"/v2/models/{model.name}")
