"""A replica in a process of its own: a model, its engine, and two lines to the front that has started it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

from twoshift.error_codec import encode_error
from twoshift.errors import Broken
from twoshift.extras import needed
from twoshift.fleet.answering import Answering
from twoshift.fleet.control import FromChild, Loaded, LoadFailed, Noted, Stop, ToChild
from twoshift.fleet.frames import attach, is_plain
from twoshift.parent_process import end_with
from twoshift.ports import RuntimeInfo
from twoshift.runtime.devices import share_threads
from twoshift.runtime.load_limit import LoadLimit
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel
from twoshift.serve.settings import ModelSettings

if TYPE_CHECKING:
    from twoshift.fleet.replica_jobs import JobDesk

__all__ = ["SIGNALS", "OpenModel", "ReplicaSpec", "loaded_of", "replica_main"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # whether a replica ends is for its front to say
OpenModel = Callable[[str, ModelSettings, Callable[[str], None]], ServedModel | ServedLlm]
_logger = logging.getLogger("twoshift.fleet")


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What each replica of a model is made of; `open_model` is a function of a module."""

    name: str
    settings: ModelSettings
    open_model: OpenModel
    cores: int | None = None  # its share of them; None: all
    version: str = "1"


def replica_main(live: socket.socket, control: Connection, spec: ReplicaSpec, gpu: str | None, front: int) -> None:
    """The process, from its start to its end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    end_with(front)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    if spec.cores is not None:
        share_threads(spec.cores)
    line = _Line(control)
    try:
        with LoadLimit(spec.settings.model, spec.settings.load_timeout_s, lambda why: _fail(line, Broken(why))):
            model = spec.open_model(spec.name, spec.settings, lambda text: line.send(Noted(text)))
    except Exception as error:
        _fail(line, error)
    threading.Thread(target=_listen, args=(line, model), name="twoshift-control", daemon=True).start()
    line.send(loaded_of(model))
    needed("uvloop", "serve", "serve", "twoshift").run(_serve(model, live))


def _fail(line: _Line, error: Exception) -> NoReturn:
    line.send(LoadFailed(encode_error(error)))
    os._exit(1)


async def _serve(model: ServedModel | ServedLlm, live: socket.socket) -> None:
    live.setblocking(False)
    await attach(Answering(model, live), live.dup())  # the loop reads from this one; what is sent goes past it
    await asyncio.Event().wait()


class _Line:
    """The pipe to the front, for several threads."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._lock = threading.Lock()

    def send(self, message: FromChild) -> None:
        with self._lock, contextlib.suppress(OSError):  # the front is gone, and so are we in a moment
            self._control.send(message)

    def receive(self) -> ToChild:
        return self._control.recv()


def _listen(line: _Line, model: ServedModel | ServedLlm) -> None:
    desk: JobDesk | None = None
    code = 0
    try:
        while not isinstance(message := line.receive(), Stop):
            if desk is None:
                from twoshift.fleet.replica_jobs import JobDesk  # jobs have packages of their own

                desk = JobDesk(model.engine, line.send)
            try:
                desk.handle(message)
            except Exception:  # live requests go on
                _logger.exception("a job on a replica")
        if desk is not None:
            desk.close()
        model.close()
    except (EOFError, OSError):
        pass  # the front is gone
    except BaseException:
        _logger.exception("a replica ends")
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def loaded_of(model: ServedModel | ServedLlm) -> Loaded:
    """What its front has to know of it."""
    bounds = model.engine.bounds if isinstance(model, ServedLlm) else None
    info, cost = _sendable(model.info), model.engine.cost()
    return Loaded(info, model.derived, model.outputs, model.most_rows, cost, bounds)


def _sendable(info: RuntimeInfo) -> RuntimeInfo:
    """Without an example that only the model's own process can understand."""
    return info if is_plain(info.example) else replace(info, example=None)
