"""Replicas as a deployment of Ray Serve: Ray places, watches, replaces and scales them; requests go past it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import msgspec

from twoshift._version import __version__
from twoshift.batch.ray_pool import connected, fitting_threads
from twoshift.error_codec import decode_error
from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.fleet.control import FromChild, Loaded, LoadFailed, Stop, ToChild
from twoshift.fleet.group import ReplicaGroup, other_model
from twoshift.fleet.link import Link
from twoshift.fleet.listener import TOKEN_BYTES, dial
from twoshift.fleet.ray_board import Board
from twoshift.fleet.ray_replica import LEAVING, Listening, RayGiven, RayReplica
from twoshift.fleet.remote_lane import RemoteReplica
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.fleet.wire import Heartbeat
from twoshift.serve.model_settings import ModelSettings
from twoshift.types import ReplicaCounts

__all__ = ["RayFleet"]

_logger = logging.getLogger("twoshift.fleet")
_HEAR_S = 0.5
_SILENT_S = 10.0  # without an answer to Ray's health check: it hangs
_HEALTH_S = 2.0
_DRAIN_S = 60.0  # for the live requests of a replica that goes
_START_S = 60.0  # for replicas that Ray calls ready to say so themselves
_configuring = threading.Lock()  # Ray Serve's classes of settings are not for two threads at once
_POLICY = "twoshift.fleet.ray_scaling:RayScaling"


class _Line:
    """Control messages by the board, live requests by TCP."""

    same_clock: ClassVar[bool] = False

    def __init__(self, board: Any, replica: str, address: tuple[str, int], token: bytes) -> None:
        self._board, self._replica, self._address, self._token = board, replica, address, token

    def send(self, message: ToChild) -> None:
        self._board.tell.remote(self._replica, (time.monotonic(), message))

    async def take_live(self) -> socket.socket:
        return await dial(self._address, self._token)


@dataclass(slots=True, eq=False)
class _Member:
    """A replica that was ready once."""

    number: int
    child: _Line
    opened: Loaded | None
    link: Link | None = None
    beat: Heartbeat | None = None
    lanes: RemoteReplica | None = None
    gone: str = ""
    was_killed: bool = False  # Ray does not say
    is_leaving: bool = False  # Ray ends it: it finishes what it has


class _Cluster:
    """The cluster of this process: fleets share it, and the last one ends it if this process has begun it."""

    def __init__(self) -> None:
        self._fleets, self._is_ours, self._lock = 0, False, threading.Lock()

    def join(self, address: str | None) -> Any:
        with self._lock:
            ray, is_ours = connected(address)
            self._fleets, self._is_ours = self._fleets + 1, self._is_ours or is_ours
            return ray

    def leave(self, serve: Any) -> None:
        with self._lock:
            self._fleets -= 1
            if self._fleets or not self._is_ours:
                return
            self._is_ours = False
            serve.shutdown()
            needed("ray", "ray", "ray", "engine").shutdown()


_cluster = _Cluster()


class RayFleet:
    """Any thread may ask it; one of its own hears what replicas say."""

    scales_itself: ClassVar[bool] = True

    def __init__(
        self, spec: ReplicaSpec, address: str | None, following: ReplicaGroup, note: Callable[[str], None]
    ) -> None:
        self._name, self._following, self._note = spec.name, following, note
        self.cold_start_s = 0.0  # Ray does not say
        self.crashes = 0  # replicas that have ended by themselves; Ray replaces them
        self._ray = _cluster.join(address)
        self._serve = needed("ray.serve", "ray", "ray", "engine")
        self._application = f"twoshift-{uuid.uuid4().hex[:8]}"
        try:
            self._settings, self._cores = self._placed(spec.settings)
        except BaseException:
            _cluster.leave(self._serve)
            raise
        spec = replace(spec, settings=self._settings, cores=self._cores)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        home = os.environ.get("TWOSHIFT_HOME")
        self._given = RayGiven(__version__, spec, os.getcwd(), home, self._application, self._token)  # noqa: PTH109
        self._board = self._ray.remote(num_cpus=0)(Board).remote()
        self._numbers = itertools.count()
        self._members: dict[str, _Member] = {}
        self._first: Loaded | None = None
        self._failed: Exception | None = None  # what one said that could not load; Ray tries again
        self._refused: Exception | None = None  # one that has loaded another model
        self._starting = 0  # as Ray Serve counts them
        self._lock = threading.Lock()  # guards the members
        self._closed = threading.Event()
        self._hearing = threading.Thread(target=self._hear, name="twoshift-ray", daemon=True)

    def start(self) -> None:
        """Deploy the replicas and wait for them; raises what the first that cannot start says."""
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        self._serve.start(proxy_location="Disabled")  # the doors are here
        self._hearing.start()
        wanted = self._settings.first_replicas
        self._note(f"Starting {wanted} replicas of {self._name} on Ray Serve")
        with _configuring:
            self._deploy()
        self._await(
            lambda: self._refused is not None or len(self.members()) >= wanted or self._closed.is_set(), _START_S
        )
        if self._refused is not None or not self.members():
            why = f"no replica of {self._name} on Ray Serve connected within {_START_S:g} s"
            raise self._refused or Broken(f"{why}; read the logs of the replicas in Ray's dashboard")

    def members(self) -> list[_Member]:
        """Those that take requests."""
        with self._lock:
            return [each for each in self._members.values() if not each.is_leaving]

    def replicas(self) -> ReplicaCounts:
        """Those that can be asked, and those that Ray Serve starts."""
        return ReplicaCounts(len(self.members()), self._starting)

    def scale_to(self, replicas: int) -> None:
        """Ray Serve does, by our policy."""

    def wakes_in_s(self) -> None:
        """A replica is kept."""

    def replace(self, member: _Member, why: str) -> None:
        """It fails Ray's next health check, and Ray starts another one."""
        with self._lock:
            found = [replica for replica, each in self._members.items() if each is member]
        for replica in found:
            self._remove(replica, why)

    def killed(self) -> tuple[int, ...]:
        """Ray does not say."""
        return ()

    def why_none(self) -> str:
        """Why there is no replica, for people."""
        return f"Ray Serve has no running replica of this model; {self._starting} are starting"

    def close(self) -> None:
        """Take the application away; what was connected to stays as it was."""
        self._closed.set()
        with self._lock:
            members = [*self._members.values()]  # those that leave, too: Ray waits until they are let go
        with contextlib.suppress(Exception):  # the cluster may be gone
            for member in members:
                member.child.send(Stop())
            self._serve.delete(self._application)
        if self._hearing.is_alive():
            self._hearing.join()
        with contextlib.suppress(Exception):
            self._ray.kill(self._board)
            _cluster.leave(self._serve)

    # Where they run

    def _placed(self, settings: ModelSettings) -> tuple[ModelSettings, int]:
        """As they are on a node, and cores that all of them have room for."""
        if settings.device.startswith("cuda:"):
            raise InvalidInput("device", settings.device, "cuda, without a number: Ray assigns the GPU")
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cpus = [int(node.get("CPU", 0)) for node in nodes]
        cores = settings.threads or fitting_threads(cpus, settings.max_replicas or settings.first_replicas)
        device = "cpu" if settings.device == "auto" else settings.device
        return msgspec.structs.replace(settings, device=device), cores

    def _deploy(self) -> None:
        settings = self._settings
        needs = {"num_cpus": self._cores, "num_gpus": settings.tensor_parallel * (settings.device == "cuda")}
        deployment = self._serve.deployment(
            RayReplica,
            name=self._name,
            ray_actor_options=needs,
            graceful_shutdown_timeout_s=_DRAIN_S,
            health_check_period_s=_HEALTH_S,
            health_check_timeout_s=_SILENT_S,
            max_constructor_retry_count=2,
            **self._scaling(),
        )
        app = deployment.bind(self._given, self._board)
        try:
            self._serve.run(app, name=self._application, route_prefix=None)
        except RuntimeError as error:
            self._await(lambda: self._failed is not None, 2.0)
            raise self._refused or self._failed or Broken(str(error).strip().splitlines()[-1]) from error

    def _scaling(self) -> dict[str, Any]:
        settings = self._settings
        if not settings.is_scaled:
            return {"num_replicas": settings.first_replicas}
        config = needed("ray.serve.config", "ray", "ray", "engine")
        least, most = settings.min_replicas or 1, settings.max_replicas or settings.first_replicas
        policy = config.AutoscalingPolicy(
            policy_function=_POLICY, policy_kwargs=asdict(settings.scale.replicas(least, most))
        )  # fmt: skip
        every_s = settings.scale.every_s
        return {
            "autoscaling_config": config.AutoscalingConfig(
                min_replicas=least,
                max_replicas=most,
                initial_replicas=settings.first_replicas,
                policy=policy,
                upscale_delay_s=0.0,
                downscale_delay_s=0.0,
                metrics_interval_s=every_s,
                look_back_period_s=2 * every_s,
            )
        }

    # What they say

    def _hear(self) -> None:
        while not self._closed.is_set():
            try:
                self._see_off()
                for replica, message in self._ray.get(self._board.hear.remote(_HEAR_S)):
                    self._heard(replica, message)
                if _configuring.acquire(blocking=False):  # or a model is being deployed, and it is counted later
                    try:
                        self._count()
                    finally:
                        _configuring.release()
            except self._ray.exceptions.RayError:
                self._closed.wait(_HEAR_S)

    def _heard(self, replica: str, message: FromChild | Listening | bytes) -> None:
        member = self._members.get(replica)
        if isinstance(message, Listening):
            self._opened(replica, message)
        elif isinstance(message, LoadFailed):
            self._failed = decode_error(message.error)
        elif member is not None and message == LEAVING:
            member.is_leaving = True
            self._following.leaving(member)
        elif member is not None:
            self._following.said(member, message)  # type: ignore[arg-type]

    def _opened(self, replica: str, message: Listening) -> None:
        line = _Line(self._board, replica, message.address, self._token)
        self._first = self._first or message.loaded
        if why := other_model(self._first, message.loaded):
            self._refused = Broken(f"the replica of {self._name} at {message.address[0]} is refused: {why}")
            _logger.error("%s", self._refused)
            line.send(Stop())
            return
        member = _Member(next(self._numbers), line, message.loaded)
        with self._lock:
            self._members[replica] = member
        self._following.opened(member)

    def _see_off(self) -> None:
        """Those that Ray ends go once they have answered what they have."""
        for replica, member in list(self._members.items()):
            if member.is_leaving and (member.link is None or not member.link.outstanding):
                self._remove(replica, "ended by Ray Serve")

    def _remove(self, replica: str, why: str) -> None:
        with self._lock:
            member = self._members.pop(replica)
        if not member.is_leaving:
            self.crashes += 1
            _logger.error("replica %d of %s has ended: %s", member.number, self._name, why)
        member.gone = why
        member.child.send(Stop())
        self._following.ended(member)

    def _count(self) -> None:
        found = self._serve.status().applications.get(self._application)
        states = found.deployments[self._name].replica_states if found and self._name in found.deployments else {}
        names = ("STARTING", "PENDING_MIGRATION", "RECOVERING", "UPDATING")
        self._starting = sum(states.get(name, 0) for name in names)

    def _await(self, holds: Callable[[], bool], timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while not holds() and time.monotonic() < until_s:
            time.sleep(0.02)
