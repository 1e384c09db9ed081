"""A preparing actor, as its worker reaches it: calls of its methods, and arrays in Ray's object store."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from twoshift.batch.preparing.actor import Arrived, PreparingActor
from twoshift.batch.preparing.line import Unfit
from twoshift.batch.preparing.messages import FromPreparer, Submitted, ToPreparer
from twoshift.batch.ray_actor import SAY, Given, lost_reason
from twoshift.extras import needed
from twoshift.policy.preparing import PreparersPolicy
from twoshift.ports import Columns

__all__ = ["RayLine", "RayPlaces"]


class RayLine:
    """A PreparerLine. Ray ends the actor with the worker that has started it."""

    def __init__(self, ray: Any, given: Any) -> None:
        self._ray = ray
        # Ray's default strategy takes nodes without GPUs first where none is asked for; SPREAD does not
        actor = ray.remote(num_cpus=1, num_gpus=0, max_restarts=0, concurrency_groups={SAY: 2})(PreparingActor)
        self._handle = actor.remote(given)
        self._place, self._reason = "", ""
        self._heard = deque[FromPreparer | None]()
        self._had = 0  # messages of it

    def wait_for_room(self) -> None:
        """Until it has a node that will do; raises Unfit."""
        arrived: Arrived = self._called("arrived")
        self._place = arrived.place
        if arrived.problem is not None:
            raise Unfit(f"{self._place} cannot run on its node: {arrived.problem}")

    def begin(self, given: bytes) -> None:
        """A Given, pickled; raises Unfit."""
        if (problem := self._called("begin", given)) is not None:
            raise Unfit(f"{self._place} {problem}")

    def send(self, message: ToPreparer | None) -> None:
        """Once it has heard it, so that one that is lost on the way is not waited for."""
        self._called("hear", message)

    def receive(self) -> FromPreparer:
        """What it says next; raises EOFError after the last."""
        while not self._heard:
            with self._while_there():
                # Asking twice does no harm, so Ray may ask again where a connection is lost and the actor is not
                say = self._handle.say.options(concurrency_group=SAY, max_task_retries=-1)
                self._heard.extend(self._ray.get(say.remote(self._had)))
        self._had += 1
        if (message := self._heard.popleft()) is None:
            self._reason = "its connection was closed"
            raise EOFError
        return message

    def rows_of(self, block: Submitted) -> Columns:
        """As they lie in the store: nobody writes to them, and they stay for as long as these arrays do."""
        with self._while_there():
            return self._ray.get(block.arrays)

    def put_results(self, block: Submitted, columns: Columns) -> Any:
        """A reference to them."""
        with self._while_there():
            return self._ray.put(dict(columns))

    def kill(self) -> None:
        """Whether it runs or waits for room."""
        with contextlib.suppress(self._ray.exceptions.RayError):  # it is gone
            self._ray.kill(self._handle)

    def ending(self) -> str:
        """As Ray has it."""
        return f"{self._place} was lost: {self._reason}"

    def close(self) -> None:
        """Nobody asks it any more."""
        self.kill()

    def _called(self, method: str, *given: Any) -> Any:
        with self._while_there():
            return self._ray.get(getattr(self._handle, method).remote(*given))

    @contextlib.contextmanager
    def _while_there(self) -> Iterator[None]:
        """Raises ConnectionError where Ray has lost it, or something of it: what is half there is killed."""
        try:
            yield
        except self._ray.exceptions.RayError as error:
            self._reason = self._reason or lost_reason(error)
            self.kill()
            raise ConnectionError(self._reason) from error


class RayPlaces:
    """CPUs of a cluster, wherever one is free."""

    is_at_once = False

    def __init__(self, given: Given, preparers: PreparersPolicy, note: Callable[[str], None]) -> None:
        self._given, self._policy, self._note = given, preparers, note
        self._noted = set[str]()
        self._stored: Any = None  # what every actor begins with, once there is one

    def policy(self, on_cpu: bool) -> PreparersPolicy:
        """The worker's share, which does not depend on its own cores."""
        return self._policy

    def start(self) -> RayLine:
        """A new actor, which may have to wait for room."""
        ray = needed("ray", "ray", "ray", "engine")
        self._stored = self._stored or ray.put(self._given)
        return RayLine(ray, self._stored)

    def note(self, told: str) -> None:
        """Once each."""
        if told not in self._noted:
            self._noted.add(told)
            self._note(told)
