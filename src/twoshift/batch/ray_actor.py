"""What every Ray actor of a job has to do with: what it is given, its node, and messages until they are heard."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from twoshift._version import __version__
from twoshift.batch.device import WorkDevice
from twoshift.batch.inputs.patterns import is_pattern, pattern_folder
from twoshift.batch.settings import JobSettings
from twoshift.ports import Blobs
from twoshift.runtime.devices import share_threads

__all__ = ["SAY", "SHARED", "Given", "Outbox", "lost_reason", "problem_here", "settle_in"]

SAY = "say"  # the concurrency group of that method: it waits beside all others
SHARED = (
    "on Ray, every node must reach the output folder, the input files and the model under the same path: use a shared "
    "filesystem or a bucket"
)
_LONG_POLL_S = 10.0
_MOST_REASON = 300  # characters
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """What an actor starts with; all of it travels to its node."""

    version: str  # of the coordinator's Twoshift
    settings: JobSettings
    threads: int  # a worker's share of the cores
    folder: str  # in which the command was run: relative names begin there
    environment: dict[str, str]  # of the command, as far as it decides how storage, or a model's server, is reached
    load: Callable[[JobSettings], WorkDevice]
    blobs_for: Callable[[str], Blobs]


class Outbox(Generic[T]):
    """Keeps messages until whoever listens has them: an answer that is lost on the way is asked for again."""

    def __init__(self) -> None:
        self._messages = deque[T]()
        self._first = 0  # the number of the first message that is kept
        self._closed = False
        self._changed = threading.Condition()

    def close(self) -> None:
        """Nobody waits for a message any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def put(self, message: T) -> None:
        """From any thread."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def take(self, had: int) -> list[T]:
        """Every message after the first `had`, waiting a while for one."""
        with self._changed:
            while self._first < had:
                self._messages.popleft()
                self._first += 1
            self._changed.wait_for(lambda: self._messages or self._closed, _LONG_POLL_S)
            return list(self._messages)


def settle_in(given: Given, threads: int) -> None:
    """Names, storage and threads as the command has them."""
    with contextlib.suppress(OSError):  # a node without the folder is found out where a name begins there
        os.chdir(given.folder)
    if any(name.startswith("AWS_") for name in given.environment):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]  # half of one user's and half of another's are nobody's
    os.environ.update(given.environment)
    share_threads(threads)


def problem_here(given: Given) -> str | None:
    """Why an actor could do nothing on this node; found out before a shard is blamed for it."""
    if given.version != __version__:
        return (
            f"this node has Twoshift {__version__}, and the command has {given.version}: install the same version "
            "on every node"
        )
    for name in given.settings.inputs:
        place = (pattern_folder(name) or ".") if is_pattern(name) else name
        if "://" not in name and not name.startswith("@") and not Path(place).exists():
            return f"the input {name} does not exist; {SHARED}"
    output = given.settings.output
    if "://" not in output and not Path(output, "_twoshift").is_dir():  # the coordinator has made it by now
        return f"the output folder {output} does not exist; {SHARED}"
    return None


def lost_reason(error: Exception) -> str:
    """One line of what Ray says in many."""
    cause = getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()] or [type(error).__name__]
    told = next((line for line in lines if line.startswith("The actor died because")), lines[0])
    return told[:_MOST_REASON]
