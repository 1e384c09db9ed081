"""A console over a small model, asked without a socket."""

from __future__ import annotations

import asyncio
import builtins
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from own_service import Doubling, doubling_service

from twoshift.batch_ports import InputColumn, InputLook, JobFailures
from twoshift.endpoints.known import told_openai
from twoshift.errors import InvalidInput, NotFound
from twoshift.ports import JobRecord
from twoshift.serve.batch_desk import NoBatches
from twoshift.serve.deployments import Deployments
from twoshift.serve.http.app import App
from twoshift.serve.http.batches import add_batches
from twoshift.serve.http.job_looks import add_job_looks
from twoshift.serve.http.jobs import add_jobs
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.keys import Keys, KeySettings, digest_of
from twoshift.serve.ledger import Prices
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings, make_settings
from twoshift.types import JobState
from twoshift.ui.console import Console
from twoshift.ui.sampler import DayStore

__all__ = ["HOSTILE", "ConsoleApp", "console_app", "header"]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
SAME_SITE = {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8000"}


class FakeJobs:
    """A desk with the records that a test gives it."""

    def __init__(self) -> None:
        self.records: dict[str, JobRecord] = {}
        self.moved: list[tuple[str, str]] = []
        self.asked: list[tuple[dict[str, Any], str]] = []
        self.failed = JobFailures(kinds={}, rows=[], parts=0, parts_read=0)
        self.page: bytes | None = None
        self.columns = [InputColumn("id", "int64"), InputColumn("body", "string")]

    @property
    def looks(self) -> FakeJobs:
        return self

    def add(
        self, job_id: str, owner: str = "", state: JobState = JobState.RUNNING, reason: str = "", **more: Any
    ) -> None:
        settings = {"model": "m", "inputs": ["in.parquet"], "output": "out", **more.pop("settings", {})}
        self.records[job_id] = JobRecord(job_id, settings, state, 1e9, 1e9, reason, owner=owner, **more)

    def submit(self, data: dict[str, Any], owner: str = "") -> JobRecord:
        if "output" not in data:
            raise InvalidInput("output", None, "a folder")
        self.asked.append((data, owner))
        self.add("job-new", owner, JobState.QUEUED, settings=data)
        return self.records["job-new"]

    def get(self, job_id: str) -> JobRecord:
        if job_id not in self.records:
            raise NotFound("job", job_id, "the id of an existing job")
        return self.records[job_id]

    def list(self, limit: int = 100, after: str | None = None, owner: str | None = None) -> list[JobRecord]:
        return [each for each in self.records.values() if owner is None or each.owner == owner][:limit]

    def notes(self, job_id: str) -> builtins.list[tuple[float, str]]:
        return [(1e9, self.get(job_id).reason)]

    def pause(self, job_id: str) -> JobRecord:
        self.moved.append((job_id, "pause"))
        return self.get(job_id)

    resume = cancel = pause

    def look(self, inputs: Sequence[str], input_format: str | None, owner: str) -> InputLook:
        return InputLook(files=len(inputs), size_bytes=1000, rows=60_000, is_exact=True, columns=self.columns)

    def failures(self, job_id: str) -> JobFailures:
        return self.failed

    def report(self, job_id: str) -> bytes | None:
        return self.page


class ConsoleApp:
    """Its paths, and a browser's cookie."""

    def __init__(
        self, service: Service, keys: Mapping[str, dict[str, Any]], store: DayStore | None, more: dict[str, Any]
    ) -> None:
        made = {name: KeySettings(sha256=digest_of(f"key-of-{name}"), **each) for name, each in keys.items()}
        self.service = service
        self.app = App(told_openai, Keys(made))
        self.settings: ServeSettings = make_settings({"models": {"m": {}}, **more})
        self.desk = FakeJobs()
        add_jobs(self.app, self.desk)
        add_job_looks(self.app, service, self.desk, Prices(lambda _: 3.6))
        add_batches(self.app, NoBatches("jobs need a database"))
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

    def token(self) -> str:
        """Of the session, as its pages have it."""
        found = re.search(r'data-token="([^"]+)"', self.page())
        assert found
        return found[1]

    def send(self, target: str, **fields: str) -> Reply:
        """A form of a page of this session."""
        return self.post(target, urllib.parse.urlencode({"token": self.token(), **fields}).encode())

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


def header(reply: Reply, name: bytes) -> str:
    """All values of a header."""
    return ", ".join(value.decode() for each, value in reply.headers if each == name)
