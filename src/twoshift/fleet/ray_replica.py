"""A replica as Ray Serve runs it: the same model, engine and admission; Ray starts, watches and replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from twoshift._version import __version__
from twoshift.error_codec import encode_error
from twoshift.errors import Broken
from twoshift.extras import needed
from twoshift.fleet.control import Follow, FromChild, Loaded, LoadFailed, Stop
from twoshift.fleet.listener import ReplicaListener
from twoshift.fleet.observer import FleetObserver, ModelCounts
from twoshift.fleet.replica_jobs import ReplicaJobs
from twoshift.fleet.replica_process import ReplicaSpec, loaded_of
from twoshift.fleet.scaling import model_counts
from twoshift.runtime.devices import share_threads
from twoshift.runtime.load_limit import LoadLimit
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel
from twoshift.types import ReplicaCounts

__all__ = ["LEAVING", "Listening", "RayGiven", "RayReplica"]

LEAVING = b""  # Ray ends it, in peace

_LISTEN_S = 10.0


@dataclass(frozen=True, slots=True)
class RayGiven:
    """What a replica starts with; all of it travels to its node."""

    version: str  # of the front's Twoshift
    spec: ReplicaSpec
    folder: str  # in which the command was run: relative names begin there
    home: str | None  # TWOSHIFT_HOME of the command
    application: str
    token: bytes  # by which it knows its server


@dataclass(frozen=True, slots=True)
class Listening:
    """The model is loaded and warm; live requests go there."""

    loaded: Loaded
    address: tuple[str, int]


class RayReplica:
    """Ray Serve's loop calls it; threads of its own answer the server and keep up with the board."""

    def __init__(self, given: RayGiven, board: Any) -> None:
        serve = needed("ray.serve", "ray", "ray", "engine")
        self._board, self._application = board, given.application
        self._me = serve.get_replica_context().replica_id.unique_id
        try:
            self._model = model = _opened(given)
        except Exception as error:
            self._say(LoadFailed(encode_error(error)))
            raise
        self._observer = FleetObserver(self._counts, list, _Itself())
        self._released = threading.Event()  # the server needs it no more
        host = needed("ray", "ray", "ray", "engine").util.get_node_ip_address()
        self._listener = ReplicaListener(model, host, given.token)
        self._say(Listening(loaded_of(model), self._listener.address))
        jobs = ReplicaJobs(model.engine, self._say)
        threading.Thread(target=self._listen, args=(jobs,), daemon=True).start()

    def check_health(self) -> None:
        """Ray replaces it where this raises."""
        health, connection = self._model.health(), self._listener.connection
        if not health.healthy:
            raise Broken(health.reason)
        if self._released.is_set() or (connection is not None and connection.is_lost):
            raise Broken("the server no longer uses this replica, so Ray replaces the replica")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What `RayScaling` decides by."""
        return self._observer.observe(time.monotonic()).replicas.told()

    async def __del__(self) -> None:
        """Ray ends it: the server hears of it first, and lets it go once it has what it asked for."""
        if hasattr(self, "_released"):
            self._say(LEAVING)
            await asyncio.to_thread(self._released.wait)
            self._model.close()

    def _say(self, message: FromChild | Listening | bytes) -> None:
        self._board.say.remote(self._me, message)

    def _listen(self, jobs: ReplicaJobs) -> None:
        ray = needed("ray", "ray", "ray", "engine")
        while not self._released.is_set():
            try:
                messages = ray.get(self._board.listen.remote(self._me, _LISTEN_S))
            except ray.exceptions.RayError:
                self._released.set()
                self._leave()
                return
            for sent_s, message in messages:
                if isinstance(message, Stop):
                    jobs.close()
                    self._released.set()
                    return
                jobs.handle(_here(message, time.monotonic() - sent_s))

    def _leave(self) -> None:
        """The front is gone: its application must not stay behind."""
        serve = needed("ray.serve", "ray", "ray", "engine")
        with contextlib.suppress(Exception):  # another replica does the same
            serve.delete(self._application, _blocking=False)

    def _counts(self) -> ModelCounts:
        counted = self._model if isinstance(self._model, ServedLlm) else self._listener.answering
        offered, refused = (counted.offered_rows, counted.refused_rows) if counted is not None else (0, 0)
        return model_counts(self._model, offered, refused)


class _Itself:
    """The fleet of which a replica tells: Ray's controller sums over all."""

    def replicas(self) -> ReplicaCounts:
        return ReplicaCounts(1)

    def scale_to(self, replicas: int) -> None:
        """Ray does."""


def _opened(given: RayGiven) -> ServedModel | ServedLlm:
    if given.version != __version__:
        raise Broken(
            f"this node has Twoshift {__version__}, but the server has {given.version}: install the same version on "
            "every node"
        )
    with contextlib.suppress(OSError):  # a node without the folder is found out where a name begins there
        os.chdir(given.folder)
    if given.home is not None:
        os.environ["TWOSHIFT_HOME"] = given.home
    spec = given.spec
    if spec.cores is not None:
        share_threads(spec.cores)
    with LoadLimit(spec.settings.model, spec.settings.load_timeout_s):
        return spec.open_model(spec.name, spec.settings, lambda _: None)


def _here(message: Any, offset_s: float) -> Any:
    """On this machine's clock."""
    if isinstance(message, Follow):
        return replace(message, deadline_s=message.deadline_s + offset_s)
    return message
