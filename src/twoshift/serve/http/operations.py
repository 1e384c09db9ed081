"""What operators look at: health, readiness, metrics."""

from __future__ import annotations

import msgspec

from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openai import told_openai
from twoshift.serve.service import Service

__all__ = ["add_operations"]


def add_operations(app: App, service: Service, metrics: ServerMetrics) -> None:
    """/healthz, /readyz and /metrics."""

    async def healthz(_exchange: Exchange) -> Reply:
        return Reply(200, b'{"status":"alive"}')

    async def readyz(_exchange: Exchange) -> Reply:
        why = service.unready()
        if why is None:
            return Reply(200, b'{"status":"ready"}')
        return Reply(503, msgspec.json.encode({"status": "not ready", "reason": why}), headers=[(b"retry-after", b"1")])

    async def page(_exchange: Exchange) -> Reply:
        body, kind = metrics.text()
        return Reply(200, body, kind)

    app.add("GET", "/healthz", healthz, told_openai, open=True)
    app.add("GET", "/readyz", readyz, told_openai, open=True)
    app.add("GET", "/metrics", page, told_openai)
