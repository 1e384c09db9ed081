"""A model whose replicas are a deployment of Ray Serve; the doors, keys and metrics stay in this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from twoshift._version import __version__
from twoshift.batch.ray_pool import connected, fitting_threads
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.error_codec import decode_error
from twoshift.errors import Broken, InvalidInput, Late, TryLater
from twoshift.extras import needed
from twoshift.fleet.control import FromChild, Loaded, LoadFailed, ToChild
from twoshift.fleet.model import answer_of
from twoshift.fleet.ray_board import Board
from twoshift.fleet.ray_replica import LEAVING, RayGiven, RayReplica
from twoshift.fleet.remote_lane import RemoteReplica
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.fleet.sums import NOTHING, derived_together, queues_together, stats_together
from twoshift.fleet.wire import Done, Frames, Heartbeat, Refused, asking, from_replica
from twoshift.ports import RuntimeInfo
from twoshift.serve.completions import Completions
from twoshift.serve.derived import Derived
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import Answer
from twoshift.types import Lane, ReplicaCounts

__all__ = ["RayModel"]

_RETRY_S = 1.0
_REPLY_S = 0.1  # after a deadline, in which the replica's own word for it arrives
_TRIES = 2
_HEAR_S = 0.5
_SILENT_S = 10.0  # without a beat: it is gone
_HEALTH_S = 2.0
_POLICY = "twoshift.fleet.ray_scaling:RayScaling"


@dataclass(slots=True, eq=False)
class _Member:
    """A replica that has said something."""

    number: int
    child: _Line
    opened: Loaded
    heard_s: float
    beat: Heartbeat | None = None
    gone: str = ""
    lanes: RemoteReplica = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = RemoteReplica(self)


class _Line:
    """A way to a replica, by the board."""

    def __init__(self, board: Any, replica: str) -> None:
        self._board, self._replica = board, replica

    def send(self, message: ToChild) -> None:
        self._board.tell.remote(self._replica, (time.monotonic(), message))


class RayModel:
    """For the faces it is a model like any other. Ray Serve chooses the replica; its admission has the last word."""

    def __init__(self, spec: ReplicaSpec, address: str | None, note: Callable[[str], None]) -> None:
        self.name = spec.name
        self._note, self._numbers, self._requests = note, itertools.count(), itertools.count()
        self._ray, self._is_ours = connected(address)
        self._serve = needed("ray.serve", "ray", "ray", "engine")
        self._application = f"twoshift-{uuid.uuid4().hex[:8]}"
        spec = self._placed(spec)
        home = os.environ.get("TWOSHIFT_HOME")
        self._given = RayGiven(__version__, spec, os.getcwd(), home, self._application)  # noqa: PTH109
        self._settings, self._cores = spec.settings, spec.cores
        self._board = self._ray.remote(num_cpus=0)(Board).remote()
        self._members: dict[str, _Member] = {}
        self._failed: Exception | None = None
        self._gone = NOTHING
        self._counts = ReplicaCounts(0)
        self._lock = threading.Lock()  # guards the members
        self._closed = threading.Event()
        self._hearing = threading.Thread(target=self._hear, name="twoshift-ray", daemon=True)

    def begin(self) -> None:
        """Deploy the replicas and wait for them; raises what the first that cannot start says."""
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        self._serve.start(proxy_location="Disabled")  # the doors are here
        self._hearing.start()
        self._note(f"Starting {self._settings.first_replicas} replicas of {self.name} on Ray Serve")
        self._handle = self._deployed()
        self._await(lambda: len(self._members) >= self._settings.first_replicas)
        members = self._there()
        first = members[0].opened
        self._first, self.outputs = first, first.outputs
        self.derived = derived_together([each.opened.derived for each in members])
        self._count()

    def start(self, _completions: Completions) -> None:
        """Ray has loops of its own."""

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self._first.info

    @property
    def most_rows(self) -> int:
        """Of a request: one replica answers it."""
        return self._first.most_rows

    def derived_now(self) -> Derived:
        """From the curves as learned so far."""
        told = [Derived(**each.beat.derived) for each in self._there() if each.beat and each.beat.derived]
        return derived_together(told or [self.derived])

    def health(self) -> Health:
        """Whether a replica can be asked; Ray replaces one that hangs."""
        reason = "" if self._counts.ready else f"Ray Serve has no replica of it, and starts {self._counts.starting}"
        return Health(not reason, reason, 0.0, self.waiting()[Lane.ONLINE].oldest_s)

    def stats(self) -> EngineStats:
        """Of all replicas since the start."""
        return stats_together([self._gone, *(each.beat.stats for each in self._there() if each.beat)])

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for a device."""
        return queues_together([each.beat.waiting for each in self._there() if each.beat])

    def replicas(self) -> ReplicaCounts:
        """As Ray Serve counts them."""
        return self._counts

    def lane_replicas(self) -> list[RemoteReplica]:
        """Those in whose batch lanes jobs may run."""
        return [each.lanes for each in self._there()]

    @property
    def rows_per_request(self) -> float:
        """Not known here: one."""
        return 1.0

    def finish_in_s(self, _size: int, _requests: int, _left_s: float) -> float:
        """Ray Serve chooses the replica, and that one admits."""
        return 0.0

    async def answer(self, request: LiveRequest) -> Answer:
        """As a replica answers it; one that is lost may have begun, so nobody else is asked."""
        if not self._counts.ready:
            raise TryLater(f"no replica can be asked: {self.health().reason}", _RETRY_S)
        frame = asking(next(self._requests), request)
        for left in reversed(range(_TRIES)):
            reply = await self._ask(frame, request)
            if isinstance(reply, Done):
                answer = answer_of(reply)
                answer.stages.finish -= time.monotonic()  # until the reply is made
                return answer
            error = decode_error(reply.error)
            is_last = not left or self._counts.ready < 2 or time.monotonic() >= request.deadline_s
            if not isinstance(error, TryLater) or is_last:
                raise error
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Take the application away; what was connected to stays as it was."""
        self._closed.set()
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._serve.delete(self._application)
        if self._hearing.is_alive():
            self._hearing.join()
        with contextlib.suppress(Exception):
            self._ray.kill(self._board)
            if self._is_ours:
                self._serve.shutdown()
                self._ray.shutdown()

    async def _ask(self, frame: bytes, request: LiveRequest) -> Done | Refused:
        now_s, visit = time.monotonic(), request.visit
        left_s = request.deadline_s - now_s
        if left_s <= 0:
            raise Late("it was not answered by its deadline", begun=False)
        response = self._handle.answer.remote(frame, left_s, now_s - request.arrived_s)
        if visit is not None:
            visit.submitted()
        try:
            async with asyncio.timeout(left_s + _REPLY_S):
                got = await response
            if visit is not None:
                visit.answered(time.monotonic())
            (reply,) = Frames().feed(got)
        except TimeoutError:
            response.cancel()
            raise Late("it was not answered by its deadline") from None
        except asyncio.CancelledError:
            response.cancel()
            raise
        except self._ray.exceptions.RayError as error:
            raise TryLater("the replica that had it was lost", _RETRY_S) from error
        found = from_replica(reply)
        assert isinstance(found, Done | Refused)  # noqa: S101 - what it answers with
        return found

    # Where they run

    def _placed(self, spec: ReplicaSpec) -> ReplicaSpec:
        """With cores that all of them have room for."""
        settings = spec.settings
        if settings.device.startswith("cuda:"):
            raise InvalidInput("device", settings.device, "cuda, without a number: Ray assigns the GPU")
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cpus = [int(node.get("CPU", 0)) for node in nodes]
        cores = settings.threads or fitting_threads(cpus, settings.max_replicas or settings.first_replicas)
        device = "cpu" if settings.device == "auto" else settings.device
        return replace(spec, settings=msgspec.structs.replace(settings, device=device), cores=cores)

    def _deployed(self) -> Any:
        settings = self._settings
        needs = {"num_cpus": self._cores, "num_gpus": int(settings.device == "cuda")}
        deployment = self._serve.deployment(
            RayReplica,
            name=self.name,
            ray_actor_options=needs,
            max_ongoing_requests=max(1, 2 * (settings.max_waiting or 4096)),  # admission is the replica's own
            health_check_period_s=_HEALTH_S,
            health_check_timeout_s=_SILENT_S,
            max_constructor_retry_count=2,
            **self._scaling(),
        )
        app = deployment.bind(self._given, self._board)
        try:
            return self._serve.run(app, name=self._application, route_prefix=None)
        except RuntimeError as error:
            self._await(lambda: self._failed is not None, 2.0)
            raise self._failed or Broken(str(error).strip().splitlines()[-1]) from error

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
                for replica, message in self._ray.get(self._board.hear.remote(_HEAR_S)):
                    self._heard(replica, message)
                self._bury()
                if self._members:
                    self._count()
            except self._ray.exceptions.RayError:
                self._closed.wait(_HEAR_S)

    def _heard(self, replica: str, message: FromChild | bytes) -> None:
        member = self._members.get(replica)
        if isinstance(message, Loaded):
            made = _Member(next(self._numbers), _Line(self._board, replica), message, time.monotonic())
            with self._lock:
                self._members[replica] = made
        elif isinstance(message, LoadFailed):
            self._failed = decode_error(message.error)
        elif member is not None and message == LEAVING:
            self._forget(replica, "")
        elif member is not None and isinstance(message, bytes):
            (frame,) = Frames().feed(message)
            beat = from_replica(frame)
            member.heard_s = time.monotonic()
            member.beat = beat if isinstance(beat, Heartbeat) else member.beat
        elif member is not None and not isinstance(message, bytes):
            member.lanes.hear(message)  # type: ignore[arg-type]

    def _bury(self) -> None:
        """Those that beat no more."""
        for replica, member in list(self._members.items()):
            if time.monotonic() - member.heard_s > _SILENT_S:
                self._forget(replica, f"replica {member.number} has said nothing for {_SILENT_S:g} s")

    def _forget(self, replica: str, why: str) -> None:
        """What it has done stays counted."""
        with self._lock:
            member = self._members.pop(replica)
        member.gone = why
        if member.beat is not None:
            self._gone = stats_together([self._gone, member.beat.stats])

    def _count(self) -> None:
        found = self._serve.status().applications.get(self._application)
        states = found.deployments[self.name].replica_states if found and self.name in found.deployments else {}
        ready = states.get("RUNNING", 0)
        starting = sum(states.get(name, 0) for name in ("STARTING", "PENDING_MIGRATION", "RECOVERING", "UPDATING"))
        self._counts = ReplicaCounts(ready, starting)

    def _there(self) -> list[_Member]:
        with self._lock:
            return list(self._members.values())

    def _await(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
        until_s = time.monotonic() + timeout_s
        while not holds() and time.monotonic() < until_s:
            time.sleep(0.02)
