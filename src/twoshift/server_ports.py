"""The ports of a server: its own sockets, or those that front processes share."""

from __future__ import annotations

import socket

from twoshift.fronts.processes import FrontProcesses, uses_fronts
from twoshift.runtime.devices import usable_threads
from twoshift.serve.front import Front
from twoshift.serve.keys import Keys
from twoshift.serve.listening import bound_sockets, check_address, shown_address
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings
from twoshift.serve.tls import TlsFiles, tls_files
from twoshift.wiring.blob_stores import blobs_for

__all__ = ["ServerPorts"]


class ServerPorts:
    """Bound before a model is loaded, and open from then on."""

    def __init__(self, settings: ServeSettings, service: Service) -> None:
        self._settings, self._service = settings, service
        self.keys = Keys(settings.keys, tenants=settings.tenants)
        self.fronts: FrontProcesses | None = None  # where processes of their own take the live requests
        self._tls: TlsFiles | None = None
        self._sockets: list[socket.socket] = []

    def bind(self, owns_process: bool) -> str:
        """The address that clients use; raises InvalidInput where nobody can listen there."""
        settings = self._settings
        self._tls = tls_files(settings)
        if uses_fronts(settings, usable_threads(), owns_process):
            self.fronts = FrontProcesses(settings, self._service, usable_threads(), blobs_for)
            self.keys, port = self.fronts.keys, self.fronts.port
        else:
            if settings.grpc_port is not None:
                check_address(settings.host, settings.grpc_port, "grpc_port")
            self._sockets = bound_sockets(settings.host, settings.port, "port")
            port = self._sockets[0].getsockname()[1]
        return f"{'http' if self._tls is None else 'https'}://{shown_address(settings.host, port)}"

    def front(self) -> Front:
        """Who answers here."""
        counts = self.fronts and self.fronts.limits.connections
        return Front(self._service, self._settings, self.keys, counts, self._tls)

    async def open(self, front: Front) -> str | None:
        """Take connections; the address of gRPC, where there is one."""
        if self.fronts is None:
            sockets, self._sockets = self._sockets, []
            return await front.open(sockets)
        await front.open_behind(self.fronts.handover, self.fronts.grpc_path)
        self.fronts.group.start()
        return self.fronts.grpc_address

    def close(self) -> None:
        """Let go of what was bound; front processes end."""
        for each in self._sockets:
            each.close()
        if self.fronts is not None:
            self.fronts.close()
