"""Sockets to listen on, bound before anything is loaded."""

from __future__ import annotations

import socket
from collections.abc import Callable

from twoshift.errors import InvalidInput

__all__ = ["bound_sockets", "check_address", "reserved_sockets", "shown_address"]

_BACKLOG = 2048


def bound_sockets(host: str, port: int, field: str, shared: bool = False) -> list[socket.socket]:
    """One for each address of the host, on the same port; raises InvalidInput that names the setting.

    `shared`: others of this server may listen there, too, and the system deals connections out among them.
    """

    def listen(made: socket.socket) -> None:
        made.listen(_BACKLOG)
        made.setblocking(False)

    return _bound(host, port, field, shared, listen)


def reserved_sockets(host: str, port: int, field: str) -> list[socket.socket]:
    """The same without listening: while they are open, this user's processes that share the port may, and no others."""

    def keep(made: socket.socket) -> None:
        # or who comes with this option could listen as long as nobody else does
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)

    return _bound(host, port, field, True, keep)


def _bound(
    host: str, port: int, field: str, shared: bool, then: Callable[[socket.socket], None]
) -> list[socket.socket]:
    found = list[socket.socket]()
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            made = socket.socket(family, kind, protocol)
            found.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound = port or (found[0].getsockname()[1] if len(found) > 1 else 0)
            made.bind((address[0], bound, *address[2:]))
            then(made)
    except OSError as error:
        for each in found:
            each.close()
        accepted = f"a free address of this machine: use another port or host ({error.strerror or error})"
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
