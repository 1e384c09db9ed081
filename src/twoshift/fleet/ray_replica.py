"""A replica as Ray Serve runs it: the same model, engine and admission; Ray starts, watches and replaces it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twoshift._version import __version__
from twoshift.config import home
from twoshift.error_codec import encode_error
from twoshift.errors import Broken, TryLater
from twoshift.extras import needed
from twoshift.fleet.answering import beat_of, done_of
from twoshift.fleet.control import Follow, FromChild, Loaded, LoadFailed, Stop
from twoshift.fleet.observer import FleetObserver, ModelCounts
from twoshift.fleet.replica_jobs import JobDesk
from twoshift.fleet.replica_process import ReplicaSpec, sendable
from twoshift.fleet.scaling import model_counts
from twoshift.fleet.wire import Ask, Frames, Refused, framed, to_replica
from twoshift.runtime.devices import share_threads
from twoshift.serve.completions import Completions
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import ServedModel
from twoshift.types import ReplicaCounts

__all__ = ["LEAVING", "RayGiven", "RayReplica"]

LEAVING = b""  # in place of a beat: Ray ends it, in peace

_BEAT_S = 1.0
_LISTEN_S = 10.0


@dataclass(frozen=True, slots=True)
class RayGiven:
    """What a replica starts with; all of it travels to its node."""

    version: str  # of the front's Twoshift
    spec: ReplicaSpec
    folder: str  # in which the command was run: relative names begin there
    home: str | None  # TWOSHIFT_HOME of the command
    application: str


class RayReplica:
    """Ray Serve's loop calls it; two threads of its own keep up with the board."""

    def __init__(self, given: RayGiven, board: Any) -> None:
        serve = needed("ray.serve", "ray", "ray", "engine")
        self._board, self._application = board, given.application
        self._me = serve.get_replica_context().replica_id.unique_id
        self._offered = self._refused = 0  # live rows
        self._started = False
        try:
            self._model = _opened(given)
        except Exception as error:
            self._say(LoadFailed(encode_error(error)))
            raise
        model = self._model
        self._observer = FleetObserver(self._counts, list, _Itself())
        self._say(Loaded(sendable(model.info), model.derived, model.outputs, model.most_rows, model.engine.cost()))
        desk = JobDesk(model.engine, self._say)
        self._closed = threading.Event()
        for target, args in ((self._listen, (desk,)), (self._beat, ())):
            threading.Thread(target=target, args=args, daemon=True).start()

    async def answer(self, frame: bytes, left_s: float, ago_s: float) -> bytes:
        """A request as a replica process has it, with times as they are left: clocks differ between machines."""
        (asked,) = Frames().feed(frame)
        ask = to_replica(asked)
        assert isinstance(ask, Ask)  # noqa: S101 - nothing else is sent here
        if not self._started:
            self._model.start(Completions())
            self._started = True
        now_s = time.monotonic()
        rows: Sequence[Any] = [tuple(row) for row in ask.rows] if ask.pairs else ask.rows
        self._offered += len(rows)
        try:
            answer = await self._model.answer(LiveRequest(rows, now_s + left_s, now_s - ago_s, ask.tenant))
            answer.stages.finish = 0.0  # it ends on another clock
            return framed(done_of(ask.id, answer))
        except Exception as error:
            self._refused += len(rows) if isinstance(error, TryLater) else 0
            return framed(Refused(ask.id, encode_error(error)))

    def check_health(self) -> None:
        """Ray replaces it where this raises."""
        health = self._model.health()
        if not health.healthy:
            raise Broken(health.reason)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What `RayScaling` decides by."""
        now = self._observer.observe(time.monotonic()).replicas
        return {
            "waiting_rows": now.waiting,
            "oldest_wait_s": now.oldest_wait_s,
            "live_rows_per_s": now.live_rows_per_s,
            "refused_rows_per_s": now.refused_rows_per_s,
            "capacity_rows_per_s": now.replica_rows_per_s,
            "harvested_rows_per_s": now.harvested_rows_per_s,
        }

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self._closed.set()
            self._say(LEAVING)
            self._model.close()

    def _say(self, message: FromChild | bytes) -> None:
        self._board.say.remote(self._me, message)

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            derived = self._model.derived_now().to_dict()
            self._say(framed(beat_of(self._model, None, derived)))

    def _listen(self, desk: JobDesk) -> None:
        ray = needed("ray", "ray", "ray", "engine")
        while not self._closed.is_set():
            try:
                messages = ray.get(self._board.listen.remote(self._me, _LISTEN_S))
            except ray.exceptions.RayError:
                self._leave()
                return
            for sent_s, message in messages:
                if isinstance(message, Stop):
                    desk.close()
                    continue
                desk.handle(_here(message, time.monotonic() - sent_s))

    def _leave(self) -> None:
        """The front is gone: its application must not stay behind."""
        serve = needed("ray.serve", "ray", "ray", "engine")
        with contextlib.suppress(Exception):  # another replica does the same
            serve.delete(self._application, _blocking=False)

    def _counts(self) -> ModelCounts:
        return model_counts(self._model, self._offered, self._refused)


class _Itself:
    """The fleet of which a replica tells: Ray's controller sums over all."""

    def replicas(self) -> ReplicaCounts:
        return ReplicaCounts(1)

    def scale_to(self, replicas: int) -> None:
        """Ray does."""


def _opened(given: RayGiven) -> ServedModel:
    if given.version != __version__:
        raise Broken(f"this node has Twoshift {__version__}, the server {given.version}: install the same everywhere")
    with contextlib.suppress(OSError):  # a node without the folder is found out where a name begins there
        os.chdir(given.folder)
    if given.home is not None:
        os.environ["TWOSHIFT_HOME"] = given.home
    spec = given.spec
    if spec.cores is not None:
        share_threads(spec.cores)
    with _first_alone():
        return spec.open_model(spec.name, spec.settings, lambda _: None)


@contextlib.contextmanager
def _first_alone() -> Iterator[None]:
    """The first replica of a node measures in peace; the others then read what it has stored, side by side."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "opening").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _here(message: Any, offset_s: float) -> Any:
    """On this machine's clock."""
    if isinstance(message, Follow):
        return replace(message, deadline_s=message.deadline_s + offset_s)
    return message
