"""Calls that one process passes on to another: what the client sees is what the other has said."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from own_service import doubling_service

from twoshift.errors import InvalidInput
from twoshift.serve.listening import check_address, reserved_sockets
from waiting import until_async

pytest.importorskip("grpc", reason="the grpc extra is not installed")

import grpc

from twoshift.serve.grpc.forwarding import FORWARDED, Forwarding
from twoshift.serve.grpc.messages import SERVICE
from twoshift.serve.grpc.server import GrpcServer
from twoshift.serve.keys import Keys, KeySettings, digest_of

CODE = grpc.StatusCode


class Main:
    """The process that is asked: it notes what comes, and answers as it is told."""

    def __init__(self) -> None:
        self.requests = list[tuple[str, bytes, dict[str, Any], float | None]]()
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.fault: tuple[Any, str] | None = None

    def service(self, call: Any) -> Any:
        """Every method, with bytes."""
        name = call.method.rpartition("/")[2]

        async def handler(request: bytes, context: Any) -> bytes:
            metadata = dict(context.invocation_metadata())
            self.requests.append((name, request, metadata, context.time_remaining()))
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            trailing = (("x-request-id", metadata.get("x-request-id", "")), ("kept-bin", b"\x00\xff"))
            if self.fault is not None:
                await context.abort(*self.fault, trailing)
            context.set_trailing_metadata(trailing)
            return b"\x0a\x00" + request

        return grpc.unary_unary_rpc_method_handler(handler)


class Handlers(grpc.GenericRpcHandler):
    def __init__(self, main: Main) -> None:
        self._main = main

    def service(self, handler_call_details: Any) -> Any:
        return self._main.service(handler_call_details)


def run(folder: Path, test: Callable[[Any, Main], Awaitable[None]]) -> None:
    """With a channel to a front whose keys are asked for nothing that is passed on."""

    async def started() -> None:
        main, server = Main(), grpc.aio.server()
        server.add_generic_rpc_handlers((Handlers(main),))
        server.add_insecure_port(f"unix:{folder}/main")
        await server.start()
        keys = Keys({"alice": KeySettings(digest_of("ts-alice"))})
        with doubling_service() as (service, _):
            service.start()
            front = GrpcServer(service, keys, 1 << 20, 100, Forwarding(folder / "main"))
            port = front.bind("127.0.0.1:0")
            await front.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await test(channel, main)
            assert await front.drain(5.0)
        await server.stop(None)

    asyncio.run(started())


def begun(channel: Any, name: str, request: bytes = b"", **how: Any) -> Any:
    return channel.unary_unary(f"/{SERVICE}/{name}")(request, **how)


@pytest.mark.parametrize("name", FORWARDED)
def test_a_call_and_its_reply_pass_with_their_metadata(tmp_path: Path, name: str) -> None:
    async def test(channel: Any, main: Main) -> None:
        main.gate.set()
        metadata = (("x-request-id", "mine"), ("authorization", "Bearer ts-x"), ("more-bin", b"\x01\xfe"))
        call = begun(channel, name, b"\x10\x01", metadata=metadata, timeout=100)
        assert await call == b"\x0a\x00\x10\x01"
        assert {("x-request-id", "mine"), ("kept-bin", b"\x00\xff")} <= {*await call.trailing_metadata()}
        [(method, request, seen, left_s)] = main.requests
        assert (method, request) == (name, b"\x10\x01")
        assert dict(metadata).items() <= seen.items()
        assert left_s is not None
        assert 0 < left_s < 110  # gRPC rounds it up on each way, by a hundredth

    run(tmp_path, test)


def test_a_call_without_a_deadline_gets_none(tmp_path: Path) -> None:
    async def test(channel: Any, main: Main) -> None:
        main.gate.set()
        await begun(channel, "RepositoryIndex")
        assert main.requests[0][3] is None

    run(tmp_path, test)


def test_a_refusal_passes_with_its_code_details_and_metadata(tmp_path: Path) -> None:
    async def test(channel: Any, main: Main) -> None:
        main.gate.set()
        for main.fault in ((CODE.NOT_FOUND, "nope: é"), (CODE.PERMISSION_DENIED, "not yours"), (CODE.INTERNAL, "")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await begun(channel, "RepositoryModelLoad", metadata=(("x-request-id", "mine"),))
            assert (caught.value.code(), caught.value.details()) == main.fault
            assert ("x-request-id", "mine") in {*caught.value.trailing_metadata()}

    run(tmp_path, test)


def test_a_client_that_does_not_wait_is_not_waited_for_there_either(tmp_path: Path) -> None:
    async def test(channel: Any, main: Main) -> None:
        call = begun(channel, "RepositoryModelUnload")
        await until_async(lambda: len(main.requests) == 1)
        call.cancel()
        await until_async(lambda: main.cancelled == 1)

    run(tmp_path, test)


def test_where_nobody_answers_it_is_unavailable(tmp_path: Path) -> None:
    async def test(channel: Any, _main: Main) -> None:
        (tmp_path / "main").unlink()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await begun(channel, "RepositoryIndex")
        assert caught.value.code() is CODE.UNAVAILABLE

    run(tmp_path, test)


def test_what_a_front_answers_itself_goes_nowhere(tmp_path: Path) -> None:
    async def test(channel: Any, main: Main) -> None:
        assert await begun(channel, "ServerLive") == b"\x08\x01"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await begun(channel, "ModelInfer")
        assert caught.value.code() is CODE.UNAUTHENTICATED
        assert not main.requests

    run(tmp_path, test)


def test_several_share_a_reserved_port_that_nobody_else_gets() -> None:
    async def test() -> None:
        [reserved] = reserved_sockets("127.0.0.1", 0, "grpc_port")
        port = reserved.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
        with reserved, doubling_service() as (service, _):
            service.start()
            servers = [GrpcServer(service, Keys({}), 1 << 20, 100, Forwarding(Path("/nowhere"))) for _ in range(2)]
            with pytest.raises(InvalidInput, match="grpc_port"):
                check_address("127.0.0.1", port, "grpc_port")
            for each in servers:
                assert each.bind(f"127.0.0.1:{port}") == port
                await each.start()
            with pytest.raises(InvalidInput, match="grpc_port"):
                check_address("127.0.0.1", port, "grpc_port")
            with pytest.raises(OSError, match="127"):
                GrpcServer(service, Keys({}), 1 << 20, 100).bind(f"127.0.0.1:{port}")
            for each in servers:
                await each.drain(5.0)
            with pytest.raises(InvalidInput, match="grpc_port"):
                check_address("127.0.0.1", port, "grpc_port")
        check_address("127.0.0.1", port, "grpc_port")

    asyncio.run(test())
