"""Calls that a front leaves to the process that has the whole picture: passed on as they are, as is what they got."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from twoshift.serve.grpc.messages import SERVICE

__all__ = ["FORWARDED", "Forwarding"]

FORWARDED = ("ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")
_OF_THE_CONNECTION = ("user-agent",)  # gRPC says it itself, and so for this hop


class Forwarding:
    """To a server at a path of this machine. It asks for keys and counts: nothing is looked at here."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{path}",
            options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)],
        )

    def unary(self, name: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """A method as gRPC calls it, with messages that nobody has parsed."""
        method: Any = self._channel.unary_unary(f"/{SERVICE}/{name}")

        async def handler(request: bytes, context: Any) -> bytes:
            call = method(request, timeout=context.time_remaining(), metadata=_passed(context))
            try:
                reply = await call  # and not its status alone: who is cancelled here cancels it there
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata()))
                raise AssertionError from None  # abort has raised
            context.set_trailing_metadata(tuple(await call.trailing_metadata()))
            return reply

        return handler

    async def close(self) -> None:
        """Nothing more is passed on."""
        await self._channel.close()


def _passed(context: Any) -> tuple[tuple[str, str | bytes], ...]:
    given = context.invocation_metadata() or ()
    return tuple((name, value) for name, value in given if name not in _OF_THE_CONNECTION)
