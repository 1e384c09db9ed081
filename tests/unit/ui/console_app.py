"""A console over a small model, asked without a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from own_service import Doubling, doubling_service

from twoshift.endpoints.known import told_openai
from twoshift.serve.deployments import Deployments
from twoshift.serve.http.app import App
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.keys import Keys, KeySettings, digest_of
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings, make_settings
from twoshift.ui.console import Console
from twoshift.ui.sampler import DayStore

__all__ = ["HOSTILE", "ConsoleApp", "console_app"]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
SAME_SITE = {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8000"}


class ConsoleApp:
    """Its paths, and a browser's cookie."""

    def __init__(
        self, service: Service, keys: Mapping[str, dict[str, Any]], store: DayStore | None, more: dict[str, Any]
    ) -> None:
        made = {name: KeySettings(sha256=digest_of(f"key-of-{name}"), **each) for name, each in keys.items()}
        self.service = service
        self.app = App(told_openai, Keys(made))
        self.settings: ServeSettings = make_settings({"models": {"m": {}}, **more})
        self.console = Console(self.app, service.models, self.settings, Keys(made), store)
        self.cookie = ""

    @property
    def models(self) -> Deployments:
        return self.service.models

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        given = {
            "host": "127.0.0.1:8000",
            "accept": "text/html",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        if self.cookie:
            given["cookie"] = self.cookie
        if body:
            given["content-length"] = str(len(body))
        raw = {name.encode(): value.encode() for name, value in given.items() if value}
        return asyncio.run(self.app.handle(Request(method, target.encode(), raw, body, time.monotonic())))

    def post(self, target: str, body: bytes = b"", **headers: str) -> Reply:
        """As a browser sends a form of a page of ours."""
        return self.ask("POST", target, body, **{**SAME_SITE, **headers})

    def login(self, name: str, more: str = "") -> Reply:
        reply = self.post("/console/login", f"key=key-of-{name}{more}".encode())
        cookies = [value.decode() for header, value in reply.headers if header == b"set-cookie"]
        self.cookie = cookies[0].partition(";")[0] if cookies else ""
        return reply

    def page(self, target: str = "/") -> str:
        return self.ask("GET", target).body.decode()

    def look(self, ticks: int = 1) -> None:
        async def looked() -> None:
            for _ in range(ticks):
                await self.console.sampler.tick()

        asyncio.run(looked())


@contextmanager
def console_app(
    store: DayStore | None = None, keys: Mapping[str, dict[str, Any]] | None = None, **more: Any
) -> Iterator[tuple[ConsoleApp, Doubling]]:
    with doubling_service() as (service, model):
        made = ConsoleApp(service, keys or {}, store, more)
        made.look()
        yield made, model
