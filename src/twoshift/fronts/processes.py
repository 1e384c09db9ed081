"""Front processes for a server: whether it has some, what they share, and how many there are."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from twoshift.errors import InvalidInput
from twoshift.fleet.live_folder import LiveFolder
from twoshift.fronts.group import FrontGroup
from twoshift.fronts.process import FrontSpec
from twoshift.policy.fronts import LEAST_CORES, fronts_wanted
from twoshift.ports import Blobs
from twoshift.serve.keys import Keys
from twoshift.serve.listening import bound_sockets, check_address, reserved_sockets, shown_address
from twoshift.serve.service import Service
from twoshift.serve.settings import ServeSettings
from twoshift.serve.shared_limits import SharedLimits

__all__ = ["FrontProcesses", "uses_fronts"]

_MOST_FRONTS = 64
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own there: what is written often does not go to a disk
_ROOM_BYTES = 64 << 20  # that must be free there
_MAIN = 0  # the number of the process that has them; fronts count from 1


def uses_fronts(settings: ServeSettings, cores: int, is_program: bool) -> bool:
    """Whether live requests are taken by processes of their own; in a script only where it says so."""
    if settings.fronts is not None:
        return settings.fronts > 1
    may_sleep = any(each.min_replicas == 0 for each in settings.models.values())
    return is_program and settings.engine == "local" and cores >= LEAST_CORES and not may_sleep


class FrontProcesses:
    """Bound to the ports; they start with `group.start`."""

    def __init__(
        self, settings: ServeSettings, service: Service, cores: int, blobs_for: Callable[[str], Blobs]
    ) -> None:
        """Raises InvalidInput where nobody can listen there."""
        self._settings, self._service, self._cores = settings, service, cores
        check_address(settings.host, settings.port, "port")  # alone: whoever shares a port sees no other server there
        self._first: list[socket.socket] | None = bound_sockets(settings.host, settings.port, "port", shared=True)
        self.port: int = self._first[0].getsockname()[1]
        try:
            self._grpc_sockets = _reserved_for_grpc(settings)
        except InvalidInput:
            for each in self._first:
                each.close()
            raise
        self.grpc_address = (
            shown_address(settings.host, self._grpc_sockets[0].getsockname()[1]) if self._grpc_sockets else None
        )
        self._folder = LiveFolder.make(_in_memory())
        self.handover, self.grpc_path, limits = (self._folder.path / name for name in ("handover", "grpc", "limits"))
        SharedLimits.create(limits, settings.keys, settings.tenants, _MOST_FRONTS + 1)
        self.limits = SharedLimits.open(limits, _MAIN)
        self.keys = Keys(settings.keys, tenants=settings.tenants, shared=self.limits)
        spec = FrontSpec(settings, self.handover, self.grpc_address, self.grpc_path, limits, blobs_for)
        self.group = FrontGroup(spec, service, self.keys, self._wanted, self._bind)
        service.fronts = self.group.counts

    def close(self) -> None:
        """End them."""
        self.group.close()
        for each in (*(self._first or ()), *self._grpc_sockets):
            each.close()
        self._folder.remove()

    def _wanted(self) -> int:
        """As many as were asked for, or as requests at the devices' speed would keep busy."""
        if self._settings.fronts is not None:
            return self._settings.fronts
        service, request_s = self._service, self.group.counts.one_request_s
        replicas = sum(each.replicas().ready for each in service.models.values())
        return fronts_wanted(service.device_requests_per_s(), request_s, self._cores, max(1, replicas))

    def _bind(self) -> list[socket.socket]:
        first, self._first = self._first, None
        return first or bound_sockets(self._settings.host, self.port, "port", shared=True)


def _reserved_for_grpc(settings: ServeSettings) -> list[socket.socket]:
    """Fronts listen there with sockets that gRPC makes itself; the port stays this server's when all of them crash."""
    if settings.grpc_port is None:
        return []
    check_address(settings.host, settings.grpc_port, "grpc_port")
    return reserved_sockets(settings.host, settings.grpc_port, "grpc_port")


def _in_memory() -> Path | None:
    """None: there is no such folder, or no room in it."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return None
    return _MEMORY
