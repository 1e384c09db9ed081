"""A service on its ports, from its start to the end of its last request."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.http.app import App
from twoshift.serve.http.connection import HttpLimits
from twoshift.serve.http.openai import add_openai, told_openai
from twoshift.serve.http.operations import add_operations
from twoshift.serve.http.server import HttpServer
from twoshift.serve.keys import Keys
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings

__all__ = ["serve"]


def serve(service: Service, settings: ServeSettings, ready: Callable[[str], None]) -> bool:
    """Until SIGTERM or SIGINT; whether every admitted request was answered. `ready` is told the address."""
    return needed("uvloop", "serve", "serve", "command").run(_serve(service, settings, ready))


async def _serve(service: Service, settings: ServeSettings, ready: Callable[[str], None]) -> bool:
    service.start()
    app = App(told_openai, Keys(settings.keys))
    limits = HttpLimits(body_bytes=int(settings.max_body_mib * (1 << 20)), connections=settings.max_connections)
    server = HttpServer(app.handle, app.refused, limits)
    add_openai(app, service)
    connections = {"http_connections": ("Open connections.", lambda: server.connections)}
    add_operations(app, service, ServerMetrics(service.models, connections))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, NotImplementedError):  # not in a test's thread
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        port = await server.start(settings.host, settings.port)
    except OSError as error:
        accepted = f"an address that is free and ours ({error.strerror or error})"
        raise InvalidInput("port", f"{settings.host}:{settings.port}", accepted) from error
    watchdog = asyncio.ensure_future(service.watch())
    ready(f"http://{_shown(settings.host)}:{port}")
    await stop.wait()
    service.drain()
    in_peace = await server.drain(settings.grace_s)
    watchdog.cancel()
    return in_peace


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
