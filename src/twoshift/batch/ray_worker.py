"""A job's worker as a Ray actor: hears what it should do, and says what it has to when asked."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from twoshift.batch.messages import Begin, FromWorker, ToWorker, Unusable
from twoshift.batch.plan import plan_location
from twoshift.batch.preparing.ray_line import RayPlaces
from twoshift.batch.ray_actor import SHARED, Given, Outbox, problem_here, settle_in
from twoshift.batch.ray_drain import node_drains
from twoshift.batch.worker import ShardWorker
from twoshift.errors import Broken
from twoshift.policy.preparing import PreparersPolicy

__all__ = ["Note", "RayWorker"]


@dataclass(frozen=True, slots=True)
class Note:
    """For whoever runs the job; its coordinator has nothing to do about it."""

    told: str


class RayWorker:
    """Calls of `hear` come one at a time; `say` waits beside them."""

    def __init__(self, given: Given, number: int, preparers: PreparersPolicy) -> None:
        self._outbox = Outbox[FromWorker | Note]()
        self._node, self._blobs_for = os.uname().nodename, given.blobs_for
        settle_in(given, given.threads)
        name, places = f"{self._node}:{number}", RayPlaces(given, preparers, self._note)
        self._worker = ShardWorker(
            given.settings, name, given.load, given.blobs_for, self._outbox.put, places=places
        )  # fmt: skip
        self._worker.watch_for_notice(node_drains)
        problem = problem_here(given)
        if problem is None:  # beside us, so that the pool hears that there was room for it
            threading.Thread(target=self._worker.start, name="twoshift-load", daemon=True).start()
        else:
            self._outbox.put(Unusable(Broken(f"node {self._node}: {problem}")))

    def hear(self, message: ToWorker) -> None:
        """Do what it says, or begin to."""
        if isinstance(message, Begin) and not self._sees(plan_location(message.output)):
            self._outbox.put(
                Unusable(
                    Broken(f"node {self._node}: {message.output} contains no plan.json; {SHARED}"), is_beginning=True
                )
            )
            return
        self._worker.handle(message)

    def say(self, had: int) -> list[FromWorker | Note]:
        """Every message after the first `had`, waiting a while for one."""
        return self._outbox.take(had)

    def close(self) -> None:
        """Give up what is in work and let the model go; nobody waits for a message after it."""
        self._worker.close()
        self._outbox.close()

    def _note(self, told: str) -> None:
        self._outbox.put(Note(told))

    def _sees(self, location: str) -> bool:
        return self._blobs_for(location).stat(location) is not None
