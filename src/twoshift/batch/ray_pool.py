"""Workers of a job as Ray actors: Ray places them, the coordinator replaces those that are lost."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from twoshift._version import __version__
from twoshift.batch.device import WorkDevice
from twoshift.batch.messages import FromWorker, ToWorker
from twoshift.batch.pool import Died
from twoshift.batch.preparing.preparers import NOT_RUNNING
from twoshift.batch.ray_actor import SAY, Given, lost_reason
from twoshift.batch.ray_worker import Note, RayWorker
from twoshift.batch.settings import JobSettings
from twoshift.blobs.environments import bucket_variables
from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.policy.preparing import SPARED_CORES, PreparersPolicy
from twoshift.ports import Blobs
from twoshift.runtime.llm.remote import KEY, is_address

__all__ = ["RayPool", "connected", "fitting_threads"]

_NO_ROOM = (
    "The cluster has too few free CPUs for all preparing processes (one CPU each), so the workers prepare the "
    "remaining rows themselves"
)
_SIGACTION_BYTES = 1024  # more than any system's struct sigaction has
_logger = logging.getLogger("twoshift")


@dataclass(slots=True)
class _Actor:
    handle: Any
    place: int  # among the workers of the job: of one that is lost the next has it
    had: int = 0  # messages of it
    is_up: bool = False  # it has been placed and has said something


class RayPool:
    """An actor each; one for which there is no room yet waits, and whoever is ready works.

    They are never restarted in place: a worker that is lost is said to have died, as everywhere, and a new one started.
    """

    def __init__(
        self, settings: JobSettings, load: Callable[[JobSettings], WorkDevice], blobs_for: Callable[[str], Blobs]
    ) -> None:
        self._ray, self._is_ours = connected(settings.address)
        self._noted = set[str]()  # what the user was told
        device = _device(settings.device)
        threads, self._preparers = self._shares(settings, device)
        self._needs = {
            "num_cpus": threads,
            "num_gpus": settings.tensor_parallel * (device == "cuda"),
            "resources": settings.resources,
        }
        self._warn_of_no_room()
        settings = msgspec.structs.replace(settings, device=device)
        given = Given(__version__, settings, threads, os.getcwd(), _environment(settings), load, blobs_for)  # noqa: PTH109
        self._given = self._ray.put(given)
        self._numbers = itertools.count()
        self._actors: dict[int, _Actor] = {}
        self._calls: dict[Any, int] = {}  # under way -> whose they are
        self._died: list[tuple[int, FromWorker | Died]] = []  # by our hand, not told yet

    def start(self) -> int:
        """A new worker, loading its model as soon as there is room for it."""
        number, taken = next(self._numbers), {actor.place for actor in self._actors.values()}
        place = next(each for each in itertools.count() if each not in taken)
        actor = self._ray.remote(
            **self._needs,
            max_restarts=0,
            concurrency_groups={SAY: 2},  # a second one where the first was lost on the way
            scheduling_strategy="SPREAD",
        )(RayWorker)
        preparers = self._preparers[place % len(self._preparers)]
        self._actors[number] = _Actor(actor.remote(self._given, number, preparers), place)
        self._listen(number)
        return number

    def send(self, worker: int, message: ToWorker) -> None:
        """A message to a worker; lost where it is gone."""
        if worker in self._actors:
            self._calls[self._actors[worker].handle.hear.remote(message)] = worker

    def poll(self, timeout_s: float) -> list[tuple[int, FromWorker | Died]]:
        """What workers have said since, waiting for the first of it; each dead one is named once."""
        heard, self._died = self._died, []
        calls = list(self._calls)
        if not calls:
            time.sleep(0.0 if heard else timeout_s)
            return heard
        ready, _ = self._ray.wait(calls, timeout=0.0 if heard else timeout_s)
        if ready:
            ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0.0)
        for call in ready:
            heard += self._answered(call)
        return heard

    def kill(self, worker: int) -> None:
        """End a worker that hangs; `poll` will say that it died."""
        if worker in self._actors:
            self._died.append((worker, self._bury(worker, "killed")))

    def close(self, grace_s: float) -> None:
        """End them all: in peace where they go in time."""
        up = {number: actor.handle for number, actor in self._actors.items() if actor.is_up}  # others never answer
        closing = [handle.close.remote() for handle in up.values()]
        closing += [call for call, number in self._calls.items() if number in up]
        if closing and grace_s > 0:
            self._ray.wait(closing, num_returns=len(closing), timeout=grace_s)
        for number in tuple(self._actors):
            self._bury(number, "closed")
        if self._is_ours:
            self._ray.shutdown()

    def _listen(self, number: int) -> None:
        actor = self._actors[number]
        # Asking twice does no harm, so Ray may ask again where a connection is lost and the actor is not
        say = actor.handle.say.options(concurrency_group=SAY, max_task_retries=-1)
        self._calls[say.remote(actor.had)] = number

    def _answered(self, call: Any) -> list[tuple[int, FromWorker | Died]]:
        number = self._calls.pop(call, None)
        if number is None:  # it was buried with another call of its own
            return []
        try:
            said = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            return [(number, self._bury(number, lost_reason(error)))]
        if said is None:  # it has heard
            return []
        actor = self._actors[number]
        actor.had, actor.is_up = actor.had + len(said), True
        self._listen(number)
        for message in said:
            if isinstance(message, Note):
                self._warn_once(message.told)
        return [(number, message) for message in said if not isinstance(message, Note)]

    def _bury(self, number: int, reason: str) -> Died:
        gone = self._actors.pop(number)
        self._calls = {call: whose for call, whose in self._calls.items() if whose != number}
        with contextlib.suppress(self._ray.exceptions.RayError):  # it may work on where only we have lost it
            self._ray.kill(gone.handle)
        return Died(reason)

    # Where there is room

    def _shares(self, settings: JobSettings, device: str) -> tuple[int, tuple[PreparersPolicy, ...]]:
        """Threads of a worker, and how many preparing actors each one may have beside them."""
        on_cpu, workers = device == "cpu", settings.most_workers
        fitting = self._nodes({**settings.resources, "GPU": int(not on_cpu)})
        cpus, total = _cpus(fitting), sum(_cpus(self._nodes({})))
        asked = settings.preparers if settings.text is not None else 0  # only texts are prepared elsewhere
        threads = settings.threads or fitting_threads(cpus, workers, asked or 0, total - sum(cpus))
        if settings.threads is None and asked is None and not on_cpu:
            threads = min(threads, SPARED_CORES)  # the others are for what prepares its rows
        free_cpus = max(0, total - threads * workers)
        if asked is not None and asked > free_cpus:
            self._warn_once(_NO_ROOM)
            self._noted.add(NOT_RUNNING)  # is told by that
        return threads, PreparersPolicy.on_cluster(free_cpus, workers, on_cpu, asked)

    def _warn_once(self, told: str) -> None:
        """Several workers may say the same."""
        if told not in self._noted:
            self._noted.add(told)
            _logger.warning("%s", told)

    def _nodes(self, wanted: dict[str, float]) -> list[dict[str, float]]:
        """The resources of each node that has as much as is wanted of each."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [node for node in nodes if all(node.get(name, 0) >= amount for name, amount in wanted.items())]

    def _warn_of_no_room(self) -> None:
        wanted = {"CPU": self._needs["num_cpus"], "GPU": self._needs["num_gpus"], **self._needs["resources"]}
        if not self._nodes(wanted):
            told = ", ".join(f"{amount:g} {name}" for name, amount in wanted.items() if amount)
            _logger.warning("No node of the Ray cluster has %s, which each worker needs; waiting for such a node", told)


