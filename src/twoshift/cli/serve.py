"""`serve`: a model behind a port, inside an SLO."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import ERROR_FIELDS, Device, Model, Precision, Threads, TrustPickle
from twoshift.cli.output import note
from twoshift.cli.params import duration, millis, text, whole

if TYPE_CHECKING:
    from twoshift.serve.service import ServedModel

__all__ = ["serve_command"]

_CURL = {
    "embedding": '/v1/embeddings -d \'{"model": "%s", "input": "a red fox"}\'',
    "score": '/v1/rerank -d \'{"model": "%s", "query": "a red fox", "documents": ["an old road"]}\'',
}


@command(app, "serve", "twoshift serve minilm --slo-ms 50 --port 8000", ERROR_FIELDS)
def serve_command(
    model: Model,
    slo_ms: Annotated[float, millis("The latency objective of a request.")] = 50.0,
    host: Annotated[str, text("The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, whole("The port to listen on; 0 takes a free one.", least=0, most=65535)] = 8000,
    grace: Annotated[float, duration("What was admitted may finish within this on SIGTERM.")] = 30.0,
    device: Device = "auto",
    precision: Precision = None,
    threads: Threads = None,
    trust_pickle: TrustPickle = False,
) -> int:
    """Answer live requests inside an SLO: OpenAI embeddings and reranking over HTTP."""
    from twoshift.serve.run import ServeSettings, serve
    from twoshift.serve.service import Service
    from twoshift.wiring import load_model, served_model

    note(f"Loading {model}")
    runtime = load_model(model, device=device, precision=precision, threads=threads, trust_pickle=trust_pickle)
    served = served_model(runtime, slo_ms / 1e3, int(time.time()), note)
    service = Service([served])
    try:
        settings = ServeSettings(host, port, grace)
        return 0 if serve(service, settings, lambda address: _tell(served, address)) else 1
    finally:
        service.close()


def _tell(model: ServedModel, address: str) -> None:
    derived, info = model.derived, model.engine.runtime.info
    note(f"{model.name} on {info.device} by {info.runtime} in {info.precision}, at {address}")
    budget, rows = f"{1e3 * derived.call_budget_s:.3g} ms", f"{derived.largest_live_rows:,}"
    note(f"SLO {1e3 * derived.slo_s:g} ms: up to {rows} live rows in a call; calls with background rows last {budget}.")
    note(f"{derived.admission_rows:,} rows may wait, more are refused; {derived.capacity_rows_per_s:,.0f} rows/s.")
    path = next((curl for output, curl in _CURL.items() if output in info.outputs), "/v1/models")
    note(f"curl {address}{path % model.name if '%s' in path else path}")
