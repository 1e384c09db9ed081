"""A preparing process as a Ray actor, from inside: on any node, CPUs are all that it asks for."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass

import pyarrow as pa

from twoshift.batch.preparing.fingerprint import rows_fingerprint
from twoshift.batch.preparing.messages import FromPreparer, ToPreparer
from twoshift.batch.preparing.messages import Given as Task
from twoshift.batch.preparing.object_store import StoredBlocks
from twoshift.batch.preparing.shard_preparer import ShardPreparer
from twoshift.batch.ray_actor import Given, Outbox, problem_here, settle_in
from twoshift.extras import needed

__all__ = ["Arrived", "PreparingActor"]


@dataclass(frozen=True, slots=True)
class Arrived:
    """There was room for it."""

    place: str  # its node, and its process there
    problem: str | None  # why it could do nothing there


class PreparingActor:
    """Calls of `hear` come one at a time; `say` waits beside them."""

    def __init__(self, given: Given) -> None:
        self._outbox = Outbox[FromPreparer | None]()  # None: it was the last
        self._given, self._node = given, os.uname().nodename
        self._preparer: ShardPreparer | None = None
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one CPU is its own
        settle_in(given, threads=1)
        pa.set_cpu_count(1)

    def arrived(self) -> Arrived:
        """Where it is."""
        return Arrived(f"on {self._node} ({os.getpid()})", problem_here(self._given))

    def begin(self, given: bytes) -> str | None:
        """Its task; why it cannot do it."""
        try:
            task: Task = pickle.loads(given)  # noqa: S301 - of the worker that has started us
            is_same = rows_fingerprint(task.preparer) == task.fingerprint
        except Exception as error:  # a package that is not there, for one: no shard is to blame
            return f"cannot prepare rows ({type(error).__name__}: {error}): install the same packages on every node"
        if not is_same:  # the library of another version, for one
            return "prepares rows differently from its worker: install the same packages on every node"
        store = StoredBlocks(needed("ray", "ray", "ray", "engine"))
        self._preparer = ShardPreparer(task, store, self._outbox.put, ended=lambda: self._outbox.put(None))
        return None

    def hear(self, message: ToPreparer | None) -> None:
        """Do what it says, or begin to."""
        if self._preparer is not None:
            self._preparer.handle(message)

    def say(self, had: int) -> list[FromPreparer | None]:
        """Every message after the first `had`, waiting a while for one."""
        return self._outbox.take(had)
