"""A span for each request and one for each of its stages, sent where OpenTelemetry's collector listens."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.serve.stages import STAGES, Stages

__all__ = ["Traces", "closed_within"]

_PATH = "/v1/traces"


class Traces:
    """Spans are made when a request has its reply, and sent in the background."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint` is that of OTLP over HTTP: http://collector:4318."""
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidInput("otlp_endpoint", endpoint, "a URL such as http://collector:4318")
        trace = needed("opentelemetry.sdk.trace", "otel", endpoint, "otlp_endpoint")
        export = needed("opentelemetry.sdk.trace.export", "otel", endpoint, "otlp_endpoint")
        resources = needed("opentelemetry.sdk.resources", "otel", endpoint, "otlp_endpoint")
        otlp = needed("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel", endpoint, "otlp_endpoint")
        address = endpoint.rstrip("/")
        address = address if address.endswith(_PATH) else address + _PATH
        self._provider = trace.TracerProvider(resource=resources.Resource.create({"service.name": "twoshift"}))
        self._provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=address)))
        self._tracer = self._provider.get_tracer("twoshift")
        self._parents = needed("opentelemetry.trace.propagation.tracecontext", "otel", endpoint)
        self._context: Any = needed("opentelemetry.trace", "otel", endpoint)
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    def replied(
        self, name: str, arrived_s: float, ended_s: float, parent: str | None, stages: Stages | None, model: str,
        status: int,
    ) -> None:  # fmt: skip
        """A request that has its reply; `parent` is the client's traceparent."""
        about = {"twoshift.model": model, "http.response.status_code": status}
        carrier = {"traceparent": parent} if parent else {}
        context = self._parents.TraceContextTextMapPropagator().extract(carrier)
        span = self._tracer.start_span(
            name, context, kind=self._context.SpanKind.SERVER, attributes=about, start_time=self._ns(arrived_s)
        )
        if stages is not None:
            inside = self._context.set_span_in_context(span)
            at_s = arrived_s
            for stage in STAGES:
                took_s = getattr(stages, stage)
                if took_s > 0:
                    part = self._tracer.start_span(stage, inside, start_time=self._ns(at_s))
                    part.end(self._ns(at_s + took_s))
                at_s += took_s
            span.set_attribute("twoshift.call_rows", stages.call_rows)
        if status >= 500:
            span.set_status(self._context.StatusCode.ERROR)
        span.end(self._ns(ended_s))

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _ns(self, monotonic_s: float) -> int:
        return self._epoch_ns + int(1e9 * monotonic_s)


async def closed_within(traces: Traces, timeout_s: float) -> None:
    """What is left is sent, if somebody takes it in time; a thread that is not waited for does it."""
    closing = threading.Thread(target=traces.close, daemon=True)
    closing.start()
    until_s = time.monotonic() + timeout_s
    while closing.is_alive() and time.monotonic() < until_s:
        await asyncio.sleep(0.02)
