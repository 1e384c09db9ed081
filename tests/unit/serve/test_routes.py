"""Paths to faces, errors to replies, and the document that tells of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from numpy.typing import NDArray

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("prometheus_client", reason="the serve extra is not installed")

from twoshift.endpoints.known import told_openai
from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.oip import add_oip
from twoshift.serve.http.openai import add_openai
from twoshift.serve.http.openapi import Operation, document
from twoshift.serve.http.operations import add_operations
from twoshift.serve.http.reranking import add_reranking
from twoshift.serve.keys import Access, Keys, KeySettings, digest_of
from twoshift.serve.model import ServedModel
from twoshift.serve.service import Service

COST, LIMITS = CallCost.line(0.001, 1e-5), LaneLimits(slo_s=600.0)


class Same:
    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return columns


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    engine = Engine(HostModel(RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, ("x",)), Same()), COST, LIMITS)
    service = Service(
        Deployments({"a/b": ServedModel("a/b", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 10))})
    )
    made = App(told_openai, Keys({}))
    add_openai(made, service)
    add_reranking(made, service)
    add_oip(made, service)
    add_operations(made, service.unready, ServerMetrics(service.models, {}))
    yield made
    service.close()


def asked(app: App, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
    shown = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    request = Request(method, target.encode("latin-1"), shown, body, time.monotonic())
    return asyncio.run(app.handle(request))  # type: ignore[arg-type]


def test_every_route_says_what_it_is(app: App) -> None:
    assert [f"{route.method} {route.path}" for route in app.routes if route.about is None] == []
    shown = document(app.routes, needs_keys=True)
    assert {(path, method.upper()) for path, methods in shown["paths"].items() for method in methods} == {
        (route.path, route.method) for route in app.routes
    }
    assert msgspec.json.decode(asked(app, "GET", "/openapi.json").body)["openapi"] == "3.1.0"


def test_the_document_tells_who_needs_a_key(app: App) -> None:
    closed, opened = document(app.routes, needs_keys=True)["paths"], document(app.routes, needs_keys=False)["paths"]
    assert closed["/v1/models"]["get"]["security"] == [{"key": []}]
    assert "401" in closed["/v1/models"]["get"]["responses"]
    assert "security" not in closed["/healthz"]["get"]
    assert "security" not in opened["/v1/models"]["get"]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/models/a%2Fb", 200),
        ("/v1/models/a%2fb?x=%00", 200),
        ("http://anywhere:80/v1/models/a%2Fb", 200),
        ("/v1/models/a/b", 404),
        ("//v1/models", 404),
        ("/v1//models", 404),
        ("/v1/models/", 404),
        ("/v1%2Fmodels", 404),
        ("/v1/models/../../etc/passwd", 404),
        ("/v1/models/..", 404),
        ("/v1/models/%2e%2e%2f%2e%2e", 404),
        ("/v1/models/%00", 404),
        ("/v1/models/%ff%fe", 404),
        ("/v1/models/%", 404),
        ("/v1/models/\xe9", 404),
        ("/V1/MODELS", 404),
        ("*", 404),
        ("", 404),
        ("/" + "a" * 30_000, 404),
        ("/v1/models/" + "%2e" * 10_000, 404),
    ],
)
def test_a_path_is_taken_as_it_came(app: App, target: str, status: int) -> None:
    reply = asked(app, "GET", target)
    assert reply.status == status
    assert len(reply.body) < 1000
    msgspec.json.decode(reply.body)


def test_a_wrong_method_is_told_the_right_ones(app: App) -> None:
    for method, target, allowed in (
        ("DELETE", "/v1/models", b"GET, HEAD"),
        ("GET", "/v1/embeddings", b"POST"),
        ("HEAD", "/v1/embeddings", b"POST"),
        ("OPTIONS", "/healthz", b"GET, HEAD"),
    ):
        reply = asked(app, method, target)
        assert reply.status == 405
        assert dict(reply.headers)[b"allow"] == allowed
    assert asked(app, "HEAD", "/healthz").status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"model": "a/b", "input": "\xff"}',
        b'{"model": "a/b", "input": NaN}',
        b'{"model": "a/b", "input": [Infinity]}',
        b'{"model": "a/b", "input": 1e999}',
        b'{"model": "a/b", "input": "x", "dimensions": 0}',
        b'{"model": "a/b", "input": "x", "dimensions": 1e3}',
        b'{"model": "a/b", "input": ["x", 1]}',
        b'{"model": "a/b", "input": [[1], [true]]}',
        b'{"model": "a/b", "input": [[]]}',
        b'{"model": "a/b", "input": [-1]}',
        b'{"model": "a/b", "input": "x"} {}',
        b'{"model": "a/b", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "a/b", "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"a/b": "' + b"x" * 1_000_000,
    ],
)
def test_a_body_that_is_no_request_is_refused(app: App, body: bytes) -> None:
    reply = asked(app, "POST", "/v1/embeddings", body)
    assert reply.status == 400
    assert len(reply.body) < 1000
    told = msgspec.json.decode(reply.body)["error"]
    assert told.keys() == {"message", "type", "param", "code"}


def test_json_of_many_megabytes_is_refused_unread(app: App) -> None:
    reply = asked(app, "POST", "/v1/embeddings", b"[" * (17 << 20))
    assert reply.status == 413
    assert (b"x-should-retry", b"false") in reply.headers


def test_a_model_for_something_else_says_what_it_answers_with(app: App) -> None:
    for path, body in (
        ("/v1/embeddings", b'{"model": "a/b", "input": "x"}'),
        ("/v1/rerank", b'{"model": "a/b", "query": "x", "documents": ["y", {"text": "z"}]}'),
    ):
        reply = asked(app, "POST", path, body)
        assert reply.status == 400
        assert b"returns x" in reply.body


@pytest.mark.parametrize(("given", "taken"), [("abc-1", True), ("a b", False), ("x" * 200, False), ("\xe9", False)])
def test_a_request_id_comes_back_where_it_can_be_shown(app: App, given: str, taken: bool) -> None:
    shown = dict(asked(app, "GET", "/healthz", x_request_id=given).headers)[b"x-request-id"]
    assert (shown == given.encode("latin-1")) is taken
    assert shown.isascii()


def test_what_no_face_foresaw_is_a_500_with_a_body(caplog: pytest.LogCaptureFixture) -> None:
    class Panic(BaseException):
        """As a library written in Rust raises it."""

    async def fails(_exchange: Exchange) -> Reply:
        raise Panic("out of bounds")

    app = App(told_openai, Keys({}))
    app.add("GET", "/a", fails, told_openai, Operation("It fails.", str, str), needs=Access.KEY)
    assert asked(app, "GET", "/a").status == 500
    assert "out of bounds" in caplog.text


def test_only_those_with_a_key_are_let_in() -> None:
    async def done(exchange: Exchange) -> Reply:
        return Reply(200, exchange.caller.name.encode())

    app = App(told_openai, Keys({"alice": KeySettings(digest_of("ts-secret"))}))
    app.add("GET", "/a", done, told_openai, needs=Access.KEY)
    app.add("GET", "/open", done, told_openai, needs=Access.OPEN)
    for headers in ({}, {"authorization": "Bearer ts-wrong"}, {"authorization": "Basic ts-secret"}):
        reply = asked(app, "GET", "/a", b"", **headers)
        assert reply.status == 401
        assert (b"www-authenticate", b"Bearer") in reply.headers
    assert asked(app, "GET", "/a", authorization="bearer  ts-secret").body == b"alice"
    assert asked(app, "GET", "/open").body == b"anyone"
