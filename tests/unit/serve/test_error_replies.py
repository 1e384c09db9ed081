"""Every error, from a replica's frame to what each transport writes of it."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Any
from urllib.parse import quote

import pytest
from own_service import doubling_service
from sample_errors import sample_errors

pytest.importorskip("grpc", reason="the grpc extra is not installed")

import grpc

from twoshift.batch.kinds.request_lines import response_line
from twoshift.endpoints.faults import Fault, fault_of
from twoshift.endpoints.known import told_openai
from twoshift.error_codec import decode_error, encode_error
from twoshift.errors import Broken, InvalidInput, Late, TwoshiftError
from twoshift.fleet.frames import Frames, framed
from twoshift.fleet.wire import Refused, from_replica
from twoshift.serve.grpc.calls import shown_details
from twoshift.serve.grpc.messages import SERVICE, message
from twoshift.serve.grpc.server import GrpcServer
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.keys import Access, Keys

ERRORS = sample_errors()
CODES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


def from_a_replica(error: TwoshiftError) -> TwoshiftError:
    (frame,) = Frames().feed(framed(Refused([7], encode_error(error))))
    found = from_replica(frame)
    assert isinstance(found, Refused)
    return decode_error(found.error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_http_writes_every_error(error: TwoshiftError) -> None:
    async def face(_exchange: Exchange) -> Reply:
        raise from_a_replica(error)

    app = App(told_openai, Keys({}))
    app.add("GET", "/a", face, told_openai, needs=Access.OPEN)
    reply = asyncio.run(app.handle(Request("GET", b"/a", {}, b"", time.monotonic())))
    fault, headers = fault_of(error), dict(reply.headers)
    told = json.loads(reply.body)["error"]
    assert (reply.status, told["param"]) == (fault.status, fault.param)
    assert told["message"].startswith(fault.message)  # a 504 also says how to give it more time
    if fault.retry_after_s is None:
        assert b"retry-after" not in headers
    else:
        assert int(headers[b"retry-after"]) == math.ceil(fault.retry_after_s)
        assert int(headers[b"retry-after-ms"]) == 1e3 * fault.retry_after_s


def test_a_late_request_is_told_the_timeout_that_it_had() -> None:
    async def face(_exchange: Exchange) -> Reply:
        raise Late("the request was not answered by its deadline")

    app = App(told_openai, Keys({}))
    app.add("GET", "/a", face, told_openai, needs=Access.OPEN)
    request = Request("GET", b"/a", {b"x-request-timeout-ms": b"7000"}, b"", time.monotonic())
    message = json.loads(asyncio.run(app.handle(request)).body)["error"]["message"]
    assert message == "the request was not answered by its deadline (x-request-timeout-ms: 7000); send a larger value"


LONG_ERRORS = [
    ValueError("x" * 60_000),
    ValueError("\ud800 bad\x00" * 10_000),
    type("E" * 60_000, (Exception,), {})("bad"),
    InvalidInput("f" * 60_000, "x" * 60_000, "y" * 60_000),
    Broken("\U0001f600" * 60_000),
]


@pytest.mark.parametrize("error", LONG_ERRORS, ids=["plain", "surrogates", "type name", "field", "emoji"])
def test_no_error_is_told_at_length(error: Exception) -> None:
    fault = fault_of(error)
    assert len(fault.message) == 2000
    assert fault.message.endswith("...")
    assert len(fault.param or "") <= 200
    assert len(response_line("batch_1", "a", fault)) < 16_000
    assert len(quote(shown_details(fault.message))) <= 8_000


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_an_error_line_of_a_batch_has_every_error(error: TwoshiftError) -> None:
    fault = fault_of(from_a_replica(error))
    line = json.loads(response_line("batch_1", "a", fault))
    assert line["response"]["status_code"] == fault_of(error).status
    assert line["response"]["body"]["error"]["message"] == fault_of(error).message


def test_grpc_has_a_status_for_every_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict[str, tuple[str, str, dict[str, str]]]()
    raising: list[BaseException] = []

    async def answer(*_given: Any) -> Any:
        raise raising[0]

    async def tried(channel: Any) -> Any:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=message("ModelInferRequest").SerializeToString,
            response_deserializer=message("ModelInferResponse").FromString,
        )
        asked = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(message("ModelInferRequest")(model_name="m", inputs=[asked]), timeout=120)
        return caught.value

    async def run(service: Any) -> None:
        service.start()
        server = GrpcServer(service, Keys({}), 1 << 20, 100)
        port = server.bind("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for error in ERRORS:
                raising[:] = [from_a_replica(error)]
                got = await tried(channel)
                found[type(error).__name__] = got.code().name, got.details(), dict(got.trailing_metadata())
            monkeypatch.setattr("twoshift.serve.grpc.calls.fault_of", _no_fault)
            found["unforeseen"] = (await tried(channel)).code().name, "", {}
            await server.drain(5.0)

    with doubling_service() as (service, _):
        monkeypatch.setattr(service, "answer", answer)
        asyncio.run(run(service))
    assert found.pop("unforeseen")[0] == "INTERNAL"
    for error in ERRORS:
        code, details, trailing = found[type(error).__name__]
        fault = fault_of(error)
        assert (code, details) == (CODES[fault.status], fault.message)
        assert ("retry-after-ms" in trailing) == (fault.retry_after_s is not None)


def _no_fault(error: BaseException) -> Fault:
    raise RuntimeError("an error that cannot be told") from error
