"""What operators look at: health, readiness, metrics, and what the server can be asked."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation, document
from twoshift.serve.keys import Access
from twoshift.serve.service import Service

__all__ = ["add_operations"]


class Alive(msgspec.Struct):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct):
    """Every model is loaded, warm and keeps up."""

    status: Literal["ready"] = "ready"


class NotReady(msgspec.Struct, kw_only=True):
    """Requests should go elsewhere."""

    status: Literal["not ready"] = "not ready"
    reason: str


def add_operations(app: App, service: Service, metrics: ServerMetrics) -> None:
    """/healthz, /readyz, /health, /metrics and /openapi.json."""

    async def healthz(_exchange: Exchange) -> Reply:
        return Reply(200, msgspec.json.encode(Alive()))

    async def readyz(_exchange: Exchange) -> Reply:
        why = service.unready()
        if why is None:
            return Reply(200, msgspec.json.encode(Ready()))
        return Reply(503, msgspec.json.encode(NotReady(reason=why)), headers=[(b"retry-after", b"1")])

    async def page(_exchange: Exchange) -> Reply:
        body, kind = metrics.text()
        return Reply(200, body, kind)

    async def openapi(_exchange: Exchange) -> Reply:
        return Reply(200, msgspec.json.encode(document(app.routes, app.needs_keys)))

    def about(summary: str, gives: Any, also: dict[int, Any] | None = None) -> Operation:
        return Operation(summary, gives, ErrorReply, also=also or {})

    ready = about("Whether requests should come here.", Ready, {503: NotReady})
    for path, answer, what, needs in (
        ("/healthz", healthz, about("Whether the process lives.", Alive), Access.OPEN),
        ("/", healthz, about("The same, as KServe's clients ask it.", Alive), Access.OPEN),
        ("/readyz", readyz, ready, Access.OPEN),
        ("/health", readyz, ready, Access.OPEN),  # as vLLM and text-embeddings-inference call it
        ("/metrics", page, about("What it counts, for Prometheus.", "text/plain"), Access.ADMIN),
        ("/openapi.json", openapi, about("This document.", dict[str, Any]), Access.OPEN),
    ):
        app.add("GET", path, answer, told_openai, what, needs=needs)
