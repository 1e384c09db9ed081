"""The gRPC server on a port of this machine, with gRPC's own client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from own_service import MOST_ROWS, Doubling, doubling_service

from waiting import until_async

pytest.importorskip("grpc", reason="the grpc extra is not installed")

import grpc

from twoshift.serve.grpc.messages import SERVICE, message
from twoshift.serve.grpc.server import GrpcServer
from twoshift.serve.keys import Keys, KeySettings, digest_of
from twoshift.serve.service import Service
from twoshift.types import Lane

KEYS = Keys(
    {
        "alice": KeySettings(digest_of("ts-alice")),
        "bob": KeySettings(digest_of("ts-bob"), models=("other",)),
        "carol": KeySettings(digest_of("ts-carol"), scopes=("batch",)),
    }
)
CODE = grpc.StatusCode


class Client:
    """Calls by a method's name."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def call(
        self, name: str, /, timeout_s: float | None = 120, headers: dict[str, str] | None = None, **fields: Any
    ) -> Any:
        method = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=message(f"{name}Request").SerializeToString,
            response_deserializer=message(f"{name}Response").FromString,
        )
        request = message(f"{name}Request")(**fields)
        return method(request, timeout=timeout_s, metadata=tuple((headers or {}).items()))

    def infer(self, values: Any = (1.0,), timeout_s: float | None = 120, **more: Any) -> Any:
        return self.call("ModelInfer", timeout_s, more.pop("headers", None), **asked(values, **more))

    def stream(self, **headers: str) -> Any:
        return self._channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=message("ModelInferRequest").SerializeToString,
            response_deserializer=message("ModelStreamInferResponse").FromString,
        )(timeout=120, metadata=tuple(headers.items()))


def asked(values: Any, **more: Any) -> dict[str, Any]:
    array = np.array(values, "<f4")
    inputs = [{"name": "x", "datatype": "FP32", "shape": array.shape}]
    return {"model_name": "m", "inputs": inputs, "raw_input_contents": [array.tobytes()], **more}


def doubled(reply: Any) -> list[float]:
    assert reply.outputs[0].datatype == "FP64"  # numbers alone are Python's own in a class's rows
    return np.frombuffer(reply.raw_output_contents[0], "<f8").tolist()


@pytest.fixture
def service() -> Iterator[tuple[Service, Doubling]]:
    with doubling_service() as made:
        yield made


def run(
    service: Service,
    test: Callable[[Client, GrpcServer], Awaitable[Any]],
    keys: Keys | None = None,
    limit: int = 1 << 20,
) -> Any:
    async def started() -> Any:
        service.start()
        server = GrpcServer(service, keys or Keys({}), limit, 100)
        port = server.bind("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                return await test(Client(channel), server)
            finally:
                await server.drain(5.0)

    return asyncio.run(started())


def waiting_rows(service: Service) -> int:
    return service.models["m"].backend.waiting()[Lane.ONLINE].rows


async def refused(call: Any) -> Any:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def test_a_reply_has_an_id_and_says_where_its_time_went(service: tuple[Service, Doubling]) -> None:
    async def test(client: Client, _server: GrpcServer) -> None:
        call = client.infer([1, 2], id="seven", headers={"x-request-id": "mine"})
        reply = await call
        assert (reply.id, doubled(reply), list(reply.outputs[0].shape)) == ("seven", [2, 4], [2])
        trailing = dict(await call.trailing_metadata())
        assert trailing["x-request-id"] == "mine"
        assert trailing["server-timing"].startswith("admit;")

    run(service[0], test)
    assert service[0].models["m"].metrics.requests == {200: 1}


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"model_name": "n"}, CODE.NOT_FOUND, "model: 'n'.*one of these models: m"),
        ({"model_version": "2"}, CODE.NOT_FOUND, "version: '2'"),
        ({"raw_input_contents": [b"123"]}, CODE.INVALID_ARGUMENT, "input 'x': '3 bytes'"),
        ({"outputs": [{"name": "y"}]}, CODE.INVALID_ARGUMENT, "outputs: 'y'.*one of these outputs: double"),
        ({"parameters": {"timeout": {"int64_param": 1}}}, CODE.DEADLINE_EXCEEDED, "deadline"),
        ({"parameters": {"timeout": {"string_param": "1"}}}, CODE.INVALID_ARGUMENT, "parameters.timeout: '1'"),
        ({"parameters": {"priority": {"int64_param": -1}}}, CODE.INVALID_ARGUMENT, "parameters.priority: -1"),
    ],
)
def test_errors_have_codes_that_say_what_to_do(
    service: tuple[Service, Doubling], changes: dict[str, Any], code: Any, told: str
) -> None:
    async def test(client: Client, _server: GrpcServer) -> None:
        error = await refused(client.infer(**changes))
        assert error.code() is code
        with pytest.raises(ValueError, match=told):
            raise ValueError(error.details())
        assert "x-request-id" in dict(error.trailing_metadata())

    run(service[0], test)


