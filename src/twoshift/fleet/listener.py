"""A replica's side of its connection to a server on another machine."""

from __future__ import annotations

import asyncio
import hmac
import socket
import threading

from twoshift.extras import needed
from twoshift.fleet.answering import Answering
from twoshift.fleet.front_connection import FrontConnection, connect_front
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel

__all__ = ["TOKEN_BYTES", "ReplicaListener", "dial"]

TOKEN_BYTES = 32
_CONNECT_S = 5.0


class ReplicaListener:
    """Answers one server, the first that knows the token, on a loop in a thread of its own."""

    def __init__(self, model: ServedModel | ServedLlm, host: str, token: bytes) -> None:
        self._model, self._token = model, token
        self._listening = socket.create_server((host, 0))
        self._listening.setblocking(False)
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        self.answering: Answering | None = None  # once its loop runs
        self.connection: FrontConnection | None = None  # once the server is connected
        run = needed("uvloop", "serve", "serve", "twoshift").run
        threading.Thread(target=lambda: run(self._serve()), name="twoshift-live", daemon=True).start()

    async def _serve(self) -> None:
        self.answering = Answering(self._model, same_clock=False)
        with self._listening:
            while (live := await self._accepted()) is None:
                pass
        live.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = await connect_front(self.answering, live)
        await asyncio.Event().wait()

    async def _accepted(self) -> socket.socket | None:
        loop = asyncio.get_running_loop()
        live, _ = await loop.sock_accept(self._listening)
        given = b""
        try:
            async with asyncio.timeout(_CONNECT_S):
                while len(given) < TOKEN_BYTES and (more := await loop.sock_recv(live, TOKEN_BYTES - len(given))):
                    given += more
        except (OSError, TimeoutError):
            given = b""
        if hmac.compare_digest(given, self._token):
            return live
        live.close()
        return None


async def dial(address: tuple[str, int], token: bytes) -> socket.socket:
    """The server's side; raises OSError."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    live = socket.socket(family, socket.SOCK_STREAM)
    live.setblocking(False)
    live.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            await loop.sock_connect(live, address)
            await loop.sock_sendall(live, token)
    except BaseException:
        live.close()
        raise
    return live
