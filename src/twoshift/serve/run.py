"""A service on a port, from its start to the end of its last request."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from twoshift.errors import InvalidInput
from twoshift.serve.http.app import App
from twoshift.serve.http.connection import HttpLimits
from twoshift.serve.http.openai import add_openai, told_openai
from twoshift.serve.http.operations import add_operations
from twoshift.serve.http.server import HttpServer
from twoshift.serve.metrics import ServerMetrics
from twoshift.serve.service import Service

__all__ = ["ServeSettings", "serve"]


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where and how it listens."""

    host: str = "127.0.0.1"
    port: int = 8000
    grace_s: float = 30.0
    http: HttpLimits = field(default_factory=HttpLimits)


def serve(service: Service, settings: ServeSettings, ready: Callable[[str], None]) -> bool:
    """Until SIGTERM or SIGINT; whether every admitted request was answered. `ready` is told the address."""
    import uvloop

    return uvloop.run(_serve(service, settings, ready))


async def _serve(service: Service, settings: ServeSettings, ready: Callable[[str], None]) -> bool:
    service.start()
    app = App(told_openai)
    server = HttpServer(app.handle, app.refused, settings.http)
    add_openai(app, service)
    add_operations(app, service, ServerMetrics(service.models, lambda: server.connections))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, NotImplementedError):  # not in a test's thread
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        port = await server.start(settings.host, settings.port)
    except OSError as error:
        accepted = f"an address that is free and ours ({error.strerror or error})"
        raise InvalidInput("port", f"{settings.host}:{settings.port}", accepted) from error
    ready(f"http://{_shown(settings.host)}:{port}")
    await stop.wait()
    service.drain()
    return await server.drain(settings.grace_s)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