def test_what_can_never_fit_is_the_callers_to_change(service: tuple[Service, Doubling]) -> None:
    async def test(client: Client, _server: GrpcServer) -> None:
        assert (await refused(client.infer(np.zeros(MOST_ROWS + 1)))).code() is CODE.INVALID_ARGUMENT
        assert (await refused(client.infer(np.zeros((1, 1 << 19))))).code() is CODE.RESOURCE_EXHAUSTED  # gRPC's own

    run(service[0], test)


def test_a_full_queue_says_when_to_come_back(service: tuple[Service, Doubling]) -> None:
    served, model = service

    async def test(client: Client, _server: GrpcServer) -> None:
        model.gate.clear()
        waiting = [asyncio.ensure_future(_awaited(client.infer(np.zeros(MOST_ROWS // 2)))) for _ in range(4)]
        done, _ = await asyncio.wait(waiting, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        error = await refused(done.pop())
        assert error.code() is CODE.UNAVAILABLE
        assert int(dict(error.trailing_metadata())["retry-after-ms"]) >= 1
        model.gate.set()
        await asyncio.wait(waiting)

    run(served, test)


async def no_new_calls(client: Client) -> None:
    """Wait until the server takes none."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while True:  # a call that meets the drain halfway is neither taken nor refused: its time ends
            await client.call("ServerLive", timeout_s=2)


async def _awaited(call: Any) -> Any:
    return await call


def test_grpcs_deadline_is_the_requests(service: tuple[Service, Doubling]) -> None:
    served, model = service

    async def test(client: Client, _server: GrpcServer) -> None:
        model.gate.clear()
        assert (await refused(client.infer(timeout_s=0.2))).code() is CODE.DEADLINE_EXCEEDED
        model.gate.set()  # only now could it have been answered

    run(served, test)


def test_a_client_that_cancels_takes_its_rows_back(service: tuple[Service, Doubling]) -> None:
    served, model = service

    async def test(client: Client, _server: GrpcServer) -> None:
        model.gate.clear()
        first = client.infer([1])
        await until_async(lambda: model.begun == 1)
        second = client.infer(np.zeros(5))
        await until_async(lambda: waiting_rows(served) == 5)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await until_async(lambda: waiting_rows(served) == 0)
        model.gate.set()
        assert doubled(await first) == [2]

    run(served, test)
    assert model.seen == 1
    assert served.models["m"].metrics.requests == {200: 1, 499: 1}


def test_keys_are_needed_but_for_health(service: tuple[Service, Doubling]) -> None:
    async def test(client: Client, _server: GrpcServer) -> None:
        assert (await client.call("ServerLive")).live
        assert (await client.call("ServerReady")).ready
        assert (await refused(client.infer())).code() is CODE.UNAUTHENTICATED
        assert (await refused(client.call("ModelMetadata", name="m"))).code() is CODE.UNAUTHENTICATED
        stream = client.stream()
        error = await refused(stream.read())
        assert error.code() is CODE.UNAUTHENTICATED
        assert doubled(await client.infer(headers={"authorization": "Bearer ts-alice"})) == [2]
        bob = await refused(client.infer(headers={"authorization": "Bearer ts-bob"}))
        assert bob.code() is CODE.PERMISSION_DENIED
        for tried in (
            client.infer(headers={"authorization": "Bearer ts-carol"}),
            client.call("ModelMetadata", headers={"authorization": "Bearer ts-carol"}, name="m"),
            client.stream(authorization="Bearer ts-carol").read(),
        ):
            carol = await refused(tried)
            assert carol.code() is CODE.PERMISSION_DENIED
            assert "scope serve" in (carol.details() or "")

    run(service[0], test, KEYS)


def test_a_stream_answers_in_order_and_survives_errors(service: tuple[Service, Doubling]) -> None:
    async def test(client: Client, _server: GrpcServer) -> None:
        stream = client.stream()
        for number in range(100):
            name = "n" if number == 50 else "m"
            await stream.write(message("ModelInferRequest")(**asked([number], id=str(number)) | {"model_name": name}))
        await stream.done_writing()
        replies = [reply async for reply in stream]
        assert [reply.infer_response.id for reply in replies] == [str(number) for number in range(100)]
        assert [number for number, reply in enumerate(replies) if reply.error_message] == [50]
        assert doubled(replies[99].infer_response) == [198]
        assert replies[0].infer_response.parameters["triton_final_response"].bool_param

    run(service[0], test)
    assert service[0].models["m"].metrics.requests == {200: 99}


def test_a_stream_that_is_cancelled_takes_its_rows_back(service: tuple[Service, Doubling]) -> None:
    served, model = service

    async def test(client: Client, _server: GrpcServer) -> None:
        model.gate.clear()
        stream = client.stream()
        for _ in range(4):
            await stream.write(message("ModelInferRequest")(**asked(np.zeros(5))))
        await until_async(lambda: model.begun + waiting_rows(served) == 20)
        stream.cancel()
        await until_async(lambda: served.models["m"].metrics.requests == {499: 4})
        model.gate.set()
        assert doubled(await client.infer()) == [2]

    run(served, test)
    assert served.models["m"].metrics.requests == {499: 4, 200: 1}


def test_a_drain_answers_what_has_come_and_ends_streams_that_rest(service: tuple[Service, Doubling]) -> None:
    served, model = service

    async def test(client: Client, server: GrpcServer) -> None:
        stream = client.stream()
        await stream.write(message("ModelInferRequest")(**asked([1])))
        assert doubled((await stream.read()).infer_response) == [2]
        model.gate.clear()
        waiting = client.infer([3])
        await stream.write(message("ModelInferRequest")(**asked([4])))
        await until_async(lambda: model.begun + waiting_rows(served) == 1 + 2)
        draining = asyncio.ensure_future(server.drain(60.0))
        await no_new_calls(client)
        model.gate.set()
        assert doubled(await waiting) == [6]
        assert doubled((await stream.read()).infer_response) == [8]
        assert (await refused(stream.read())).code() is CODE.UNAVAILABLE
        assert await draining

    run(served, test)


def test_a_drain_ends_when_it_is_hurried(service: tuple[Service, Doubling]) -> None:
    served, model = service

    async def test(client: Client, server: GrpcServer) -> None:
        model.gate.clear()
        waiting = asyncio.ensure_future(_awaited(client.infer([3])))
        await until_async(lambda: model.begun == 1)
        hurry = asyncio.Event()
        draining = asyncio.ensure_future(server.drain(60.0, hurry))
        await no_new_calls(client)
        hurry.set()
        assert not await asyncio.wait_for(draining, 10)
        await refused(waiting)

    run(served, test)


def test_a_port_that_somebody_has_is_refused(service: tuple[Service, Doubling]) -> None:
    async def test(_client: Client, _server: GrpcServer) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match=r"127\.0\.0\.1"):
            GrpcServer(service[0], Keys({}), 1 << 20, 100).bind(f"127.0.0.1:{taken.getsockname()[1]}")

    run(service[0], test)
