"""Sockets to listen on, bound before anything is loaded."""

from __future__ import annotations

import socket

from twoshift.errors import InvalidInput

__all__ = ["bound_sockets", "check_address", "shown_address"]

_BACKLOG = 2048


def bound_sockets(host: str, port: int, field: str, shared: bool = False) -> list[socket.socket]:
    """One for each address of the host, on the same port; raises InvalidInput that names the setting.

    `shared`: others of this server may listen there, too, and the system deals connections out among them.
    """
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
            made.listen(_BACKLOG)
            made.setblocking(False)
    except OSError as error:
        for each in found:
            each.close()
        accepted = f"a free address of this machine ({error.strerror or error})"
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
