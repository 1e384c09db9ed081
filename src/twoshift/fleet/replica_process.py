"""A replica in a process of its own: a model, its engine, and two lines to the front that has started it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

from twoshift.engine.host_turns import host_turns_beside
from twoshift.error_codec import encode_error
from twoshift.errors import Broken
from twoshift.extras import missing_from, needed
from twoshift.fleet.answering import Answering
from twoshift.fleet.control import FromChild, Loaded, LoadFailed, Noted, Stop, ToChild
from twoshift.fleet.frames import LIVE_BYTES, is_plain
from twoshift.fleet.front_connection import connect_front
from twoshift.fleet.live_folder import LiveFolder
from twoshift.fleet.load_board import LoadBoard
from twoshift.fleet.sent_preparer import SentPreparer
from twoshift.logs import follow_parent_log
from twoshift.parent_process import begin_child
from twoshift.ports import PreparedElsewhere, RuntimeInfo
from twoshift.runtime.devices import share_threads
from twoshift.runtime.load_limit import LoadLimit
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel
from twoshift.serve.model_settings import ModelSettings

if TYPE_CHECKING:
    from twoshift.fleet.replica_jobs import ReplicaJobs

__all__ = ["OpenModel", "ReplicaSpec", "loaded_of", "replica_main"]

OpenModel = Callable[[str, ModelSettings, Callable[[str], None]], ServedModel | ServedLlm]
_logger = logging.getLogger("twoshift.fleet")
_ACCEPT_S = 0.1


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What each replica of a model is made of; `open_model` is a function of a module."""

    name: str
    settings: ModelSettings
    open_model: OpenModel
    cores: int | None = None  # its share of them; None: all
    version: str = "1"


def replica_main(
    live: socket.socket, control: Connection, spec: ReplicaSpec, gpu: str | None, front: int, folder: LiveFolder
) -> None:
    """The process, from its start to its end; in the folder other fronts find it."""
    begin_child(front, f"ts-rep-{spec.name}")
    follow_parent_log()
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
    threading.Thread(
        target=_listen, args=(line, model, _jobs_at(model, line)), name="twoshift-control", daemon=True
    ).start()
    board, listening = LoadBoard(folder.board_path), folder.listen()  # before anybody is told of them
    line.send(replace(loaded_of(model), live_path=folder.live_path, board_path=folder.board_path))
    needed("uvloop", "serve", "serve", "twoshift").run(_serve(model, live, listening, board))


def _fail(line: _Line, error: Exception) -> NoReturn:
    line.send(LoadFailed(encode_error(error)))
    os._exit(1)


async def _serve(
    model: ServedModel | ServedLlm, live: socket.socket, listening: socket.socket, board: LoadBoard
) -> None:
    """The front that has started it, and every other one that connects."""
    answering, loop = Answering(model, board=board), asyncio.get_running_loop()
    if isinstance(model, ServedModel):
        engine = model.engine
        engine.host_time.turns = host_turns_beside(threading.get_ident(), engine.limits, os.getppid())
    await connect_front(answering, live)
    listening.setblocking(False)
    while True:
        try:
            more, _ = await loop.sock_accept(listening)
        except OSError:  # no more files are to be had: those that are connected go on
            _logger.exception("a front-end process could not connect to a replica")
            await asyncio.sleep(_ACCEPT_S)
            continue
        more.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LIVE_BYTES)
        await connect_front(answering, more)


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


def _jobs_at(model: ServedModel | ServedLlm, line: _Line) -> ReplicaJobs | None:
    """Before it takes live requests, which would wait for the first job's imports; None without their packages."""
    if missing_from("fleet"):
        return None
    from twoshift.batch.warm import warm
    from twoshift.fleet.replica_jobs import ReplicaJobs

    warm()
    return ReplicaJobs(model.engine, line.send)


def _listen(line: _Line, model: ServedModel | ServedLlm, jobs: ReplicaJobs | None) -> None:
    code = 0
    try:
        while not isinstance(message := line.receive(), Stop):
            assert jobs is not None  # noqa: S101 - its front has the same packages, and no jobs without them
            try:
                jobs.handle(message)
            except Exception:  # live requests go on
                _logger.exception("a replica could not handle a message about a job")
        if jobs is not None:
            jobs.close()
        model.close()
    except (EOFError, OSError):
        pass  # the front is gone
    except BaseException:
        _logger.exception("a replica process ends because of an error")
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def loaded_of(model: ServedModel | ServedLlm) -> Loaded:
    """What its front has to know of it."""
    info, cost, bounds, preparer = _sendable(model.info), model.engine.cost(), None, None
    if isinstance(model, ServedLlm):
        bounds = model.engine.bounds
    elif isinstance(model.engine.runtime, PreparedElsewhere):
        preparer = SentPreparer(model.engine.runtime.row_preparer)
    return Loaded(info, model.derived, model.outputs, model.most_rows, cost, bounds, preparer)


def _sendable(info: RuntimeInfo) -> RuntimeInfo:
    """Without an example that only the model's own process can understand."""
    return info if is_plain(info.example) else replace(info, example=None)
