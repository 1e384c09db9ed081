"""What operators look at: health, readiness, metrics, and what the server can be asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation, document
from twoshift.serve.keys import Access

__all__ = ["Health", "add_health", "add_operations"]


class Alive(msgspec.Struct):
    """Liveness reply: the process is running."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct):
    """Readiness reply: every model is loaded, warmed up and not overloaded."""

    status: Literal["ready"] = "ready"
    warnings: list[str] | msgspec.UnsetType = msgspec.UNSET  # SLOs that cannot be kept


class NotReady(msgspec.Struct, kw_only=True):
    """Readiness reply of a server that cannot accept requests yet; load balancers should use another server."""

    status: Literal["not ready"] = "not ready"
    reason: str


Health = Callable[[], str | None]  # why no request should come; None where all is well
Warnings = Callable[[], list[str]]  # what its models cannot keep, although requests should come


def add_health(app: App, unready: Health, warnings: Warnings = list) -> None:
    """/healthz, /, /readyz, /health and /-/healthz."""

    async def healthz(_exchange: Exchange) -> Reply:
        return Reply(200, msgspec.json.encode(Alive()))

    async def readyz(_exchange: Exchange) -> Reply:
        why = unready()
        if why is None:
            return Reply(200, msgspec.json.encode(Ready(warnings=warnings() or msgspec.UNSET)))
        return Reply(503, msgspec.json.encode(NotReady(reason=why)), headers=[(b"retry-after", b"1")])

    ready = _about("Check whether the server is ready for requests.", Ready, {503: NotReady})
    for path, answer, what in (
        ("/healthz", healthz, _about("Check that the server process runs (liveness).", Alive)),
        ("/", healthz, _about("Check that the server process runs (KServe's path).", Alive)),
        ("/readyz", readyz, ready),
        ("/health", readyz, ready),  # as vLLM and text-embeddings-inference call it
        ("/-/healthz", readyz, ready),  # as KubeRay asks for it
    ):
        app.add("GET", path, answer, told_openai, what, needs=Access.OPEN, kind=RouteKind.PROBE)


def add_operations(
    app: App,
    unready: Health,
    metrics: ServerMetrics,
    warnings: Warnings = list,
    refresh: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """The same, /metrics and /openapi.json; `refresh` brings what other processes have counted."""

    async def page(_exchange: Exchange) -> Reply:
        if refresh is not None:
            await refresh()
        body, kind = metrics.text()
        return Reply(200, body, kind)

    async def openapi(_exchange: Exchange) -> Reply:
        return Reply(200, msgspec.json.encode(document(app.routes, app.needs_keys)))

    add_health(app, unready, warnings)
    shown = _about("Show metrics in the text format of Prometheus.", "text/plain")
    app.add("GET", "/metrics", page, told_openai, shown, needs=Access.ADMIN, kind=RouteKind.PROBE)
    app.add(
        "GET",
        "/openapi.json",
        openapi,
        told_openai,
        _about("Show this OpenAPI document.", dict[str, Any]),
        needs=Access.OPEN,
    )


def _about(summary: str, gives: Any, also: dict[int, Any] | None = None) -> Operation:
    return Operation(summary, gives, ErrorReply, also=also or {})
