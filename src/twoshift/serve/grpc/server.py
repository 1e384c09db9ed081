"""The Open Inference Protocol over gRPC, on the loop of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from twoshift.serve.grpc.calls import unary
from twoshift.serve.grpc.forwarding import FORWARDED, Forwarding
from twoshift.serve.grpc.messages import SERVICE, message
from twoshift.serve.grpc.methods import Methods
from twoshift.serve.grpc.streams import Streams
from twoshift.serve.keys import Keys
from twoshift.serve.service import Service
from twoshift.serve.tls import Pem, TlsFiles

__all__ = ["GrpcServer"]

_OPEN = frozenset(("ServerLive", "ServerReady"))  # no key is needed


class GrpcServer:
    """Answers once `start` was awaited; `drain` ends it in peace."""

    def __init__(
        self,
        service: Service,
        keys: Keys,
        max_message_bytes: int,
        max_calls: int,
        forwarding: Forwarding | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """`forwarding`: this is one of several processes that share a port, and another one has the whole picture."""
        self._forwarding, self._tls = forwarding, tls
        self._methods = Methods(service)
        self._streams = Streams(self._methods.infer, keys)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.server.max_pending_requests", 10_000),  # those beyond are cancelled without a word
                ("grpc.server.max_pending_requests_hard_limit", 20_000),
                ("grpc.so_reuseport", int(forwarding is not None)),  # 0: a port that somebody has is refused
            ],
            maximum_concurrent_rpcs=max_calls,
        )
        self._server.add_generic_rpc_handlers((self._handlers(keys),))

    def bind(self, address: str) -> int:
        """The port of `host:port` or `unix:path`, where connections wait for `start`; raises OSError."""
        try:
            if self._tls is not None and not address.startswith("unix:"):
                return self._server.add_secure_port(address, _credentials(self._tls))
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(str(error).partition(";")[0]) from error  # its rest is for those who develop gRPC

    async def start(self) -> None:
        """From now on."""
        await self._server.start()

    async def drain(self, grace_s: float, hurry: asyncio.Event | None = None) -> bool:
        """Take no call any more, answer those that have come; False where time ran out.

        `hurry`, once it is set, is the end of the time.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + grace_s
        self._streams.stop()
        stopped = asyncio.ensure_future(self._server.stop(grace_s))
        while not stopped.done() and not (hurry and hurry.is_set()):
            await asyncio.wait([stopped], timeout=0.05)
        in_peace = stopped.done() and loop.time() < until_s
        await self._server.stop(None)
        await stopped
        if self._forwarding is not None:
            await self._forwarding.close()
        return in_peace

    def _handlers(self, keys: Keys) -> Any:
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                unary(name, method, None if name in _OPEN else keys),
                request_deserializer=message(f"{name}Request").FromString,
                response_serializer=message(f"{name}Response").SerializeToString,
            )
            for name, method in self._methods.by_name.items()
        }
        if self._forwarding is not None:
            handlers |= {name: grpc.unary_unary_rpc_method_handler(self._forwarding.unary(name)) for name in FORWARDED}
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._streams.handler,
            request_deserializer=message("ModelInferRequest").FromString,
            response_serializer=message("ModelStreamInferResponse").SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _credentials(tls: TlsFiles) -> Any:
    """gRPC asks at each handshake whether there is a newer pair."""
    used = tls.pem

    def newer() -> Any:
        nonlocal used
        if tls.pem is used:
            return None
        used = tls.pem
        return _configuration(used)

    return grpc.dynamic_ssl_server_credentials(_configuration(used), newer)


def _configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)])
