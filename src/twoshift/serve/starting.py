"""The port while models load: it is bound first, says what is loading, and is handed on once they are loaded."""

from __future__ import annotations

import asyncio
import socket
import threading

from twoshift.endpoints.known import told_openai
from twoshift.errors import InvalidInput, TryLater, TwoshiftError
from twoshift.extras import needed
from twoshift.serve.http.app import App
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.oip import add_oip_health, told_oip
from twoshift.serve.http.operations import add_health
from twoshift.serve.http.server import HttpServer
from twoshift.serve.keys import Keys

__all__ = ["Starting", "bound_sockets", "check_address", "shown_address"]

_RETRY_S = 2.0
_DRAIN_S = 0.5
_BACKLOG = 2048


class Starting:
    """Answers in a thread of its own: loading may hold the main one for minutes."""

    def __init__(self, host: str, port: int) -> None:
        """Raises InvalidInput where nobody can listen there."""
        self._sockets = bound_sockets(host, port, "port")
        self.address = shown_address(host, self._sockets[0].getsockname()[1])
        self._loading = "the server"
        self._loop = needed("uvloop", "serve", "serve", "twoshift").new_event_loop()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._loop.run_until_complete, args=(self._run(),), name="twoshift-starting", daemon=True
        )
        self._ended = asyncio.Event()
        self._thread.start()

    def loading(self, what: str) -> None:
        """This, now."""
        self._loading = what

    def hand_on(self) -> list[socket.socket]:
        """The sockets, on which nobody answers any more; who connects waits for who takes them."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()
            self._loop.close()
            self._thread = None
        sockets, self._sockets = self._sockets, []
        return sockets

    def close(self) -> None:
        """Nobody listens any more, unless they were handed on."""
        for each in self.hand_on():
            each.close()

    def _why(self) -> str:
        return f"{self._loading} is loading"

    async def _run(self) -> None:
        app = _StartingApp(self)
        server = HttpServer(app.handle, app.refused, admit=app.admit)
        await server.start_on([each.dup() for each in self._sockets])
        await self._ended.wait()
        await server.drain(_DRAIN_S)


class _StartingApp(App):
    """Health for those who look at it; everybody else is told to come back."""

    def __init__(self, starting: Starting) -> None:
        super().__init__(told_openai, Keys({}))
        self._why = starting._why
        add_health(self, self._why)
        add_oip_health(self, lambda _model=None: self._why())
        self.tell_below("/v2", told_oip)

    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        reply.close = True  # the next request is another server's
        return reply

    def _unknown(self, path: str) -> TwoshiftError:
        return TryLater(self._why(), _RETRY_S)


def bound_sockets(host: str, port: int, field: str) -> list[socket.socket]:
    """One for each address of the host, on the same port; raises InvalidInput that names the setting."""
    found = list[socket.socket]()
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            made = socket.socket(family, kind, protocol)
            found.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound = port or (found[0].getsockname()[1] if len(found) > 1 else 0)
            made.bind((address[0], bound, *address[2:]))
            made.listen(_BACKLOG)
            made.setblocking(False)
    except OSError as error:
        for each in found:
            each.close()
        accepted = f"an address that is free and ours ({error.strerror or error})"
        raise InvalidInput(field, f"{host}:{port}", accepted) from error
    return found


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))


def check_address(host: str, port: int, field: str) -> None:
    """Raises InvalidInput that names the setting where nobody can listen there now."""
    for each in bound_sockets(host, port, field):
        each.close()


def shown_address(host: str, port: int) -> str:
    """As an address has it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
