"""Deployments are loaded, replaced and unloaded beside the requests of the others."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from twoshift.errors import InvalidInput, NotFound
from twoshift.serve.deployments import Deployment, DeploymentState, Serving
from twoshift.serve.live_model import LiveModel
from twoshift.serve.service import Service

__all__ = ["Deployer", "Progress"]

_LOOK_S = 0.02
_T = TypeVar("_T")
Progress = Callable[[], AbstractContextManager[Callable[[str], None]]]  # tells people what is done now


class Deployer:
    """One thing at a time, in a thread of its own; any thread may ask, and is told how it ended by a future.

    What is measured while a model loads would not be true beside another one that loads.
    """

    def __init__(
        self,
        service: Service,
        open_backend: Callable[[str, Callable[[str], None]], LiveModel],  # may take minutes; raises
        arrived: Callable[[Deployment], None],  # a backend answers for it
        leaving: Callable[[Deployment, LiveModel], None],  # one does so no more, and is closed next
        grace_s: float,  # for what was admitted
        progress: Progress,
    ) -> None:
        self._service, self._models, self._open_backend = service, service.models, open_backend
        self._arrived, self._leaving, self._grace_s, self._progress = arrived, leaving, grace_s, progress
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        # It lives as long as the server: a process that a thread has started may end with that thread
        self._thread = threading.Thread(target=self._work, name="twoshift-deployer", daemon=True)

    def start(self) -> None:
        """On the loop that serves."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Nothing more is begun; False where a model is still being loaded after that time."""
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def do(self, what: Callable[[], _T]) -> Future[_T]:
        """In its turn."""
        future: Future[_T] = Future()
        self._asked.put((what, future))
        return future

    def load(self, name: str) -> Future[None]:
        """Load a deployment that is known, or replace what answers for it by the same loaded anew.

        Where that fails, what answered goes on. Raises NotFound at once.
        """
        deployment = self._known(name)
        if deployment.serving is None:
            self._models.move(deployment, DeploymentState.LOADING, "waits for its turn")
        return self.do(lambda: self._load(deployment))

    def unload(self, name: str, forget: bool = False) -> Future[None]:
        """What was admitted is answered, then the model is let go; with `forget` its name is, too."""
        deployment = self._known(name)
        return self.do(lambda: self._unload(deployment, forget))

    def _known(self, name: str) -> Deployment:
        deployment = self._models.all.get(name)
        if deployment is None:
            raise NotFound("model", name, f"one of {', '.join(sorted(self._models.all))}")
        return deployment

    # In its thread

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            what, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(what())
            except BaseException as error:  # a model's own code may raise anything
                future.set_exception(error)

    def _load(self, deployment: Deployment) -> None:
        if self._models.all.get(deployment.name) is not deployment:
            raise InvalidInput("model", deployment.name, "one that was not removed meanwhile")
        is_first = deployment.serving is None
        if is_first:
            self._models.move(deployment, DeploymentState.LOADING)
        try:
            with self._progress() as tell:
                backend = self._open_backend(deployment.name, lambda text: self._tell(deployment, tell, text))
        except BaseException as error:
            if is_first:
                self._models.move(deployment, DeploymentState.FAILED, str(error))
            else:
                deployment.reason = f"{deployment.name} could not be loaded anew, and answers as before: {error}"
            raise
        before = self._on_loop(lambda: self._service.deploy(deployment, backend))
        if before is not None:
            self._let_go(deployment, before)
        self._arrived(deployment)

    def _tell(self, deployment: Deployment, tell: Callable[[str], None], text: str) -> None:
        if deployment.state is DeploymentState.LOADING:
            deployment.reason = text
        tell(text)

    def _unload(self, deployment: Deployment, forget: bool) -> None:
        serving = deployment.serving
        self._on_loop(lambda: self._models.move(deployment, DeploymentState.UNLOADING))
        if serving is not None:
            try:
                self._let_go(deployment, serving)
            except BaseException:
                self._models.serve(deployment, serving.backend)
                raise
        self._models.move(deployment, DeploymentState.UNLOADED)
        if forget:
            self._models.remove(deployment)

    def _let_go(self, deployment: Deployment, serving: Serving) -> None:
        until_s = time.monotonic() + self._grace_s
        while serving.inside and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        self._leaving(deployment, serving.backend)
        deployment.retired(serving.backend)
        with contextlib.suppress(Exception):  # a user's own code may raise anything; the model is gone all the same
            serving.backend.close()

    def _on_loop(self, what: Callable[[], _T]) -> _T:
        async def done() -> _T:
            return what()

        assert self._loop is not None  # noqa: S101 - started
        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()
