"""A job's worker as a Ray actor: hears what it should do, and says what it has to when asked."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twoshift._version import __version__
from twoshift.batch.device import WorkDevice
from twoshift.batch.inputs.patterns import is_pattern, pattern_folder
from twoshift.batch.messages import Begin, FromWorker, ToWorker, Unusable
from twoshift.batch.plan import plan_location
from twoshift.batch.settings import JobSettings
from twoshift.batch.worker import ShardWorker
from twoshift.errors import Broken
from twoshift.ports import Blobs
from twoshift.runtime.devices import share_threads

__all__ = ["Given", "RayWorker"]

_LONG_POLL_S = 10.0
_SHARED = (
    "on Ray, every node must reach the output folder, the input files and the model under the same path: use a shared "
    "filesystem or s3://"
)


@dataclass(frozen=True, slots=True)
class Given:
    """What an actor starts with; all of it travels to its node."""

    version: str  # of the coordinator's Twoshift
    settings: JobSettings
    threads: int  # its share of the cores
    folder: str  # in which the command was run: relative names begin there
    environment: dict[str, str]  # of the command, as far as it decides how storage is reached
    load: Callable[[JobSettings], WorkDevice]
    blobs_for: Callable[[str], Blobs]


class RayWorker:
    """Calls of `hear` come one at a time; `say` waits beside them."""

    def __init__(self, given: Given, number: int) -> None:
        self._outbox = _Outbox()
        self._node, self._blobs_for = os.uname().nodename, given.blobs_for
        _settle_in(given)
        name = f"{self._node}:{number}"
        self._worker = ShardWorker(given.settings, name, given.load, given.blobs_for, self._outbox.put)
        problem = _problem(given)
        if problem is None:  # beside us, so that the pool hears that there was room for it
            threading.Thread(target=self._worker.start, name="twoshift-load", daemon=True).start()
        else:
            self._outbox.put(Unusable(Broken(f"node {self._node}: {problem}")))

    def hear(self, message: ToWorker) -> None:
        """Do what it says, or begin to."""
        if isinstance(message, Begin) and not self._sees(plan_location(message.output)):
            self._outbox.put(
                Unusable(
                    Broken(f"node {self._node}: {message.output} contains no plan.json; {_SHARED}"), is_beginning=True
                )
            )
            return
        self._worker.handle(message)

    def say(self, had: int) -> list[FromWorker]:
        """Every message after the first `had`, waiting a while for one."""
        return self._outbox.take(had, _LONG_POLL_S)

    def close(self) -> None:
        """Give up what is in work and let the model go; nobody waits for a message after it."""
        self._worker.close()
        self._outbox.close()

    def _sees(self, location: str) -> bool:
        return self._blobs_for(location).stat(location) is not None


class _Outbox:
    """Keeps messages until the pool says that it has them: an answer that is lost on the way is asked for again."""

    def __init__(self) -> None:
        self._messages = deque[FromWorker]()
        self._first = 0  # the number of the first message that is kept
        self._closed = False
        self._changed = threading.Condition()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def put(self, message: FromWorker) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def take(self, had: int, timeout_s: float) -> list[FromWorker]:
        with self._changed:
            while self._first < had:
                self._messages.popleft()
                self._first += 1
            self._changed.wait_for(lambda: self._messages or self._closed, timeout_s)
            return list(self._messages)


def _settle_in(given: Given) -> None:
    """Names, storage and threads as the command has them."""
    with contextlib.suppress(OSError):  # a node without the folder is found out where a name begins there
        os.chdir(given.folder)
    if given.environment:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]  # half of one user's and half of another's are nobody's
        os.environ.update(given.environment)
    share_threads(given.threads)


def _problem(given: Given) -> str | None:
    """Why a worker could do nothing on this node; found out before a shard is blamed for it."""
    if given.version != __version__:
        return (
            f"this node has Twoshift {__version__}, the command has {given.version}: install the same version "
            "on every node"
        )
    for name in given.settings.inputs:
        place = (pattern_folder(name) or ".") if is_pattern(name) else name
        if "://" not in name and not name.startswith("@") and not Path(place).exists():
            return f"the input {name} does not exist; {_SHARED}"
    output = given.settings.output
    if "://" not in output and not Path(output, "_twoshift").is_dir():  # the coordinator has made it by now
        return f"the output folder {output} does not exist; {_SHARED}"
    return None