def fitting_threads(cpus: list[int], workers: int, beside: int = 0, elsewhere: int = 0) -> int:
    """The most threads of each worker with which all of them have room on nodes of so many CPUs.

    So many more CPUs are to be left `beside` them, which may also lie `elsewhere`: on nodes without room for a worker.
    """
    most = min(max(cpus, default=1), (sum(cpus) + elsewhere - beside) // workers)
    fitting = (n for n in range(most, 1, -1) if sum(count // n for count in cpus) >= workers)
    return next(fitting, 1)


def connected(address: str | None) -> tuple[Any, bool]:
    """Ray, and whether it was us who connected; raises InvalidInput where no cluster is there."""
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # whoever wants its makers to know says so
    if address != "local":
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # or it asks a cluster that is gone for 12 minutes
    ray = needed("ray", "ray", "ray", "engine")
    if ray.is_initialized():
        return ray, False
    try:
        _connect(ray, address)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        why = str(error).strip().splitlines()[0]
        raise InvalidInput(
            "address", address, f"the address of a running Ray cluster: auto or host:port ({why})"
        ) from error
    return ray, True


def _connect(ray: Any, address: str) -> None:
    """By a thread that stays: the system ends the processes of a local Ray with the thread that has started them."""
    connected = Future[None]()
    own = {"include_dashboard": False} if address == "local" else {}  # it ends with us: nobody looks at it

    def stay() -> None:
        try:
            with _sigterm_as_it_is():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except BaseException as error:
            connected.set_exception(error)
            return
        connected.set_result(None)
        threading.Event().wait()

    threading.Thread(target=stay, name="twoshift-ray-home", daemon=True).start()
    connected.result()


@contextlib.contextmanager
def _sigterm_as_it_is() -> Iterator[None]:
    """Ray takes SIGTERM for itself, and its handler aborts the process three seconds later, whatever that has to do."""
    libc, before = ctypes.CDLL(None), ctypes.create_string_buffer(_SIGACTION_BYTES)
    libc.sigaction(signal.SIGTERM, None, before)  # Python's own way is for its main thread only
    try:
        yield
    finally:
        libc.sigaction(signal.SIGTERM, before, None)


def _cpus(nodes: list[dict[str, float]]) -> list[int]:
    return [int(node.get("CPU", 0)) for node in nodes]


def _device(asked: str) -> str:
    """As a worker knows it: Ray shows each one its own GPU and no other."""
    if asked.startswith("cuda:"):
        raise InvalidInput("device", asked, "cuda, without a number: Ray assigns the GPU")
    return "cpu" if asked == "auto" else asked


def _environment(settings: JobSettings) -> dict[str, str]:
    """What says how storage, and a model on another server, are reached, where the job needs it."""
    registry = settings.registry or os.environ.get("TWOSHIFT_REGISTRY", "")
    places = (name.removeprefix("@") for name in (*settings.inputs, settings.output, registry))
    found = bucket_variables(places, os.environ)
    if is_address(settings.model) and KEY in os.environ:
        found[KEY] = os.environ[KEY]
    return found
